#include "cache/fields/counter_fields.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

void write_kernel(FieldWriter& json, const CountedKernel& kernel) {
  json.write("kernel", kernel.name);
  json.write("grid", std::vector<std::int64_t>(kernel.grid.begin(), kernel.grid.end()));
  json.object("values", [&] {
    for (const CounterValue& value : kernel.values) {
      if (value.value) {
        json.write(value.name, *value.value);
      } else {
        json.write(value.name, nullptr);
      }
    }
  });
  json.object("reasons", [&] {
    for (const CounterValue& value : kernel.values) {
      if (!value.reason.empty()) json.write(value.name, value.reason);
    }
  });
}

void read_kernel(FieldReader& fields, CountedKernel& kernel) {
  fields.read("kernel", kernel.name);
  std::vector<int> grid;
  fields.read("grid", grid);
  if (grid.size() == kernel.grid.size() && std::ranges::all_of(grid, [](int n) { return n > 0; })) {
    std::ranges::copy(grid, kernel.grid.begin());
  } else {
    fields.fail("grid", "three numbers above 0 expected");
  }
  fields.object("values", [&](FieldReader& values) {
    for (const Counter& counter : counters()) {
      if (!values.contains(counter.name)) continue;
      CounterValue& value = kernel.values.emplace_back(std::string(counter.name), std::nullopt);
      if (values.has(counter.name)) values.read(counter.name, value.value.emplace());
    }
  });
  fields.object("reasons", [&](FieldReader& reasons) {
    for (CounterValue& value : kernel.values) reasons.read_newer(value.name, value.reason);
  });
}

/// Reads a text field by `parse`.
template <typename T, typename Parse>
void read_named(FieldReader& fields, std::string_view name, T& out, const Parse& parse) {
  std::string text;
  fields.read(name, text);
  if (const auto value = parse(text)) {
    out = *value;
  } else {
    fields.fail(name, concat('"', text, "\" is none of its values"));
  }
}

}  // namespace

void write_counters(FieldWriter& json, const std::vector<CounterSet>& sets) {
  json.each_object("counters", sets, [&](const CounterSet& set) {
    json.write("template", set.choice.kernel_template);
    json.write("configuration", set.choice.configuration);
    json.write("source", to_string(set.source));
    json.write("version", set.version);
    json.write("mode", to_string(set.mode));
    json.write("cache", to_string(set.cache));
    json.write("passes", set.passes);
    if (const std::optional<double> us = set.time_us()) {
      json.write("time_us", *us);
    } else {
      json.write("time_us", nullptr);
    }
    json.each_object("kernels", set.kernels,
                     [&](const CountedKernel& kernel) { write_kernel(json, kernel); });
  });
}

void read_counters(FieldReader& fields, std::vector<CounterSet>& sets) {
  fields.each_object("counters", [&](FieldReader& nested) {
    CounterSet& set = sets.emplace_back();
    nested.read("template", set.choice.kernel_template);
    nested.read("configuration", set.choice.configuration);
    read_named(nested, "source", set.source, parse_counter_source);
    nested.read("version", set.version);
    read_named(nested, "mode", set.mode, parse_counter_mode);
    read_named(nested, "cache", set.cache, parse_l2_state);
    nested.read("passes", set.passes);
    if (nested.has("time_us")) {
      double of_kernels = 0;  // it follows from the kernels
      nested.read("time_us", of_kernels);
    }
    nested.each_object(
        "kernels", [&](FieldReader& kernel) { read_kernel(kernel, set.kernels.emplace_back()); });
  });
}

}  // namespace kernwright
