#include "cache/entries/entry_file.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <utility>

#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
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

// Checks the README's promise byte by byte: files outlive the code that wrote them.
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
      const bool unknown_version = at >= 8 && at < 12 && !(at == 8 && changed[at] == 2);
      ASSERT_EQ(entry.reason, unknown_version ? MissReason::other_version : MissReason::corrupt);
    }
  }
}

TEST(EntryFileTest, ABodyLiesBehindTheFrontAndHasItsOwnDigest) {
  const EntryFile whole = {"record", "the key", "head", std::string("bo\0dy", 5)};
  const std::string bytes = encode_entry(whole);
  ASSERT_EQ(bytes.size(), 72U + 7 + 4 + 32 + 5);
  EXPECT_EQ(bytes.substr(8, 4), std::string("\2\0\0\0", 4));
  EXPECT_EQ(bytes.substr(32, 8), std::string("\5\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(bytes.size() - 5), whole.body);
  const Lookup<EntryFile> entry = decode_entry(bytes, "record");
  ASSERT_TRUE(entry) << entry.detail;
  EXPECT_EQ(entry.value->payload, "head");
  EXPECT_EQ(entry.value->body, whole.body);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    ASSERT_FALSE(decode_entry(changed, "record")) << at;
    ASSERT_FALSE(decode_entry(bytes.substr(0, at), "record")) << at;
  }
  EXPECT_FALSE(decode_entry(bytes + '\0', "record"));
}

TEST(EntryFileTest, TheFrontIsReadWithoutTheBody) {
  const ScopedTempDir dir;
  const EntryFile whole = {"record", "the key", std::string(10000, 'h'), "body"};
  std::string bytes = encode_entry(whole);
  const auto front = [&] {
    EXPECT_TRUE(publish_file(dir / "file", bytes));
    return read_front(dir / "file", "record");
  };
  ASSERT_TRUE(front());
  EXPECT_EQ(front().value->payload, whole.payload);
  EXPECT_EQ(front().value->body, "");
  bytes.back() = 'x';
  EXPECT_TRUE(front());
  EXPECT_EQ(read_entry(dir / "file", "record").reason, MissReason::corrupt);
  bytes.pop_back();
  EXPECT_EQ(front().reason, MissReason::corrupt) << "it was cut";
  bytes = encode_entry(whole);
  bytes[5000] = 'x';
  EXPECT_EQ(front().reason, MissReason::corrupt);
  EXPECT_EQ(read_front(dir / "none", "record").reason, MissReason::absent);
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
  bytes[8] = 3;
  const Lookup<EntryFile> entry = decode_entry(sealed(bytes), "record");
  EXPECT_EQ(entry.reason, MissReason::other_version);
  EXPECT_EQ(entry.detail, "format version 3 is neither 1 nor 2");
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
  for (const auto& [kind, most] : {std::pair{"record", 8U << 20}, std::pair{"override", 64U << 10},
                                   std::pair{"artifact", 256U << 20}}) {
    std::filesystem::resize_file(dir / "sparse", most + 1);
    for (const auto read : {read_entry, read_front}) {
      const Lookup<EntryFile> entry = read(dir / "sparse", kind, {});
      EXPECT_EQ(entry.reason, MissReason::corrupt);
      EXPECT_NE(entry.detail.find(concat(most + 1, " bytes, the most of a ", kind, " is ", most)),
                std::string::npos)
          << entry.detail;
    }
  }
}

TEST(EntryFileTest, WhatNobodyCouldReadIsNotWritten) {
  const ScopedTempDir dir;
  const Result<void> published =
      publish_entry(dir / "file", {"override", "key", std::string(64 << 10, 'x')}, dir.path());
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(EntryFileTest, AnEntryThatIsALinkIsAMiss) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "file", sample()));
  std::filesystem::create_symlink("file", dir / "link");
  EXPECT_EQ(read_entry(dir / "link", "record").reason, MissReason::unreadable);
  EXPECT_EQ(read_front(dir / "link", "record").reason, MissReason::unreadable);
}

TEST(EntryFileTest, TheDetailNamesTheFile) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "broken", "x"));
  const Lookup<EntryFile> entry = read_entry(dir / "broken", "record");
  EXPECT_NE(entry.detail.find((dir / "broken").native()), std::string::npos) << entry.detail;
}

}  // namespace
}  // namespace kernwright
