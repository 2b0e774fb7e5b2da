#include "cache/entry_file.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

#include "support/files.h"
#include "support/hash.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

std::string sample() { return encode_entry({"record", "the key", std::string("pay\0load\n", 9)}); }

/// `bytes` with the last 32 replaced by the digest of the others.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  const Digest digest = digest_of(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return bytes;
}

TEST(EntryFileTest, WhatWasEncodedIsDecoded) {
  const Lookup<EntryFile> entry = decode_entry(sample(), "record");
  ASSERT_TRUE(entry) << entry.detail;
  EXPECT_EQ(entry.reason, MissReason::none);
  EXPECT_EQ(entry.value->kind, "record");
  EXPECT_EQ(entry.value->key, "the key");
  EXPECT_EQ(entry.value->payload, std::string("pay\0load\n", 9));
}

TEST(EntryFileTest, AnEmptyKeyAndPayloadAreAnEntry) {
  const Lookup<EntryFile> entry = decode_entry(encode_entry({"artifact", "", ""}), "artifact");
  ASSERT_TRUE(entry) << entry.detail;
  EXPECT_EQ(entry.value->kind, "artifact");
}

// What the README promises byte by byte: files outlive the code that wrote them.
TEST(EntryFileTest, TheLayoutIsTheDocumentedOne) {
  const std::string bytes = sample();
  ASSERT_EQ(bytes.size(), 32U + 7 + 9 + 32);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x89KW\r\n\x1a\n\0", 8));
  EXPECT_EQ(bytes.substr(8, 4), std::string("\1\0\0\0", 4));
  EXPECT_EQ(bytes.substr(12, 4), std::string("\7\0\0\0", 4));
  EXPECT_EQ(bytes.substr(16, 8), std::string("\11\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(24, 8), std::string("record\0\0", 8));
  EXPECT_EQ(bytes.substr(32, 7), "the key");
  EXPECT_EQ(bytes, sealed(bytes));
}

TEST(EntryFileTest, EveryChangedByteIsAMiss) {
  const std::string bytes = sample();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const Lookup<EntryFile> entry = decode_entry(changed, "record");
      ASSERT_FALSE(entry) << "byte " << at << " xor " << change;
      const bool in_version = at >= 8 && at < 12;
      ASSERT_EQ(entry.reason, in_version ? MissReason::other_version : MissReason::corrupt);
    }
  }
}

TEST(EntryFileTest, EveryOtherLengthIsAMiss) {
  const std::string bytes = sample();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_EQ(decode_entry(bytes.substr(0, length), "record").reason, MissReason::corrupt)
        << length;
    ASSERT_FALSE(decode_entry(bytes.substr(bytes.size() - length), "record")) << length;
  }
  EXPECT_EQ(decode_entry(bytes + '\0', "record").reason, MissReason::corrupt);
  EXPECT_EQ(decode_entry(bytes + bytes, "record").reason, MissReason::corrupt);
}

TEST(EntryFileTest, LengthsThatOverflowAreAMiss) {
  // Sealed again, so that the lengths alone are wrong: key + payload wraps around to the right sum.
  std::string bytes = sample();
  bytes.replace(12, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(decode_entry(sealed(bytes), "record").reason, MissReason::corrupt);
  bytes = sample();
  bytes.replace(12, 4, std::string("\x11\0\0\0", 4));
  bytes.replace(16, 8, "\xff\xff\xff\xff\xff\xff\xff\xff");
  EXPECT_EQ(decode_entry(sealed(bytes), "record").reason, MissReason::corrupt);
}

TEST(EntryFileTest, AnotherKindIsAMissThatNamesBoth) {
  const Lookup<EntryFile> entry = decode_entry(sample(), "artifact");
  EXPECT_EQ(entry.reason, MissReason::corrupt);
  EXPECT_EQ(entry.detail, "kind \"record\" is not \"artifact\"");
}

TEST(EntryFileTest, AnotherVersionIsAMissThatNamesBoth) {
  std::string bytes = sample();
  bytes[8] = 2;
  const Lookup<EntryFile> entry = decode_entry(sealed(bytes), "record");
  EXPECT_EQ(entry.reason, MissReason::other_version);
  EXPECT_EQ(entry.detail, "format version 2 is not 1");
}

TEST(EntryFileTest, WhatIsNoFileIsAMiss) {
  const ScopedTempDir dir;
  EXPECT_EQ(read_entry(dir / "absent", "record").reason, MissReason::absent);
  EXPECT_EQ(read_entry(dir.path(), "record").reason, MissReason::unreadable);
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_entry(dir / "fifo", "record").reason, MissReason::unreadable);
  ASSERT_TRUE(publish_file(dir / "file", sample()));
  EXPECT_TRUE(read_entry(dir / "file", "record"));
  EXPECT_FALSE(read_entry(dir / "file" / "below", "record"));
}

TEST(EntryFileTest, AHugeFileIsNotReadIntoMemory) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "sparse", ""));
  std::filesystem::resize_file(dir / "sparse", std::uintmax_t{1} << 40);
  EXPECT_EQ(read_entry(dir / "sparse", "record").reason, MissReason::corrupt);
}

TEST(EntryFileTest, TheDetailNamesTheFile) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "broken", "x"));
  const Lookup<EntryFile> entry = read_entry(dir / "broken", "record");
  EXPECT_NE(entry.detail.find((dir / "broken").native()), std::string::npos) << entry.detail;
}

}  // namespace
}  // namespace kernwright
