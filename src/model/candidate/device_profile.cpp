#include "model/candidate/device_profile.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/expression/json_reader.h"
#include "model/files/embedded_files.h"
#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using detail::Diagnostics;
using detail::JsonReader;

constexpr std::string_view kFieldNames[] = {
    "sm_count",    "sms_for_fours",    "sms_for_eights",     "smem_per_block_optin",
    "smem_per_sm", "registers_per_sm", "max_threads_per_sm", "l2_bytes",
    "sm_arch"};

/// Reads the number of a profile's field; beside it the file must name the source.
JsonReader read_figure(const JsonReader& profile, std::string_view name) {
  const JsonReader figure = profile.required(name);
  figure.expect_keys({"value", "source"});
  if (figure.present() && figure.required("source").string().empty()) {
    figure.fail("a figure needs its source");
  }
  const JsonReader value = figure.required("value");
  if (value.present() && value.number() <= 0) {
    value.fail(concat(value.number(), " is not positive"));
  }
  return value;
}

DeviceRates read_rates(const JsonReader& json) {
  constexpr std::pair<std::string_view, double DeviceRates::*> kRates[] = {
      {"launch_us", &DeviceRates::launch_us},
      {"further_launch_us", &DeviceRates::further_launch_us},
      {"early_start_us", &DeviceRates::early_start_us},
      {"load_latency_clocks", &DeviceRates::load_latency_clocks},
      {"l2_bytes_per_clock", &DeviceRates::l2_bytes_per_clock},
      {"read_share", &DeviceRates::read_share},
      {"write_loss", &DeviceRates::write_loss},
      {"mma_sync_share", &DeviceRates::mma_sync_share},
      {"sustained_share", &DeviceRates::sustained_share},
      {"flops_per_moved_byte", &DeviceRates::flops_per_moved_byte},
      {"flops_per_dram_byte", &DeviceRates::flops_per_dram_byte}};
  DeviceRates rates;
  for (const auto& [name, rate] : kRates) rates.*rate = read_figure(json, name).number();
  for (const auto& [name, entry] : json.members()) {
    if (std::none_of(std::begin(kRates), std::end(kRates),
                     [&, &given = name](const auto& rate) { return rate.first == given; })) {
      entry.fail("no such rate");
    }
  }
  return rates;
}

DeviceProfile read_profile(const JsonReader& json) {
  json.expect_keys({"id", "name", "sm_arch", "sm_count", "smem_per_block_optin", "smem_per_sm",
                    "registers_per_sm", "max_threads_per_sm", "max_blocks_per_sm", "l2_bytes",
                    "memory_bytes", "dram_gbps", "sm_clock_mhz", "dense_16bit_tflops",
                    "fp32_tflops", "graph_node_us", "stream_launch_us", "rates"});
  DeviceProfile profile;
  profile.id = json.required("id").value_name();
  profile.name = json.required("name").string();
  profile.sm_arch = static_cast<int>(read_figure(json, "sm_arch").integer());
  profile.sm_count = read_figure(json, "sm_count").integer();
  profile.smem_per_block_optin = read_figure(json, "smem_per_block_optin").integer();
  profile.smem_per_sm = read_figure(json, "smem_per_sm").integer();
  profile.registers_per_sm = read_figure(json, "registers_per_sm").integer();
  profile.max_threads_per_sm = read_figure(json, "max_threads_per_sm").integer();
  profile.max_blocks_per_sm = read_figure(json, "max_blocks_per_sm").integer();
  profile.l2_bytes = read_figure(json, "l2_bytes").integer();
  profile.memory_bytes = read_figure(json, "memory_bytes").integer();
  profile.dram_gbps = read_figure(json, "dram_gbps").number();
  profile.sm_clock_mhz = read_figure(json, "sm_clock_mhz").number();
  profile.dense_16bit_tflops = read_figure(json, "dense_16bit_tflops").number();
  profile.fp32_tflops = read_figure(json, "fp32_tflops").number();
  if (json.optional("graph_node_us").present()) {
    profile.graph_node_us = read_figure(json, "graph_node_us").number();
  }
  if (json.optional("stream_launch_us").present()) {
    profile.stream_launch_us = read_figure(json, "stream_launch_us").number();
  }
  profile.rates = read_rates(json.required("rates"));
  return profile;
}

/// Returns the words of a driver's name: "NVIDIA A100-SXM4-40GB" has four.
std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (const std::string_view part : split(name, ' ')) {
    for (const std::string_view word : split(part, '-')) {
      if (!word.empty()) words.push_back(word);
    }
  }
  return words;
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Returns the word that names the chip, such as "H100" or "4090": the first one with a digit.
std::string_view model_word(const std::vector<std::string_view>& words) {
  const auto found = std::find_if(words.begin(), words.end(), [](std::string_view word) {
    return word.find_first_of("0123456789") != std::string_view::npos;
  });
  return found == words.end() ? std::string_view() : *found;
}

/// Words in the names of products that have the same chip with other clocks and power limits.
constexpr std::string_view kVariants[] = {"NVL", "PCIe",  "PCIE", "Laptop",
                                          "Ti",  "SUPER", "D",    "MIG"};

/// Returns a name in lower case, without the maker's and the family's names and without marks
/// between words.
std::string letters_and_digits(std::string_view name) {
  std::string kept;
  for (const char c : lower_case(name)) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) kept += c;
  }
  for (const std::string_view general : {"nvidia", "geforce"}) {
    if (kept.starts_with(general)) kept.erase(0, general.size());
  }
  return kept;
}

