#include "cache/layers/bundle.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "cache/entries/entry_file.h"
#include "cache/entries/key_lock.h"
#include "cache/layers/bundle_manifest.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/libraries/signing.h"
#include "support/libraries/tar.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Packed {
  std::string name;
  std::string bytes;
};

/// An archive of one empty entry, which no writer of ours makes: of a `type` of ustar (0 a file, 1
/// a hard link, 2 a symbolic one, 5 a folder), with the owner's number in octal.
std::string raw_tar(char type, const std::string& owner) {
  std::string header(512, '\0');
  const auto put = [&header](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, "manifest.json");
  put(100, "0000644");
  put(108, owner);
  put(116, "0000000");
  put(124, "00000000000");
  put(136, "00000000000");
  put(148, "        ");  // the sum is taken with blanks in its place
  header[156] = type;
  put(157, type == '1' || type == '2' ? "/etc/passwd" : "");
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, std::string(digits, 7));
  return header + std::string(1024, '\0');
}

/// A cache with one record and its winner's bits, and bundles made of it.
class BundleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    keys_ = must(make_key_pair());
    record_.winner.artifact = digest_of("winner").hex();
    ASSERT_TRUE(cache_.put_artifact(record_.winner.artifact, sample_kernel("winner")));
    ASSERT_TRUE(cache_.put_artifact(digest_of("other").hex(), sample_kernel("other")));
    ASSERT_TRUE(cache_.put_record(record_));
  }

  Result<ExportReport> pack(const std::string& name = "bundle", const std::string& key = {}) {
    return export_bundle(cache_, dir_ / name,
                         {.sku = {}, .secret_key = key, .now = "2027-01-01T00:00:00Z"});
  }
  Result<InstallReport> install(const std::string& name = "bundle",
                                const InstallOptions& options = {.trusted_keys = {},
                                                                 .allow_unsigned = true}) {
    return install_bundle(dir_ / name, dir_ / "fleet", options);
  }
  std::string refused(const std::string& name = "bundle") {
    const Result<InstallReport> report = install(name);
    EXPECT_EQ(installed_bundle(dir_ / "fleet"), "") << "nothing is in use";
    return report ? "installed" : report.error().message;
  }
  std::vector<Packed> unpack(const std::string& name = "bundle") const {
    std::vector<Packed> packed;
    TarReader tar = TarReader::open(dir_ / name).value();
    while (auto entry = tar.next().value()) packed.push_back({entry->name, *tar.read(1 << 24)});
    return packed;
  }
  /// Returns the refusal of a bundle with the entries that `change` makes of a good one's.
  std::string refused_with(const std::function<void(std::vector<Packed>&)>& change) {
    EXPECT_TRUE(pack());
    std::vector<Packed> packed = unpack();
    change(packed);
    TarWriter tar = TarWriter::create(dir_ / "changed").value();
    for (const Packed& entry : packed) EXPECT_TRUE(tar.add(entry.name, entry.bytes));
    EXPECT_TRUE(tar.finish());
    return refused("changed");
  }
  /// The manifest of a bundle of `packed`, whatever its names are.
  static void rename_in_manifest(std::vector<Packed>& packed, std::size_t at,
                                 const std::string& name) {
    std::string& manifest = packed[0].bytes;
    manifest.replace(manifest.find(packed[at].name), packed[at].name.size(), name);
    packed[at].name = name;
  }

  ScopedTempDir dir_;
  TieredCache cache_{dir_ / "cache"};
  TuningRecord record_ = sample_record(1);
  KeyPair keys_;
};

TEST_F(BundleTest, WhatWasExportedIsServedWhereItIsInstalled) {
  const ExportReport exported = must(pack());
  EXPECT_EQ(exported.records, 1);
  EXPECT_EQ(exported.artifacts, 1) << "the winner's alone";
  const InstallReport installed = must(install());
  EXPECT_EQ(installed.digest, exported.digest);
  EXPECT_EQ(installed.files, 2);
  const TieredCache fleet(dir_ / "fleet");
  const Answers found = fleet.lookup(record_.key, {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"},
                                     [](std::string_view) { return std::string("template-1"); });
  ASSERT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.records[0].match, Match::exact);
  EXPECT_EQ(fleet.artifact(record_.winner.artifact).value->bits, sample_kernel("winner").bits);
  EXPECT_EQ(to_json(*read_record(found.records[0].file).value), to_json(record_));
}

