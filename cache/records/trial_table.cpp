#include "cache/records/trial_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr int kTrialDigits = 4;
/// Dates have milliseconds, since a trial takes that long.
constexpr double kTicksPerSecond = 1000;

double to_ticks(double seconds) { return std::round(seconds * kTicksPerSecond) / kTicksPerSecond; }

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The digits that tell `count` values apart.
std::size_t width_of(std::size_t count) {
  std::size_t width = 1;
  for (std::size_t most = kDigits.size(); most < count; most *= kDigits.size()) ++width;
  return width;
}

using Places = std::vector<std::size_t>;

/// Writes places among `count` values as one text, in which each has the same width.
void describe_places(FieldWriter& json, std::string_view name, const Places& places,
                     std::size_t count) {
  const std::size_t width = width_of(count);
  std::string text(places.size() * width, kDigits[0]);
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::size_t place = places[i];
    for (std::size_t digit = width; digit-- > 0; place /= kDigits.size()) {
      text[i * width + digit] = kDigits[place % kDigits.size()];
    }
  }
  json.field(name, text);
}

void describe_places(FieldReader& fields, std::string_view name, Places& places,
                     std::size_t count) {
  std::string text;
  fields.field(name, text);
  const std::size_t width = width_of(count);
  if (text.size() % width != 0) return fields.fail(name, "it ends within a place");
  for (std::size_t i = 0; i < text.size(); i += width) {
    const std::string digits = text.substr(i, width);
    std::size_t place = 0;
    for (const char c : digits) place = place * kDigits.size() + kDigits.find(c);
    if (digits.find_first_not_of(kDigits) != std::string::npos || place >= count) {
      return fields.fail(name, concat("no value at place ", digits));
    }
    places.push_back(place);
  }
}

/// A column of a table whose values repeat: each value once, and for each row its place among them.
template <typename Value>
struct Column {
  std::vector<Value> values;
  Places places;

  void add(const Value& value) {
    const auto found = std::find(values.begin(), values.end(), value);
    places.push_back(static_cast<std::size_t>(found - values.begin()));
    if (found == values.end()) values.push_back(value);
  }
  const Value& at(std::size_t row) const { return values[places[row]]; }
};

void describe(auto& visitor, MaybeConst<Column<std::string>, Column<std::int64_t>> auto& column) {
  visitor.field("values", column.values);
  describe_places(visitor, "places", column.places, column.values.size());
}

struct NamedColumn {
  std::string name;
  Column<std::int64_t> column;
};

void describe(auto& visitor, MaybeConst<NamedColumn> auto& parameter) {
  visitor.field("name", parameter.name);
  describe(visitor, parameter.column);
}

/// A template with its parameters, each as a column over the template's own trials.
struct Form {
  std::string kernel_template;
  std::vector<NamedColumn> parameters;

  bool fits(const Choice& choice) const {
    return kernel_template == choice.kernel_template &&
           std::equal(parameters.begin(), parameters.end(), choice.configuration.values().begin(),
                      choice.configuration.values().end(),
                      [](const NamedColumn& parameter, const auto& value) {
                        return parameter.name == value.first;
                      });
  }
};

void describe(auto& visitor, MaybeConst<Form> auto& form) {
  visitor.field("template", form.kernel_template);
  visitor.field("parameters", form.parameters);
}

/// The fields of the rows, one by one.
struct Columns {
  std::vector<Form> forms;
  Places form;  ///< the place of each row's template in `forms`
  Column<std::string> outcome;
  Column<std::string> detail;
  Column<std::int64_t> samples;
  Column<std::int64_t> registers;
  Column<std::int64_t> spill_bytes;
  std::vector<double> us;
  std::vector<double> predicted_us;
  std::vector<double> at_seconds;

  Result<std::vector<TrialRow>> rows() const;
};

void describe(auto& visitor, MaybeConst<Columns> auto& columns) {
  visitor.field("templates", columns.forms);
  describe_places(visitor, "template", columns.form, columns.forms.size());
  visitor.field("outcome", columns.outcome);
  visitor.field("detail", columns.detail);
  visitor.field("samples", columns.samples);
  visitor.field("registers", columns.registers);
  visitor.field("spill_bytes", columns.spill_bytes);
  visitor.field("us", columns.us);
  visitor.field("predicted_us", columns.predicted_us);
  visitor.field("at_seconds", columns.at_seconds);
}

void describe_seconds(auto& visitor, MaybeConst<TrialTable> auto& table) {
  visitor.field("finals_seconds", table.finals_seconds);
  visitor.field("wall_seconds", table.wall_seconds);
}

