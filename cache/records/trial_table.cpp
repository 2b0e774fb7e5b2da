#include "cache/records/trial_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr int kTrialDigits = 5;

/// The names of a configuration's parameters, in its order.
std::vector<std::string> names_of(const Configuration& configuration) {
  std::vector<std::string> names;
  for (const auto& [name, value] : configuration.values()) names.push_back(name);
  return names;
}

/// A template with the parameters of a configuration.
struct Form {
  std::string kernel_template;
  std::vector<std::string> parameters;

  friend bool operator==(const Form&, const Form&) = default;
};

/// The place of `value` in `values`, where it is put if it is not there.
template <typename T>
int place_of(std::vector<T>& values, const T& value) {
  const auto found = std::find(values.begin(), values.end(), value);
  const auto place = found - values.begin();
  if (found == values.end()) values.push_back(value);
  return static_cast<int>(place);
}

/// The fields of the rows, one by one.
struct Columns {
  std::vector<Form> forms;
  std::vector<std::string> outcomes;
  std::vector<std::string> details;
  std::vector<int> form;             ///< into `forms`
  std::vector<std::int64_t> values;  ///< of all configurations, one after another
  std::vector<int> outcome;          ///< into `outcomes`
  std::vector<int> detail;           ///< into `details`
  std::vector<double> us;
  std::vector<int> samples;
  std::vector<double> predicted_us;
  std::vector<double> at_seconds;
  std::vector<int> registers;
  std::vector<int> spill_bytes;

  Result<std::vector<TrialRow>> rows() const;
};

Result<std::vector<TrialRow>> Columns::rows() const {
  const auto fail = [](std::string_view what) {
    return Error{ErrorCode::corrupt, concat("trials: ", what)};
  };
  const std::size_t count = form.size();
  for (const std::size_t size :
       {outcome.size(), detail.size(), us.size(), samples.size(), predicted_us.size(),
        at_seconds.size(), registers.size(), spill_bytes.size()}) {
    if (size != count) return fail(concat("a column has ", size, " rows, another ", count));
  }
  const auto within = [](int place, std::size_t of) {
    return place >= 0 && static_cast<std::size_t>(place) < of;
  };
  std::vector<TrialRow> rows;
  std::size_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!within(form[i], forms.size())) return fail(concat("no template ", form[i]));
    if (!within(outcome[i], outcomes.size())) return fail(concat("no outcome ", outcome[i]));
    if (!within(detail[i], details.size())) return fail(concat("no detail ", detail[i]));
    const std::string& ended = outcomes[static_cast<std::size_t>(outcome[i])];
    const auto known = parse_outcome(ended);
    if (!known) return fail(concat("unknown outcome \"", ended, '"'));
    const Form& of = forms[static_cast<std::size_t>(form[i])];
    if (values.size() - value < of.parameters.size()) return fail("too few values");
    std::vector<std::pair<std::string, std::int64_t>> configuration;
    for (const std::string& name : of.parameters) configuration.emplace_back(name, values[value++]);
    rows.push_back({.choice = {of.kernel_template, Configuration(std::move(configuration))},
                    .outcome = *known,
                    .detail = details[static_cast<std::size_t>(detail[i])],
                    .us = us[i],
                    .samples = samples[i],
                    .predicted_us = predicted_us[i],
                    .at_seconds = at_seconds[i],
                    .registers = registers[i],
                    .spill_bytes = spill_bytes[i]});
  }
  if (value != values.size()) return fail("too many values");
  return rows;
}

Columns columns_of(const std::vector<TrialRow>& rows) {
  Columns columns;
  for (const TrialRow& row : rows) {
    const Configuration& configuration = row.choice.configuration;
    columns.form.push_back(
        place_of(columns.forms, Form{row.choice.kernel_template, names_of(configuration)}));
    for (const auto& [name, value] : configuration.values()) columns.values.push_back(value);
    columns.outcome.push_back(place_of(columns.outcomes, std::string(to_string(row.outcome))));
    columns.detail.push_back(place_of(columns.details, row.detail));
    columns.us.push_back(row.us);
    columns.samples.push_back(row.samples);
    columns.predicted_us.push_back(row.predicted_us);
    columns.at_seconds.push_back(row.at_seconds);
    columns.registers.push_back(row.registers);
    columns.spill_bytes.push_back(row.spill_bytes);
  }
  return columns;
}

}  // namespace

TrialTable trial_table(std::span<const Trial> trials, double finals_seconds, double wall_seconds) {
  TrialTable table{.finals_seconds = rounded(finals_seconds, kTrialDigits),
                   .wall_seconds = rounded(wall_seconds, kTrialDigits),
                   .rows = {}};
  for (const Trial& trial : trials) {
    const bool timed = !trial.measurement.samples_us.empty();
    table.rows.push_back({.choice = trial.choice,
                          .outcome = trial.outcome,
                          .detail = trial.detail.substr(0, kLongestDetail),
                          .us = timed ? rounded(trial.measurement.median_us(), kTrialDigits) : 0,
                          .samples = static_cast<int>(trial.measurement.samples_us.size()),
                          .predicted_us = rounded(trial.predicted_us, kTrialDigits),
                          .at_seconds = rounded(trial.at_seconds, kTrialDigits),
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
    json.write("parameters", form.parameters);
  });
  json.write("outcomes", columns.outcomes);
  json.write("details", columns.details);
  json.write("template", columns.form);
  json.write("values", columns.values);
  json.write("outcome", columns.outcome);
  json.write("detail", columns.detail);
  json.write("us", columns.us);
  json.write("samples", columns.samples);
  json.write("predicted_us", columns.predicted_us);
  json.write("at_seconds", columns.at_seconds);
  json.write("registers", columns.registers);
  json.write("spill_bytes", columns.spill_bytes);
  return json.text();
}

Result<TrialTable> parse_trial_table(std::string_view json) {
  TrialTable table;
  Columns columns;
  KW_TRY(parse_fields(json, "trials", [&](FieldReader& fields) {
    fields.read("finals_seconds", table.finals_seconds);
    fields.read("wall_seconds", table.wall_seconds);
    fields.each_object("templates", [&](FieldReader& nested) {
      Form& form = columns.forms.emplace_back();
      nested.read("template", form.kernel_template);
      nested.read("parameters", form.parameters);
    });
    fields.read("outcomes", columns.outcomes);
    fields.read("details", columns.details);
    fields.read("template", columns.form);
    fields.read("values", columns.values);
    fields.read("outcome", columns.outcome);
    fields.read("detail", columns.detail);
    fields.read("us", columns.us);
    fields.read("samples", columns.samples);
    fields.read("predicted_us", columns.predicted_us);
    fields.read("at_seconds", columns.at_seconds);
    fields.read("registers", columns.registers);
    fields.read("spill_bytes", columns.spill_bytes);
  }));
  KW_ASSIGN(table.rows, columns.rows());
  return table;
}

}  // namespace kernwright
