#include "compile/cubin.h"

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>

#include "tests/results.h"

namespace kernwright {
namespace {

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof(T)) bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// An ELF file with a section of names and one section of `bytes`, all that is read.
std::string cubin_with(std::string_view section, std::string_view bytes) {
  constexpr std::size_t kNames = 64;
  constexpr std::size_t kText = 128;
  const std::size_t table = kText + bytes.size();
  std::string cubin(
      "\x7f"
      "ELF\x02\x01",
      6);
  put<std::uint64_t>(cubin, 0x28, table);
  put<std::uint16_t>(cubin, 0x3a, 64);
  put<std::uint16_t>(cubin, 0x3c, 2);
  put<std::uint16_t>(cubin, 0x3e, 0);
  const std::string names = std::string("\0.names\0", 8) + std::string(section) + '\0';
  cubin.resize(table + 128);
  cubin.replace(kNames, names.size(), names);
  cubin.replace(kText, bytes.size(), bytes);
  put<std::uint32_t>(cubin, table, 1);
  put<std::uint64_t>(cubin, table + 24, kNames);
  put<std::uint64_t>(cubin, table + 32, names.size());
  put<std::uint32_t>(cubin, table + 64, 8);
  put<std::uint64_t>(cubin, table + 64 + 24, kText);
  put<std::uint64_t>(cubin, table + 64 + 32, bytes.size());
  return cubin;
}

/// One with a `.text.` section of `opcodes`.
std::string small_cubin(const std::vector<std::uint16_t>& opcodes) {
  std::string text(16 * opcodes.size(), '\0');
  for (std::size_t i = 0; i < opcodes.size(); ++i) {
    // Bits above the low 12 belong to the predicate and the operands.
    put<std::uint16_t>(text, 16 * i, static_cast<std::uint16_t>(opcodes[i] | 0x7000));
  }
  return cubin_with(".text.kernel", text);
}

/// An attribute of a `.nv.info.` section.
std::string attribute(std::uint8_t format, std::uint8_t code, std::uint16_t value,
                      const std::vector<std::uint32_t>& words = {}) {
  std::string bytes;
  put(bytes, 0, format);
  put(bytes, 1, code);
  put(bytes, 2, value);
  for (const std::uint32_t word : words) put(bytes, bytes.size(), word);
  return bytes;
}

/// Returns the attribute of a parameter.
std::string parameter(std::uint32_t ordinal, std::uint32_t offset, std::uint32_t bytes) {
  return attribute(4, 0x17, 12, {0, ordinal | (offset << 16), (bytes << 18) | 0x1f000});
}

TEST(CubinTest, CountsInstructionsByTheirLowTwelveBits) {
  const auto counts = must(count_instructions(small_cubin({0x9f0, 0xdf0, 0x23c, 0x983, 0x123})));
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts.front().kernel, "kernel");
  EXPECT_EQ(counts.front().total, 5);
  EXPECT_EQ(counts.front().count("HGMMA"), 2);
  EXPECT_EQ(counts.front().count("HMMA"), 1);
  EXPECT_EQ(counts.front().count("LDL"), 1);
  EXPECT_EQ(counts.front().count("STL"), 0);
  EXPECT_EQ(counts.front().first,
            (std::map<std::string, int>{{"HGMMA", 0}, {"HMMA", 2}, {"LDL", 3}}));
  EXPECT_EQ(counts.front().order, (std::vector<std::string_view>{"HGMMA", "HGMMA", "HMMA", "LDL"}));
}

TEST(CubinTest, WhatIsNoElfFileIsCorrupt) {
  for (const std::string& bytes :
       {std::string(), std::string("not a cubin"), std::string(64, '\0')}) {
    EXPECT_THAT(count_instructions(bytes), Fails(ErrorCode::corrupt));
  }
}

TEST(CubinTest, EveryTruncationIsCorrupt) {
  const std::string cubin = small_cubin({0x9f0, 0x23c});
  // The last 24 bytes are fields of the last section header that are not read.
  for (std::size_t size = 0; size < cubin.size() - 24; ++size) {
    EXPECT_THAT(count_instructions(std::string_view(cubin).substr(0, size)),
                Fails(ErrorCode::corrupt))
        << size << " bytes";
  }
}

TEST(CubinTest, OffsetsBeyondTheEndAreCorrupt) {
  const std::string cubin = small_cubin({0x9f0});
  for (std::size_t at = 0x28; at < cubin.size(); at += 4) {
    std::string damaged = cubin;
    put<std::uint32_t>(damaged, at, 0xfffffff0);
    damaged.resize(cubin.size());
    const auto counts = count_instructions(damaged);  // must not read outside; may still succeed
    EXPECT_TRUE(counts || counts.error().code == ErrorCode::corrupt);
  }
}

TEST(CubinTest, SaysWhatAKernelTakes) {
  const std::string info = attribute(4, 0x37, 4, {130}) + parameter(2, 64, 128) +
                           parameter(1, 8, 4) + parameter(0, 0, 8) + attribute(3, 0x1b, 255) +
                           attribute(4, 0x05, 12, {64, 2, 1}) + attribute(3, 0x19, 192);
  const auto kernels = must(kernel_interfaces(cubin_with(".nv.info.add", info)));
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels.front().kernel, "add");
  EXPECT_EQ(kernels.front().parameter_bytes, (std::vector<std::size_t>{8, 4, 128}));
  EXPECT_EQ(kernels.front().max_threads, 128);
}

TEST(CubinTest, AKernelThatIsNotWhollyDescribedIsCorrupt) {
  const std::string size = attribute(3, 0x19, 12);
  for (const std::string& info :
       {parameter(1, 8, 4) + size, parameter(0, 0, 8) + size, parameter(0, 0, 8),
        (parameter(0, 0, 12) + size).substr(0, 17), parameter(0, 0, 12).substr(0, 12)}) {
    EXPECT_THAT(kernel_interfaces(cubin_with(".nv.info.add", info)), Fails(ErrorCode::corrupt));
  }
}

}  // namespace
}  // namespace kernwright
