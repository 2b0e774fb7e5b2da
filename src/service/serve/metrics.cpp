#include "service/serve/metrics.h"

#include <string_view>

#include "support/text.h"

namespace kernwright {
namespace {

/// Writes families of samples. Names, help and label values have no characters that must be
/// escaped: all are the library's own words.
class Exposition {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += concat("# HELP ", name, ' ', help, "\n# TYPE ", name, ' ', type, '\n');
  }
  /// `labels` are "" or "{name="value",...}".
  template <typename Value>
  void add(std::string_view labels, const Value& value) {
    text_ += concat(name_, labels, ' ', value, '\n');
  }
  template <typename Value>
  void counter(std::string_view name, std::string_view help, const Value& value) {
    begin(name, "counter", help);
    add("", value);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string_view name_;
  std::string text_;
};

}  // namespace

std::string to_prometheus(const Metrics& metrics) {
  Exposition out;
  out.begin("kernwright_ready", "gauge", "1 once the service is sealed, before that 0.");
  out.add("", metrics.ready ? 1 : 0);

  out.begin("kernwright_records_info", "gauge",
            "The SKU that records are looked up for, and the digest of each installed bundle, none "
            "where there is none.");
  for (const std::string& bundle :
       metrics.bundles.empty() ? std::vector<std::string>{"none"} : metrics.bundles) {
    out.add(concat("{bundle=\"", bundle, "\",sku=\"", metrics.sku, "\"}"), 1);
  }

  out.begin("kernwright_lookups_total", "counter",
            "Problems that were looked up, by the match of what the cache had, none where it had "
            "nothing, and the reason. A problem that is in memory is not looked up again.");
  for (const auto& [match, reason, count] : metrics.lookups) {
    out.add(concat("{match=\"", to_string(match), "\",reason=\"", to_string(reason), "\"}"), count);
  }

  out.counter("kernwright_compiles_total", "Compiles that have ended.", metrics.compiles);
  out.counter("kernwright_compile_seconds_total",
              "Seconds of all compiles, those that ran at the same time each counted.",
              fixed(metrics.compile_seconds, 6));
  out.counter("kernwright_compiles_after_ready_total",
              "Requests that needed a compile after the service was sealed, refused or warned of.",
              metrics.compiles_after_ready);
  out.counter("kernwright_loaded_kernels_total", "Kernels that were loaded.",
              metrics.loaded_kernels);
  out.counter("kernwright_loaded_bytes_total", "Bytes of the code of kernels that were loaded.",
              metrics.loaded_bytes);
  return std::move(out).text();
}

}  // namespace kernwright