TEST_F(BundleTest, TheSameContentGivesTheSameBytes) {
  ASSERT_TRUE(pack("first", keys_.secret_key));
  for (const auto& entry : fs::recursive_directory_iterator(dir_ / "cache")) {
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(100));
  }
  ASSERT_TRUE(pack("second", keys_.secret_key));
  EXPECT_EQ(*read_file(dir_ / "first"), *read_file(dir_ / "second"));
}

TEST_F(BundleTest, OnlyRunsThatSomeLookupServesAndWinnersBitsAreInIt) {
  TuningRecord newer = record_;
  newer.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(newer));
  TuningRecord other_sku = record_;
  other_sku.key.sku = "a100_80";
  ASSERT_TRUE(cache_.put_record(other_sku));
  Override ban{.key = record_.key, .action = OverrideAction::ban};
  ASSERT_TRUE(cache_.put_override(ban));
  const ExportReport all = must(pack());
  EXPECT_EQ(all.records, 2);
  EXPECT_EQ(all.overrides, 1);
  const ExportReport one =
      must(export_bundle(cache_, dir_ / "one", {.sku = "a100_80", .secret_key = {}}));
  EXPECT_EQ(one.records, 1);
  EXPECT_EQ(one.overrides, 0);
}

TEST_F(BundleTest, WhatStandsInForABannedWinnerHasItsBitsInTheBundle) {
  record_.runners_up.front().choice = {record_.winner.choice.kernel_template,
                                       Configuration({{"STAGES", 3}})};
  record_.runners_up.front().artifact = digest_of("other").hex();
  record_.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(record_));
  ASSERT_TRUE(cache_.put_override(
      {.key = record_.key, .action = OverrideAction::ban, .choice = record_.winner.choice}));
  const ExportReport exported = must(pack());
  EXPECT_EQ(exported.artifacts, 2);
  EXPECT_THAT(exported.without_bits, IsEmpty());
  ASSERT_TRUE(install());
  const TieredCache fleet(dir_ / "fleet");
  const Answers found = fleet.lookup(record_.key, {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"},
                                     [](std::string_view) { return std::string("template-1"); });
  ASSERT_FALSE(found.records.empty());
  const HeadWinner& served = found.records[0].head.winner;
  EXPECT_EQ(served.choice, record_.runners_up.front().choice);
  ASSERT_TRUE(fleet.artifact(served.artifact));
  EXPECT_EQ(fleet.artifact(served.artifact).value->bits, sample_kernel("other").bits);

  fs::remove(cache_.artifacts().path(served.artifact));
  EXPECT_THAT(pack()->without_bits,
              ElementsAre(AllOf(HasSubstr(record_.key.text()), HasSubstr(served.choice.id()),
                                HasSubstr("stands in for a banned winner and has no bits"))));
}

TEST_F(BundleTest, AStandInOfAnotherTemplateIsNamedAsOneWithoutBits) {
  // Its artifact in the record may be of another text of its template.
  record_.runners_up.front().artifact = digest_of("other").hex();
  record_.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(record_));
  ASSERT_TRUE(cache_.put_override(
      {.key = record_.key, .action = OverrideAction::ban, .choice = record_.winner.choice}));
  EXPECT_THAT(pack()->without_bits, ElementsAre(HasSubstr("matmul/tiled BM=64 stands in")));
}

TEST_F(BundleTest, APinnedCandidateHasItsBitsOrIsNamed) {
  const auto named = [&](const Choice& choice) {
    EXPECT_TRUE(
        cache_.put_override({.key = record_.key, .action = OverrideAction::pin, .choice = choice}));
    return pack()->without_bits;
  };
  EXPECT_THAT(named(record_.winner.choice), IsEmpty());
  EXPECT_THAT(named({"matmul/tiled", Configuration({{"BM", 256}})}),
              ElementsAre(HasSubstr("matmul/tiled BM=256 is pinned and has no bits")));
  record_.runners_up.front().choice = {record_.winner.choice.kernel_template,
                                       Configuration({{"STAGES", 3}})};
  record_.runners_up.front().artifact = digest_of("other").hex();
  record_.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(record_));
  EXPECT_THAT(named(record_.runners_up.front().choice), IsEmpty());
  EXPECT_EQ(pack()->artifacts, 2);
}

