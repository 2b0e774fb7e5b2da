#include "compile/cubin.h"

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof(T)) bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// An ELF file with a section of names and one `.text.` section of `opcodes`, all that is read.
std::string small_cubin(const std::vector<std::uint16_t>& opcodes) {
  constexpr std::size_t kNames = 64;
  constexpr std::size_t kText = 128;
  const std::size_t table = kText + 16 * opcodes.size();
  std::string cubin(
      "\x7f"
      "ELF\x02\x01",
      6);
  put<std::uint64_t>(cubin, 0x28, table);
  put<std::uint16_t>(cubin, 0x3a, 64);
  put<std::uint16_t>(cubin, 0x3c, 2);
  put<std::uint16_t>(cubin, 0x3e, 0);
  const std::string names("\0.names\0.text.kernel\0", 21);
  cubin.resize(table + 128);
  cubin.replace(kNames, names.size(), names);
  for (std::size_t i = 0; i < opcodes.size(); ++i) {
    // Bits above the low 12 belong to the predicate and the operands.
    put<std::uint16_t>(cubin, kText + 16 * i, static_cast<std::uint16_t>(opcodes[i] | 0x7000));
  }
  put<std::uint32_t>(cubin, table, 1);
  put<std::uint64_t>(cubin, table + 24, kNames);
  put<std::uint64_t>(cubin, table + 32, names.size());
  put<std::uint32_t>(cubin, table + 64, 8);
  put<std::uint64_t>(cubin, table + 64 + 24, kText);
  put<std::uint64_t>(cubin, table + 64 + 32, 16 * opcodes.size());
  return cubin;
}

TEST(CubinTest, CountsInstructionsByTheirLowTwelveBits) {
  const auto counts = count_instructions(small_cubin({0x9f0, 0xdf0, 0x23c, 0x983, 0x123}));
  ASSERT_TRUE(counts) << counts.error().message;
  ASSERT_EQ(counts->size(), 1U);
  EXPECT_EQ(counts->front().kernel, "kernel");
  EXPECT_EQ(counts->front().total, 5);
  EXPECT_EQ(counts->front().count("HGMMA"), 2);
  EXPECT_EQ(counts->front().count("HMMA"), 1);
  EXPECT_EQ(counts->front().count("LDL"), 1);
  EXPECT_EQ(counts->front().count("STL"), 0);
  EXPECT_EQ(counts->front().first,
            (std::map<std::string, int>{{"HGMMA", 0}, {"HMMA", 2}, {"LDL", 3}}));
  EXPECT_EQ(counts->front().order,
            (std::vector<std::string_view>{"HGMMA", "HGMMA", "HMMA", "LDL"}));
}

TEST(CubinTest, WhatIsNoElfFileIsCorrupt) {
  for (const std::string& bytes :
       {std::string(), std::string("not a cubin"), std::string(64, '\0')}) {
    const auto counts = count_instructions(bytes);
    ASSERT_FALSE(counts);
    EXPECT_EQ(counts.error().code, ErrorCode::corrupt);
  }
}

TEST(CubinTest, EveryTruncationIsCorrupt) {
  const std::string cubin = small_cubin({0x9f0, 0x23c});
  // The last 24 bytes are fields of the last section header that are not read.
  for (std::size_t size = 0; size < cubin.size() - 24; ++size) {
    const auto counts = count_instructions(std::string_view(cubin).substr(0, size));
    ASSERT_FALSE(counts) << size << " bytes";
    EXPECT_EQ(counts.error().code, ErrorCode::corrupt);
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

}  // namespace
}  // namespace kernwright