/// Returns the number of words that the names have in common; negative if the device is another
/// product.
int name_fit(const DeviceProfile& profile, const DeviceProfile& measured) {
  const auto ours = words_of(profile.name);
  const auto theirs = words_of(measured.name);
  if (model_word(ours) != model_word(theirs)) return -1;
  for (const std::string_view variant : kVariants) {
    if (contains(ours, variant) != contains(theirs, variant)) return -1;
  }
  return static_cast<int>(std::count_if(
      ours.begin(), ours.end(), [&](std::string_view word) { return contains(theirs, word); }));
}

/// Returns whether two sizes are of one memory class. The driver reports a little less than the
/// product has.
bool same_memory_class(std::int64_t a, std::int64_t b) {
  const auto [low, high] = std::minmax(a, b);
  return static_cast<double>(low) > 0.88 * static_cast<double>(high);
}

/// Makes an id: "NVIDIA H100 NVL" with 132 SMs is "h100_nvl_132sm".
std::string id_from_name(const DeviceProfile& measured) {
  std::string_view name = measured.name;
  if (name.starts_with("NVIDIA ")) name.remove_prefix(7);
  std::string id;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool word = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (word) {
      id += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!id.empty() && id.back() != '_') {
      id += '_';
    }
  }
  return concat(id, id.empty() || id.back() == '_' ? "" : "_", measured.sm_count, "sm");
}

template <typename T>
void keep_measured(T& ours, T measured) {
  if (measured > 0) ours = measured;
}

}  // namespace

std::int64_t DeviceProfile::sms_for_clusters(std::int64_t blocks) const {
  if (blocks <= 2) return sm_count;
  return sm_count * (blocks <= 4 ? 30 : 28) / 33;
}

void DeviceProfile::add_to(Scope& scope) const {
  const std::int64_t values[] = {
      sm_count,    sms_for_clusters(4), sms_for_clusters(8), smem_per_block_optin,
      smem_per_sm, registers_per_sm,    max_threads_per_sm,  l2_bytes,
      sm_arch};
  static_assert(std::size(values) == std::size(kFieldNames));
  for (std::size_t i = 0; i < std::size(values); ++i) {
    scope.set(kFieldNames[i], values[i]);
  }
}

std::span<const std::string_view> device_field_names() { return kFieldNames; }

Result<DeviceProfile> parse_profile(std::string_view text, std::string_view file) {
  KW_ASSIGN(const JsonNode root, parse_json(text, file));
  Diagnostics diagnostics(file);
  DeviceProfile profile = read_profile(JsonReader(root, diagnostics));
  if (!diagnostics.ok()) return diagnostics.error();
  return profile;
}

const std::vector<DeviceProfile>& built_in_profiles() {
  // A profile that does not parse is left out. The tests, which parse each file, fail for it.
  static const auto& profiles = *new std::vector<DeviceProfile>([] {
    std::vector<DeviceProfile> parsed;
    for (const EmbeddedFile& file : embedded_profiles()) {
      if (Result<DeviceProfile> profile = parse_profile(file.content, file.path)) {
        parsed.push_back(*std::move(profile));
      }
    }
    return parsed;
  }());
  return profiles;
}

// Finds a profile by its id in any case and with any marks between its words, or by the driver's
// name. h100 means h100_sxm.
Result<DeviceProfile> find_profile(std::string_view id) {
  std::string wanted = letters_and_digits(id);
  if (wanted == "h100") wanted = letters_and_digits("h100_sxm");
  std::vector<std::string> ids;
  std::string known;
  for (const DeviceProfile& profile : built_in_profiles()) {
    if (letters_and_digits(profile.id) == wanted || letters_and_digits(profile.name) == wanted) {
      return profile;
    }
    ids.push_back(profile.id);
    known += concat(known.empty() ? "" : ", ", profile.id);
  }
  return Error{ErrorCode::not_found, concat("no device profile \"", id, "\"", did_you_mean(id, ids),
                                            ", there are ", known)};
}

DeviceProfile identify_profile(const DeviceProfile& measured) {
  const DeviceProfile* best = nullptr;
  int best_fit = -1;
  for (const DeviceProfile& profile : built_in_profiles()) {
    if (profile.sm_arch != measured.sm_arch || profile.sm_count != measured.sm_count ||
        !same_memory_class(profile.memory_bytes, measured.memory_bytes)) {
      continue;
    }
    if (const int fit = name_fit(profile, measured); fit > best_fit) {
      best = &profile;
      best_fit = fit;
    }
  }
  if (!best) {
    DeviceProfile unknown = measured;
    unknown.id = id_from_name(measured);
    if (const auto h200 = find_profile("h200")) unknown.rates = h200->rates;
    return unknown;
  }
  // Bandwidth and peak rates stay as in the datasheet, because drivers only report clocks.
  DeviceProfile profile = *best;
  profile.name = measured.name;
  keep_measured(profile.smem_per_block_optin, measured.smem_per_block_optin);
  keep_measured(profile.smem_per_sm, measured.smem_per_sm);
  keep_measured(profile.registers_per_sm, measured.registers_per_sm);
  keep_measured(profile.max_threads_per_sm, measured.max_threads_per_sm);
  keep_measured(profile.max_blocks_per_sm, measured.max_blocks_per_sm);
  keep_measured(profile.l2_bytes, measured.l2_bytes);
  keep_measured(profile.memory_bytes, measured.memory_bytes);
  keep_measured(profile.sm_clock_mhz, measured.sm_clock_mhz);
  return profile;
}

}  // namespace kernwright