TEST_F(BundleTest, AWinnerWithoutItsBitsIsNotExported) {
  fs::remove(cache_.artifacts().path(record_.winner.artifact));
  EXPECT_THAT(pack(), Fails(HasSubstr("matmul m=1")));
  EXPECT_FALSE(fs::exists(dir_ / "bundle"));
  EXPECT_FALSE(export_bundle(TieredCache(dir_ / "none"), dir_ / "bundle", {})) << "no record";
}

TEST_F(BundleTest, TheNewestRecordOfAFamilyIsInItWithTheBitsOfAllItsKernels) {
  const std::string second = digest_of("second").hex();
  FamilyRecord family = sample_family(8192);
  ASSERT_TRUE(cache_.records().put(family));
  family.head.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.records().put(family));
  FamilyRecord other_sku = family;
  other_sku.head.key.sku = "a100_80";
  other_sku.head.kernels[1].artifact = digest_of("other").hex();
  ASSERT_TRUE(cache_.records().put(other_sku));
  EXPECT_THAT(pack(), Fails(ErrorCode::not_found,
                            HasSubstr(concat("matmul/tiled BM=64's bits of ",
                                             family.head.key.text(), " are not stored: "))));
  ASSERT_TRUE(cache_.put_artifact(second, sample_kernel("second")));
  const ExportReport all = must(pack());
  EXPECT_EQ(all.records, 1);
  EXPECT_EQ(all.families, 2) << "the newest of each SKU";
  EXPECT_EQ(all.artifacts, 3);
  const ExportReport one = must(export_bundle(
      cache_, dir_ / "one", {.sku = "a100_80", .secret_key = {}, .now = "2027-01-01T00:00:00Z"}));
  EXPECT_EQ(one.records, 0) << "a family alone is enough";
  EXPECT_EQ(one.families, 1);
  EXPECT_EQ(one.artifacts, 2);
  const BundleManifest manifest = must(parse_bundle_manifest(unpack("one")[0].bytes));
  EXPECT_THAT(manifest.skus, ElementsAre("a100_80"));
  EXPECT_THAT(manifest.devices, ElementsAre("GPU-2"));

  ASSERT_TRUE(install());
  const fs::path bundle = installed_bundle(dir_ / "fleet");
  const std::vector<RecordStore::FamilyRun> served = RecordStore(bundle).families(sample_key(1));
  ASSERT_EQ(served.size(), 1U);
  EXPECT_EQ(served[0].head, family.head);
  EXPECT_EQ(*read_family(served[0].file, bundle).value, family);
  for (const FamilyKernel& kernel : served[0].head.kernels) {
    EXPECT_TRUE(ArtifactStore(bundle).get(kernel.artifact));
  }
  std::string bytes = *read_file(served[0].file);
  bytes.back() ^= 1;
  ASSERT_TRUE(publish_file(served[0].file, bytes));
  ASSERT_EQ(bundle_defects(bundle).size(), 1U);
  EXPECT_EQ(bundle_defects(bundle)[0].path, served[0].file);
}

TEST_F(BundleTest, APinnedKernelOfAFamilyHasItsBits) {
  const FamilyHead head = sample_family(8192).head;
  ASSERT_TRUE(cache_.put_artifact(head.kernels[1].artifact, sample_kernel("second")));
  ASSERT_TRUE(cache_.records().put(sample_family(8192)));
  const auto pinned = [&](const Choice& choice) {
    EXPECT_TRUE(
        cache_.put_override({.key = head.key, .action = OverrideAction::pin, .choice = choice}));
    return pack()->without_bits;
  };
  EXPECT_THAT(pinned(head.kernels[1].choice), IsEmpty());
  EXPECT_THAT(pinned({"matmul/tiled", Configuration({{"BM", 256}})}),
              ElementsAre(HasSubstr("matmul/tiled BM=256 is pinned and has no bits")));
}

