// Fuzzes cache files, which may be damaged or malicious: the frame, the record with its head, the
// family, the decision and the artifact.
//
// Nearly every mutation fails at the digest of the frame, so the parsers of payloads also get the
// input directly.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cache/entries/entry_file.h"
#include "cache/records/family_record.h"
#include "cache/records/override.h"
#include "cache/records/record.h"
#include "cache/records/record_head.h"
#include "cache/records/trial_table.h"
#include "cache/stores/artifact_store.h"

using namespace kernwright;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_record(std::string_view text) {
  const Result<TuningRecord> record = parse_record(text);
  if (!record) return;
  const std::string written = to_json(*record);
  const Result<TuningRecord> again = parse_record(written);
  require(again && to_json(*again) == written);
}

void check_head(std::string_view bytes) {
  const Result<RecordHead> head = decode_head(bytes);
  if (!head) return;
  const std::string written = encode_head(*head);
  const Result<RecordHead> again = decode_head(written);
  require(again && encode_head(*again) == written);
}

void check_override(std::string_view text) {
  const Result<Override> read = parse_override(text);
  if (!read) return;
  const std::string written = to_json(*read);
  const Result<Override> again = parse_override(written);
  require(again && to_json(*again) == written);
}

void check_trials(std::string_view text) {
  const Result<TrialTable> read = parse_trial_table(text);
  if (!read) return;
  const std::string written = to_json(*read);
  const Result<TrialTable> again = parse_trial_table(written);
  require(again && to_json(*again) == written);
}

void check_family(std::string_view text) {
  const Result<FamilyRecord> read = parse_family(text);
  if (read) {
    const std::string written = to_json(*read);
    const Result<FamilyRecord> again = parse_family(written);
    require(again && to_json(*again) == written);
  }
  const Result<FamilyHead> head = parse_family_head(text);
  require(head || !read);
  if (head) require(to_json(*parse_family_head(to_json(*head))) == to_json(*head));
}

void check_artifact(std::string_view payload) {
  const Result<CompiledKernel> kernel = decode_artifact(payload);
  if (!kernel) return;
  const std::string written = encode_artifact(*kernel);
  const Result<CompiledKernel> again = decode_artifact(written);
  require(again && encode_artifact(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const char* kind : {"record", "trials", "family", "override", "artifact"}) {
    if (const Lookup<EntryFile> entry = decode_entry(input, kind)) {
      require(encode_entry(*entry.value) == input);
      check_record(entry.value->payload);
      check_record(entry.value->body);
      check_head(entry.value->payload);
      check_override(entry.value->payload);
      check_trials(entry.value->payload);
      check_family(entry.value->payload);
      check_family(entry.value->body);
      check_artifact(entry.value->payload);
    }
    const std::string key(input.substr(0, size / 2));
    const std::string payload(input.substr(size / 2));
    for (const std::string& body : {std::string(), payload}) {
      const Lookup<EntryFile> entry = decode_entry(encode_entry({kind, key, payload, body}), kind);
      require(entry && entry.value->key == key && entry.value->payload == payload &&
              entry.value->body == body);
    }
  }
  check_record(input);
  check_head(input);
  check_override(input);
  check_trials(input);
  check_family(input);
  check_artifact(input);
  return 0;
}
