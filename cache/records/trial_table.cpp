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
/// Of dates: a trial takes milliseconds.
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

/// A column of a table whose values repeat: each value once, and for each row its place among them.
template <typename Value>
struct Column {
  std::vector<Value> values;
  std::vector<std::size_t> places;

  std::size_t add(const Value& value) {
    const auto found = std::find(values.begin(), values.end(), value);
    const auto place = static_cast<std::size_t>(found - values.begin());
    if (found == values.end()) values.push_back(value);
    places.push_back(place);
    return place;
  }
  const Value& at(std::size_t row) const { return values[places[row]]; }
};

/// The places of a column as text, each of the same width.
template <typename Value>
std::string places_text(const Column<Value>& column) {
  const std::size_t width = width_of(column.values.size());
  std::string text(column.places.size() * width, kDigits[0]);
  for (std::size_t i = 0; i < column.places.size(); ++i) {
    std::size_t place = column.places[i];
    for (std::size_t digit = width; digit-- > 0; place /= kDigits.size()) {
      text[i * width + digit] = kDigits[place % kDigits.size()];
    }
  }
  return text;
}

template <typename Value>
void write_column(FieldWriter& json, const Column<Value>& column) {
  json.write("values", column.values);
  json.write("places", places_text(column));
}

/// Reads the places of a column whose values are known.
template <typename Value>
void read_places(FieldReader& fields, std::string_view name, Column<Value>& column) {
  std::string text;
  fields.read(name, text);
  const std::size_t width = width_of(column.values.size());
  if (text.size() % width != 0) return fields.fail(name, "it ends within a place");
  for (std::size_t i = 0; i < text.size(); i += width) {
    const std::string digits = text.substr(i, width);
    std::size_t place = 0;
    for (const char c : digits) place = place * kDigits.size() + kDigits.find(c);
    if (digits.find_first_not_of(kDigits) != std::string::npos || place >= column.values.size()) {
      return fields.fail(name, concat("no value at place ", digits));
    }
    column.places.push_back(place);
  }
}

template <typename Value>
void read_column(FieldReader& fields, Column<Value>& column) {
  fields.read("values", column.values);
  read_places(fields, "places", column);
}

/// A template with the names of its parameters, and a column for each over its own trials.
struct Form {
  std::string kernel_template;
  std::vector<std::string> names;
  std::vector<Column<std::int64_t>> parameters;

  bool fits(const Choice& choice) const {
    return kernel_template == choice.kernel_template &&
           std::equal(
               names.begin(), names.end(), choice.configuration.values().begin(),
               choice.configuration.values().end(),
               [](const std::string& name, const auto& value) { return name == value.first; });
  }
};

/// The fields of the rows, one by one.
struct Columns {
  std::vector<Form> forms;
  Column<std::size_t> form;  ///< its values are the places in `forms`
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

Columns columns_of(const std::vector<TrialRow>& rows) {
  Columns columns;
  for (const TrialRow& row : rows) {
    auto form = std::find_if(columns.forms.begin(), columns.forms.end(),
                             [&](const Form& one) { return one.fits(row.choice); });
    if (form == columns.forms.end()) {
      columns.form.values.push_back(columns.forms.size());
      columns.forms.push_back({row.choice.kernel_template, {}, {}});
      form = std::prev(columns.forms.end());
      for (const auto& [name, value] : row.choice.configuration.values()) {
        form->names.push_back(name);
      }
      form->parameters.resize(form->names.size());
    }
    columns.form.places.push_back(static_cast<std::size_t>(form - columns.forms.begin()));
    for (std::size_t i = 0; i < form->parameters.size(); ++i) {
      form->parameters[i].add(row.choice.configuration.values()[i].second);
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
  const std::size_t count = form.places.size();
  for (const std::size_t size :
       {outcome.places.size(), detail.places.size(), samples.places.size(), registers.places.size(),
        spill_bytes.places.size(), us.size(), predicted_us.size(), at_seconds.size()}) {
    if (size != count) return fail(concat("a column has ", size, " rows, another ", count));
  }
  std::vector<std::size_t> used(forms.size(), 0);  // rows of each form so far
  std::vector<TrialRow> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<Outcome> ended = parse_outcome(outcome.at(i));
    if (!ended) return fail(concat("unknown outcome \"", outcome.at(i), '"'));
    const Form& of = forms[form.at(i)];
    const std::size_t own = used[form.at(i)]++;
    std::vector<std::pair<std::string, std::int64_t>> configuration;
    for (std::size_t p = 0; p < of.names.size(); ++p) {
      if (own >= of.parameters[p].places.size()) {
        return fail(concat(of.kernel_template, " has too few values of ", of.names[p]));
      }
      configuration.emplace_back(of.names[p], of.parameters[p].at(own));
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

void read_form(FieldReader& fields, Form& form) {
  fields.read("template", form.kernel_template);
  fields.each_object("parameters", [&](FieldReader& parameter) {
    parameter.read("name", form.names.emplace_back());
    read_column(parameter, form.parameters.emplace_back());
  });
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
  const Columns columns = columns_of(table.rows);
  FieldWriter json;
  json.write("finals_seconds", table.finals_seconds);
  json.write("wall_seconds", table.wall_seconds);
  json.each_object("templates", columns.forms, [&](const Form& form) {
    json.write("template", form.kernel_template);
    std::size_t next = 0;
    json.each_object("parameters", form.parameters, [&](const Column<std::int64_t>& column) {
      json.write("name", form.names[next++]);
      write_column(json, column);
    });
  });
  json.write("template", places_text(columns.form));
  json.object("outcome", [&] { write_column(json, columns.outcome); });
  json.object("detail", [&] { write_column(json, columns.detail); });
  json.object("samples", [&] { write_column(json, columns.samples); });
  json.object("registers", [&] { write_column(json, columns.registers); });
  json.object("spill_bytes", [&] { write_column(json, columns.spill_bytes); });
  json.write("us", columns.us);
  json.write("predicted_us", columns.predicted_us);
  json.write("at_seconds", columns.at_seconds);
  return json.text();
}

Result<TrialTable> parse_trial_table(std::string_view json) {
  TrialTable table;
  Columns columns;
  KW_TRY(parse_fields(json, "trials", [&](FieldReader& fields) {
    fields.read("finals_seconds", table.finals_seconds);
    fields.read("wall_seconds", table.wall_seconds);
    fields.each_object("templates", [&](FieldReader& nested) {
      columns.form.values.push_back(columns.forms.size());
      read_form(nested, columns.forms.emplace_back());
    });
    read_places(fields, "template", columns.form);
    const auto read = [&fields](std::string_view name, auto& column) {
      fields.object(name, [&](FieldReader& nested) { read_column(nested, column); });
    };
    read("outcome", columns.outcome);
    read("detail", columns.detail);
    read("samples", columns.samples);
    read("registers", columns.registers);
    read("spill_bytes", columns.spill_bytes);
    fields.read("us", columns.us);
    fields.read("predicted_us", columns.predicted_us);
    fields.read("at_seconds", columns.at_seconds);
  }));
  KW_ASSIGN(table.rows, columns.rows());
  return table;
}

}  // namespace kernwright