TEST_F(BundleTest, AFileThatIsNoFamilyIsRefused) {
  ASSERT_TRUE(cache_.put_artifact(digest_of("second").hex(), sample_kernel("second")));
  ASSERT_TRUE(cache_.records().put(sample_family(8192)));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) {
                const auto family = std::ranges::find_if(
                    packed, [](const Packed& one) { return one.name.ends_with(".kwf"); });
                ASSERT_NE(family, packed.end());
                family->bytes[100] ^= 1;
              }),
              HasSubstr("is not that of the manifest"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) {
                for (std::size_t at = 1; at < packed.size(); ++at) {
                  std::string name = packed[at].name;
                  if (!name.ends_with(".kwf")) continue;
                  name.back() = 'r';
                  rename_in_manifest(packed, at, name);
                }
              }),
              HasSubstr("kind \"family\" is not \"record\""));
}

TEST_F(BundleTest, ASignatureIsAskedForAndChecked) {
  ASSERT_TRUE(pack("signed", keys_.secret_key));
  ASSERT_TRUE(pack("unsigned"));
  const InstallOptions trusting{.trusted_keys = {std::string(64, '0'), keys_.public_key}};
  const InstallReport installed = must(install("signed", trusting));
  EXPECT_EQ(installed.signer, keys_.public_key);
  const auto message = [&](const std::string& name, const InstallOptions& options) {
    const Result<InstallReport> report = install(name, options);
    return report ? "installed" : report.error().message;
  };
  EXPECT_THAT(message("unsigned", trusting), HasSubstr("is not signed; --allow-unsigned"));
  EXPECT_THAT(message("signed", {.trusted_keys = {std::string(64, '0')}}),
              HasSubstr("signed by none of 1 trusted key; --trusted-keys"));
  EXPECT_THAT(message("signed", {}), HasSubstr("no trusted key is given; --trusted-keys"));
  const InstallReport allowed = must(install("unsigned"));
  EXPECT_EQ(allowed.signer, "");
}

TEST_F(BundleTest, ASignatureOfAnotherManifestIsRefused) {
  ASSERT_TRUE(pack("bundle", keys_.secret_key));
  std::vector<Packed> packed = unpack();
  packed[0].bytes.replace(packed[0].bytes.find("GPU-1"), 5, "GPU-2");
  TarWriter tar = TarWriter::create(dir_ / "forged").value();
  for (const Packed& entry : packed) ASSERT_TRUE(tar.add(entry.name, entry.bytes));
  ASSERT_TRUE(tar.finish());
  EXPECT_FALSE(install("forged", {.trusted_keys = {keys_.public_key}}));
}

TEST_F(BundleTest, EveryFlippedByteIsRefusedOrChangesNothing) {
  ASSERT_TRUE(pack("good", keys_.secret_key));
  const std::string bytes = *read_file(dir_ / "good");
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    ASSERT_TRUE(publish_file(dir_ / "bundle", changed));
    const Result<InstallReport> report = install("bundle", {.trusted_keys = {keys_.public_key}});
    if (!report) continue;
    // Padding and fields that nobody reads: what was installed is what was signed.
    EXPECT_EQ(report->digest, install("good")->digest) << at;
  }
}

TEST_F(BundleTest, EveryTruncationIsRefused) {
  ASSERT_TRUE(pack("good"));
  const std::string bytes = *read_file(dir_ / "good");
  for (std::size_t length = 0; length + 64 < bytes.size(); length += 37) {
    ASSERT_TRUE(publish_file(dir_ / "bundle", bytes.substr(0, length)));
    ASSERT_FALSE(install()) << length;
  }
}

TEST_F(BundleTest, NamesThatLeadElsewhereAreRefused) {
  for (const char* name :
       {"../v1/records/sm_90/h200/matmul/x/y.kwr", "/etc/cron.d/x", "v1/../../x.kwr",
        "v1/records/sm_90/h200/matmul/../x.kwr", "v1/records/sm_90/h200/matmul/x/.kwr",
        "v1/artifacts/00/x.kwa", "v1/records/sm_90/h200/matmul/x/y.so", "FORMAT"}) {
    EXPECT_THAT(
        refused_with([&](std::vector<Packed>& packed) { rename_in_manifest(packed, 2, name); }),
        HasSubstr("is no place of a cache's file"))
        << name;
  }
}

