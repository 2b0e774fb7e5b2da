#include "bench/common/mutant_list.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include "model/expression/json_reader.h"
#include "support/files.h"
#include "support/json.h"
#include "support/text.h"

namespace kernwright {
namespace {

using detail::Diagnostics;
using detail::JsonReader;

constexpr MutantKind kKinds[] = {MutantKind::arithmetic, MutantKind::indexing,
                                 MutantKind::synchronisation};

std::string join_lines(const JsonReader& json) {
  std::string text;
  bool first = true;
  for (const JsonReader& line : json.elements()) {
    text += concat(first ? "" : "\n", line.string());
    first = false;
  }
  return text;
}

/// Reads one file into the list.
class Reader {
 public:
  Reader(MutantList& list, std::set<std::string>& names) : list_(list), names_(names) {}

  void read(const JsonReader& json) {
    json.expect_keys({"template", "cases", "mutants"});
    kernel_template_ = json.required("template").string();
    for (const auto& [name, value] : json.required("cases").members()) read_case(name, value);
    for (const JsonReader& value : json.required("mutants").elements()) read_mutant(value);
  }

 private:
  void read_case(const std::string& name, const JsonReader& json) {
    json.expect_keys({"problem", "configuration"});
    MutantCase made{name, kernel_template_, {}, {}};
    const JsonReader problem = json.required("problem");
    Result<Problem> parsed = Problem::parse(problem.string());
    if (parsed) {
      made.problem = *std::move(parsed);
    } else {
      problem.fail(parsed.error().message);
    }
    for (const auto& [parameter, value] : json.required("configuration").members()) {
      made.changed.emplace_back(parameter, value.integer());
    }
    cases_.emplace(name, list_.cases.size());
    list_.cases.push_back(std::move(made));
  }

  void read_mutant(const JsonReader& json) {
    json.expect_keys({"name", "kind", "file", "find", "replace", "occurrence", "on", "fault",
                      "survives_because"});
    Mutant made;
    made.kernel_template = kernel_template_;
    made.name = json.required("name").string();
    if (!names_.insert(made.name).second) json.fail(concat("a second mutant ", made.name));
    const JsonReader kind = json.required("kind");
    const auto known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](MutantKind k) { return kind.is(to_string(k)); });
    if (known == std::end(kKinds)) {
      kind.fail("arithmetic, indexing or synchronisation expected");
    } else {
      made.kind = *known;
    }
    made.file = json.required("file").string();
    made.find = join_lines(json.required("find"));
    made.replace = join_lines(json.required("replace"));
    if (made.find.empty()) json.fail("nothing to find");
    if (const JsonReader which = json.optional("occurrence"); which.present()) {
      made.occurrence = static_cast<int>(which.integer());
    }
    for (const JsonReader& name : json.required("on").elements()) {
      const auto found = cases_.find(name.string());
      if (found == cases_.end()) {
        name.fail(concat("no case \"", name.string(), "\""));
      } else {
        made.cases.push_back(found->second);
      }
    }
    if (made.cases.empty()) json.fail("tried on no case");
    made.fault = json.required("fault").string();
    if (const JsonReader why = json.optional("survives_because"); why.present()) {
      made.survives_because = why.string();
      if (made.kind != MutantKind::synchronisation) {
        why.fail("only faults of synchronisation may survive");
      }
    }
    list_.mutants.push_back(std::move(made));
  }

  MutantList& list_;
  std::set<std::string>& names_;
  std::string kernel_template_;
  std::map<std::string, std::size_t, std::less<>> cases_;
};

}  // namespace

std::string_view to_string(MutantKind kind) {
  switch (kind) {
    case MutantKind::arithmetic:
      return "arithmetic";
    case MutantKind::indexing:
      return "indexing";
    case MutantKind::synchronisation:
      return "synchronisation";
  }
  return "";
}

Result<std::string> Mutant::apply(std::string_view text) const {
  std::string mutated(text);
  if (place) return mutated.replace(*place, find.size(), replace);
  std::vector<std::size_t> places;
  for (std::size_t at = text.find(find); at != text.npos; at = text.find(find, at + 1)) {
    places.push_back(at);
  }
  const bool unique = occurrence == 0;
  const auto which = static_cast<std::size_t>(unique ? 0 : occurrence - 1);
  if (unique ? places.size() != 1 : which >= places.size()) {
    return Error{ErrorCode::not_found,
                 concat("mutant ", name, ": its text is found ", places.size(), " times in ",
                        kernel_template, ", ", file, ", ",
                        unique ? std::string("not once") : concat("not ", occurrence, " times"))};
  }
  return mutated.replace(places[which], find.size(), replace);
}

Result<MutantList> MutantList::parse(std::span<const EmbeddedFile> files) {
  MutantList list;
  std::set<std::string> names;
  for (const EmbeddedFile& file : files) {
    const Result<JsonNode> json = parse_json(file.content, file.path);
    if (!json) return json.error();
    Diagnostics diagnostics(file.path);
    Reader(list, names).read(JsonReader(*json, diagnostics));
    if (!diagnostics.ok()) return diagnostics.error();
  }
  return list;
}

Result<MutantList> MutantList::built_in() { return parse(embedded_mutants()); }

Result<MutantList> MutantList::load(const std::filesystem::path& folder) {
  std::deque<std::string> texts;  // its elements do not move
  std::vector<EmbeddedFile> files;
  for (const std::string& name : list_directory(folder)) {
    if (!name.ends_with(".json")) continue;
    Result<std::string> content = read_file(folder / name);
    if (!content) return std::move(content).error();
    const std::string& path = texts.emplace_back((folder / name).native());
    files.push_back({path, texts.emplace_back(*std::move(content))});
  }
  if (files.empty()) {
    return Error{ErrorCode::not_found, concat("no list of mutants in ", folder.native())};
  }
  return parse(files);
}

}  // namespace kernwright