Columns columns_of(const std::vector<TrialRow>& rows) {
  Columns columns;
  for (const TrialRow& row : rows) {
    auto form = std::find_if(columns.forms.begin(), columns.forms.end(),
                             [&](const Form& one) { return one.fits(row.choice); });
    if (form == columns.forms.end()) {
      columns.forms.push_back({row.choice.kernel_template, {}});
      form = std::prev(columns.forms.end());
      for (const auto& [name, value] : row.choice.configuration.values()) {
        form->parameters.push_back({name, {}});
      }
    }
    columns.form.push_back(static_cast<std::size_t>(form - columns.forms.begin()));
    for (std::size_t i = 0; i < form->parameters.size(); ++i) {
      form->parameters[i].column.add(row.choice.configuration.values()[i].second);
    }
    columns.outcome.add(std::string(to_string(row.outcome)));
    columns.detail.add(row.detail);
    columns.samples.add(row.samples);
    columns.registers.add(row.registers);
    columns.spill_bytes.add(row.spill_bytes);
    columns.us.push_back(row.us);
    columns.predicted_us.push_back(row.predicted_us);
    columns.at_seconds.push_back(row.at_seconds);
  }
  return columns;
}

Result<std::vector<TrialRow>> Columns::rows() const {
  const auto fail = [](std::string_view what) {
    return Error{ErrorCode::corrupt, concat("trials: ", what)};
  };
  const std::size_t count = form.size();
  for (const std::size_t size :
       {outcome.places.size(), detail.places.size(), samples.places.size(), registers.places.size(),
        spill_bytes.places.size(), us.size(), predicted_us.size(), at_seconds.size()}) {
    if (size != count) return fail(concat("a column has ", size, " rows, another ", count));
  }
  std::vector<std::size_t> used(forms.size(), 0);  // rows of each form so far
  std::vector<TrialRow> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<Outcome> ended = parse_as<Outcome>(outcome.at(i));
    if (!ended) return fail(concat("unknown outcome \"", outcome.at(i), '"'));
    const Form& of = forms[form[i]];
    const std::size_t own = used[form[i]]++;
    std::vector<std::pair<std::string, std::int64_t>> configuration;
    for (const auto& [name, column] : of.parameters) {
      if (own >= column.places.size()) {
        return fail(concat(of.kernel_template, " has too few values of ", name));
      }
      configuration.emplace_back(name, column.at(own));
    }
    const auto number = [](std::int64_t value) { return static_cast<int>(value); };
    rows.push_back({.choice = {of.kernel_template, Configuration(std::move(configuration))},
                    .outcome = *ended,
                    .detail = detail.at(i),
                    .us = us[i],
                    .samples = number(samples.at(i)),
                    .predicted_us = predicted_us[i],
                    .at_seconds = at_seconds[i],
                    .registers = number(registers.at(i)),
                    .spill_bytes = number(spill_bytes.at(i))});
  }
  return rows;
}

}  // namespace

TrialTable trial_table(std::span<const Trial> trials, double finals_seconds, double wall_seconds) {
  TrialTable table{.finals_seconds = to_ticks(finals_seconds),
                   .wall_seconds = to_ticks(wall_seconds),
                   .rows = {}};
  for (const Trial& trial : trials) {
    const bool timed = !trial.measurement.samples_us.empty();
    table.rows.push_back({.choice = trial.choice,
                          .outcome = trial.outcome,
                          .detail = trial.detail.substr(0, kLongestDetail),
                          .us = timed ? rounded(trial.measurement.median_us(), kTrialDigits) : 0,
                          .samples = static_cast<int>(trial.measurement.samples_us.size()),
                          .predicted_us = rounded(trial.predicted_us, kTrialDigits),
                          .at_seconds = to_ticks(trial.at_seconds),
                          .registers = trial.resources.registers,
                          .spill_bytes = trial.resources.spill_bytes()});
  }
  return table;
}

std::string to_json(const TrialTable& table) {
  FieldWriter json;
  describe_seconds(json, table);
  const Columns columns = columns_of(table.rows);
  describe(json, columns);
  return json.text();
}

Result<TrialTable> parse_trial_table(std::string_view json) {
  TrialTable table;
  Columns columns;
  KW_TRY(parse_fields(json, "trials", [&](FieldReader& fields) {
    describe_seconds(fields, table);
    describe(fields, columns);
  }));
  KW_ASSIGN(table.rows, columns.rows());
  return table;
}

}  // namespace kernwright