TEST_F(BundleTest, WhatAPackageBringsIsCheckedWhole) {
  ASSERT_TRUE(pack("bundle", keys_.secret_key));
  ASSERT_TRUE(install());
  const fs::path folder = installed_bundle(dir_ / "fleet");
  EXPECT_EQ(bundle_of(folder), folder.filename());
  EXPECT_EQ(bundle_of(dir_ / "fleet" / "bundles" / "current"), folder.filename());
  EXPECT_EQ(bundle_of(dir_ / "fleet"), "");
  const auto checked = [&] { return check_packaged_bundle(folder); };
  EXPECT_TRUE(checked());
  fs::remove(folder / "manifest.sig");
  EXPECT_TRUE(checked()) << "a package is trusted as its code is";
  std::ofstream(folder / "v1" / "more") << "x";
  EXPECT_THAT(checked().error().message, HasSubstr("not in the bundle's manifest"));
  fs::remove(folder / "v1" / "more");
  EXPECT_TRUE(checked());
  fs::remove_all(folder / "v1" / "artifacts");
  EXPECT_EQ(checked().error().code, ErrorCode::corrupt);
  EXPECT_EQ(check_packaged_bundle(dir_ / "nowhere").error().code, ErrorCode::not_found);
}

TEST_F(BundleTest, WhatOthersMayWriteIsNoPackage) {
  ASSERT_TRUE(pack("bundle", keys_.secret_key));
  ASSERT_TRUE(install());
  const fs::path folder = installed_bundle(dir_ / "fleet");
  for (const fs::path& path : {folder, folder / "v1", folder / "manifest.json"}) {
    const fs::perms before = fs::status(path).permissions();
    for (const fs::perms more : {fs::perms::group_write, fs::perms::others_write}) {
      fs::permissions(path, before | more);
      EXPECT_THAT(check_packaged_bundle(folder),
                  Fails(ErrorCode::refused, HasSubstr("others than you and root may write to it")))
          << path;
    }
    fs::permissions(path, before);
  }
  EXPECT_TRUE(check_packaged_bundle(folder));
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown((folder / "manifest.json").c_str(), 12345, 12345), 0);
  EXPECT_EQ(check_packaged_bundle(folder).error().code, ErrorCode::refused);
}

TEST_F(BundleTest, LinksFoldersAndForeignOwnersAreRefused) {
  const auto refused_raw = [this](char type, const std::string& owner) {
    EXPECT_TRUE(publish_file(dir_ / "raw", raw_tar(type, owner)));
    return refused("raw");
  };
  for (const char type : {'1', '2', '5'}) {
    EXPECT_THAT(refused_raw(type, "0000000"), HasSubstr("is no regular file")) << type;
  }
  EXPECT_THAT(refused_raw('0', "0001750"), HasSubstr("belongs to user or group 1000"));
  EXPECT_THAT(refused_raw('0', "0000000"), HasSubstr("ends before its files"))
      << "the archive is well formed";
}

TEST_F(BundleTest, WhatTheManifestDoesNotSayIsRefused) {
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed.pop_back(); }),
              HasSubstr("ends before"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed.push_back({"more", "x"}); }),
              HasSubstr("is not in the manifest"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { std::swap(packed[1], packed[2]); }),
              HasSubstr("stands where"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed[1].bytes += 'x'; }),
              HasSubstr("has more than"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed[1].bytes.pop_back(); }),
              HasSubstr("by the manifest"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed[1].bytes[100] ^= 1; }),
              HasSubstr("is not that of the manifest"));
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) { packed.erase(packed.begin()); }),
              HasSubstr("stands where \"manifest.json\" should"));
}

TEST_F(BundleTest, AFileThatIsNoEntryOfItsKindIsRefused) {
  EXPECT_THAT(refused_with([](std::vector<Packed>& packed) {
                const std::string before = packed[1].bytes;
                packed[1].bytes = encode_entry({"record", "key", "not an artifact"});
                std::string& manifest = packed[0].bytes;
                const auto replace = [&manifest](const std::string& from, const std::string& to) {
                  manifest.replace(manifest.find(from), from.size(), to);
                };
                replace(digest_of(before).hex(), digest_of(packed[1].bytes).hex());
                replace(concat("\"bytes\": ", before.size()),
                        concat("\"bytes\": ", packed[1].bytes.size()));
              }),
              HasSubstr("kind \"record\" is not \"artifact\""));
}

TEST_F(BundleTest, AnInstallationReplacesTheOneBeforeAtOnceAndKeepsIt) {
  ASSERT_TRUE(pack());
  const std::string first = install()->digest;
  TuningRecord newer = record_;
  newer.created = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(newer));
  ASSERT_TRUE(pack());
  const std::string second = install()->digest;
  EXPECT_NE(first, second);
  EXPECT_EQ(installed_bundle(dir_ / "fleet").filename(), second);
  EXPECT_TRUE(fs::exists(dir_ / "fleet" / "bundles" / first));
  EXPECT_EQ(install()->digest, second) << "again";
}

TEST_F(BundleTest, ADamagedInstallationIsReplaced) {
  ASSERT_TRUE(pack());
  ASSERT_TRUE(install());
  fs::remove_all(installed_bundle(dir_ / "fleet") / "v1" / "artifacts");
  ASSERT_TRUE(install());
  EXPECT_TRUE(TieredCache(dir_ / "fleet").artifact(record_.winner.artifact));
  for (const std::string& name : list_directory(dir_ / "fleet" / "bundles")) {
    EXPECT_NE(name[0], '.') << name;
  }
}

TEST_F(BundleTest, OneInstallationAtATime) {
  ASSERT_TRUE(pack());
  const fs::path fleet = dir_ / "fleet";
  const fs::path unpacking = fleet / "bundles" / ".unpacking-other";
  ASSERT_TRUE(publish_file(unpacking / "v1" / "first", "x"));
  // However long ago it began, and whatever clock says so.
  fs::last_write_time(unpacking, fs::file_time_type::clock::now() - std::chrono::hours(48));
  std::optional<KeyLock> other(KeyLock::acquire(fleet, "install", std::chrono::milliseconds(0)));
  ASSERT_TRUE(other->held());
  const InstallOptions impatient{
      .trusted_keys = {}, .allow_unsigned = true, .patience = std::chrono::milliseconds(0)};
  EXPECT_THAT(install("bundle", impatient),
              Fails(ErrorCode::unavailable, HasSubstr("another installation")));
  EXPECT_TRUE(fs::exists(unpacking / "v1" / "first")) << "it is being unpacked";
  other.reset();
  ASSERT_TRUE(install("bundle", impatient));
  EXPECT_FALSE(fs::exists(unpacking)) << "its process is gone";
}

TEST_F(BundleTest, WhatLayInItsPlaceIsNotVouchedFor) {
  const std::string digest = pack("bundle", keys_.secret_key)->digest;
  const fs::path place = dir_ / "fleet" / "bundles" / digest;
  for (const char* planted :
       {"v1/records/sm_90/h200/matmul/m=1-0123456789abcdef/20991120T101112.123456Z-1.kwr",
        "v1/artifacts/00/x", "more"}) {
    ASSERT_TRUE(publish_file(place / planted, "x"));
  }
  const InstallReport report = must(install("bundle", {.trusted_keys = {keys_.public_key}}));
  EXPECT_EQ(report.signer, keys_.public_key);
  EXPECT_EQ(files_below(place, place).files.size(), 4U) << "two files, manifest and signature";
  EXPECT_TRUE(bundle_defects(place).empty());

  fs::remove_all(place);
  fs::create_directory_symlink(dir_ / "cache", place);
  ASSERT_TRUE(install());
  EXPECT_FALSE(fs::is_symlink(place));
  EXPECT_TRUE(fs::exists(dir_ / "cache" / "v1")) << "what the link led to stays";
}

TEST_F(BundleTest, EveryDefectOfAnInstalledBundleIsFound) {
  ASSERT_TRUE(pack("bundle", keys_.secret_key));
  const auto defect = [this](const std::function<void(const fs::path&)>& change) {
    EXPECT_TRUE(install());
    const fs::path place = installed_bundle(dir_ / "fleet");
    EXPECT_TRUE(bundle_defects(place).empty());
    change(place);
    const std::vector<BundleDefect> defects = bundle_defects(place);
    EXPECT_EQ(defects.size(), 1U);
    return defects.empty() ? std::string()
                           : defects[0].path.filename().native() + ": " + defects[0].what;
  };
  const auto artifact = [this](const fs::path& place) {
    return ArtifactStore(place).path(record_.winner.artifact);
  };
  EXPECT_THAT(defect([&](const fs::path& place) { fs::remove(artifact(place)); }),
              HasSubstr("no file"));
  EXPECT_THAT(defect([&](const fs::path& place) {
                std::string bytes = *read_file(artifact(place));
                bytes[200] ^= 1;
                ASSERT_TRUE(publish_file(artifact(place), bytes));
              }),
              HasSubstr("not that of the manifest"));
  EXPECT_THAT(defect([&](const fs::path& place) {
                fs::rename(artifact(place), dir_ / "moved");
                fs::create_symlink(dir_ / "moved", artifact(place));
              }),
              HasSubstr("there is a link in it"));
  EXPECT_THAT(defect([&](const fs::path& place) { ASSERT_TRUE(publish_file(place / "v1/x", "")); }),
              HasSubstr("x: it is not in the bundle's manifest"));
  EXPECT_THAT(defect([&](const fs::path& place) { fs::remove(place / kManifestName); }),
              HasSubstr("manifest.json: no file"));
  EXPECT_THAT(defect([&](const fs::path& place) {
                ASSERT_TRUE(publish_file(place / kManifestName, "{}"));
              }),
              HasSubstr("of another bundle"));
}

TEST_F(BundleTest, AnOlderOneDoesNotReplaceANewerByItself) {
  const auto packed = [this](const std::string& name, std::uint64_t serial) {
    const ExportOptions options{.sku = {}, .secret_key = keys_.secret_key, .serial = serial};
    return export_bundle(cache_, dir_ / name, options).value().digest;
  };
  const std::string older = packed("older", 1764000000);
  const std::string newer = packed("newer", 1764000001);
  const InstallOptions trusting{.trusted_keys = {keys_.public_key}};
  ASSERT_TRUE(install("older", trusting));
  EXPECT_EQ(install("newer", trusting).value().serial, 1764000001U);
  EXPECT_THAT(install("older", trusting),
              Fails(ErrorCode::refused, ::testing::AllOf(HasSubstr("1764000000"),
                                                         HasSubstr("1764000001; --allow-older"))));
  EXPECT_EQ(installed_bundle(dir_ / "fleet").filename(), newer);
  EXPECT_TRUE(install("newer", trusting)) << "again";
  InstallOptions going_back = trusting;
  going_back.allow_older = true;
  ASSERT_TRUE(install("older", going_back));
  EXPECT_EQ(installed_bundle(dir_ / "fleet").filename(), older);

  // The serial of a damaged bundle is not known; installing the same one mends it.
  fs::path manifest = installed_bundle(dir_ / "fleet") / kManifestName;
  ASSERT_TRUE(publish_file(manifest, "{}"));
  EXPECT_THAT(install("newer", trusting).error().message,
              AllOf(HasSubstr("is not known"), HasSubstr("--allow-older")));
  EXPECT_TRUE(install("older", trusting));
  EXPECT_TRUE(install("newer", trusting));
}

TEST_F(BundleTest, TheSignatureIsCheckedBeforeTheManifestIsParsed) {
  TarWriter tar = TarWriter::create(dir_ / "deep").value();
  ASSERT_TRUE(tar.add(kManifestName, std::string(kMostManifestBytes, '[')));
  ASSERT_TRUE(tar.add("v1/x", ""));
  ASSERT_TRUE(tar.finish());
  const InstallOptions trusting{.trusted_keys = {keys_.public_key}};
  EXPECT_THAT(install("deep", trusting).error().message, HasSubstr("is not signed"));
  EXPECT_THAT(install("deep").error().message, HasSubstr("nested deeper than 64"));
  TarWriter large = TarWriter::create(dir_ / "large").value();
  ASSERT_TRUE(large.add(kManifestName, std::string(kMostManifestBytes + 1, ' ')));
  ASSERT_TRUE(large.finish());
  EXPECT_THAT(install("large").error().message, HasSubstr("has more than 8388608 bytes"));
}

TEST_F(BundleTest, OnlyANewOrARegularFileIsWritten) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  ASSERT_TRUE(publish_file(dir_ / "file", "theirs"));
  fs::create_symlink("file", dir_ / "link");
  for (const char* name : {"pipe", "link", "/dev/full"}) {
    EXPECT_THAT(export_bundle(cache_, dir_ / name, {}), Fails(HasSubstr("no regular file")))
        << name;
    EXPECT_FALSE(fs::is_regular_file(fs::symlink_status(dir_ / name))) << name;
  }
  EXPECT_EQ(*read_file(dir_ / "file"), "theirs");
  EXPECT_TRUE(pack("file")) << "a regular one is replaced";
  EXPECT_FALSE(install("pipe")) << "nor is a pipe read";
}

TEST_F(BundleTest, AFolderThatCannotBeReadIsNoReasonForASmallerBundle) {
  const FaultyFiles faulty((dir_ / "cache" / "v1" / "records").native(), FaultyFiles::Call::opendir,
                           EMFILE);
  EXPECT_THAT(pack().error().message, HasSubstr("records"));
}

TEST_F(BundleTest, TrustedKeysAreOneALineInAFileOfOnesOwn) {
  const fs::path file = dir_ / "keys";
  std::ofstream(file) << "# ours\n" << keys_.public_key << "  # 2026\n\n";
  EXPECT_EQ(read_trusted_keys(file).value(), std::vector<std::string>{keys_.public_key});
  fs::permissions(file, fs::perms(0666));
  EXPECT_THAT(read_trusted_keys(file).error().message, HasSubstr("may write"));
  fs::permissions(file, fs::perms(0600));
  std::ofstream(file) << "ours\n";
  EXPECT_THAT(read_trusted_keys(file).error().message, HasSubstr(":1: no key of 64 hex digits"));
  EXPECT_FALSE(read_trusted_keys(dir_ / "none"));
}

TEST_F(BundleTest, NoLineOfAFileOfTrustedKeysIsShown) {
  const fs::path file = dir_ / "fleet.key";
  ASSERT_TRUE(create_file(file, keys_.secret_key + "\n", 0600));
  const std::string message = read_trusted_keys(file).error().message;
  EXPECT_THAT(message, HasSubstr("this is a secret key; the public one is "));
  EXPECT_THAT(message, HasSubstr((dir_ / "fleet.pub").native()));
  for (const std::string& text : std::vector<std::string>{
           keys_.secret_key, keys_.secret_key.substr(0, 100), "password", "-----BEGIN KEY-----"}) {
    ASSERT_TRUE(publish_file(file, text));
    EXPECT_THAT(read_trusted_keys(file).error().message,
                ::testing::Not(HasSubstr(text.substr(0, 8))));
  }
}

TEST(BundleManifestTest, WhatWasWrittenIsRead) {
  const BundleManifest manifest{
      .kernwright = "0.1.0",
      .serial = 0xffffffffffffffff,
      .skus = {"h200"},
      .devices = {"GPU-1"},
      .files = {{"v1/records/sm_90/h200/matmul/m=1-0123456789abcdef/20261120T101112.123456Z-1.kwr",
                 17, std::string(64, 'a')}}};
  const BundleManifest read = must(parse_bundle_manifest(to_json(manifest)));
  EXPECT_EQ(read.files, manifest.files);
  EXPECT_EQ(read.serial, manifest.serial);
  EXPECT_EQ(read.skus, manifest.skus);
  EXPECT_EQ(read.devices, manifest.devices);
}

TEST(BundleManifestTest, SizesBeyondTheLimitsAreRefused) {
  BundleManifest manifest;
  const auto add = [&manifest](int number, std::uint64_t bytes) {
    manifest.files.push_back(
        {concat("v1/records/sm_90/h200/matmul/x/", number, ".kwr"), bytes, std::string(64, 'a')});
  };
  add(10, kMostFileBytes + 1);
  EXPECT_FALSE(parse_bundle_manifest(to_json(manifest)));
  manifest.files.clear();
  for (int i = 10; i < 27; ++i) add(i, kMostFileBytes);
  EXPECT_FALSE(parse_bundle_manifest(to_json(manifest)));
  manifest.files.pop_back();
  EXPECT_TRUE(parse_bundle_manifest(to_json(manifest)));
  std::swap(manifest.files[0], manifest.files[1]);
  EXPECT_FALSE(parse_bundle_manifest(to_json(manifest))) << "not sorted";
}

}  // namespace
}  // namespace kernwright
