#include "model/catalog/fragment.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "support/names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::detail {
namespace {

constexpr std::string_view kExtends = "extends";

void set_file(JsonNode& node, int file) {
  node.file = file;
  if (auto* members = std::get_if<JsonNode::Object>(&node.value)) {
    for (auto& [name, member] : *members) set_file(member, file);
  } else if (auto* elements = std::get_if<JsonNode::Array>(&node.value)) {
    for (JsonNode& element : *elements) set_file(element, file);
  }
}

void erase_nulls(JsonNode& node) {
  if (auto* members = std::get_if<JsonNode::Object>(&node.value)) {
    std::erase_if(*members, [](const JsonMember& member) { return member.second.is_null(); });
    for (auto& [name, member] : *members) erase_nulls(member);
  } else if (auto* elements = std::get_if<JsonNode::Array>(&node.value)) {
    for (JsonNode& element : *elements) erase_nulls(element);
  }
}

/// Puts `own` over `base`, objects member by member.
void merge(JsonNode& base, JsonNode own) {
  auto* const members = std::get_if<JsonNode::Object>(&base.value);
  auto* const own_members = std::get_if<JsonNode::Object>(&own.value);
  if (members && own_members) {
    for (auto& [name, member] : *own_members) {
      const auto found = std::ranges::find(*members, name, &JsonMember::first);
      if (found != members->end()) {
        merge(found->second, std::move(member));
      } else {
        members->push_back({name, std::move(member)});
      }
    }
  } else {
    base.value = std::move(own.value);
  }
  base.line = own.line;
  base.file = own.file;
}

/// Puts the rules or launches of `own`, if it has any, after those in `base`, or over them.
void merge_elements(JsonNode& base, JsonNode& own, std::string_view field, bool over) {
  const auto array_of = [field](JsonNode& node) {
    for (auto& [name, member] : std::get<JsonNode::Object>(node.value)) {
      if (name == field) return std::get_if<JsonNode::Array>(&member.value);
    }
    return static_cast<JsonNode::Array*>(nullptr);
  };
  const JsonNode::Array* const elements = array_of(base);
  JsonNode::Array* const own_elements = array_of(own);
  if (!elements || !own_elements) return;
  JsonNode::Array all = *elements;
  for (std::size_t i = 0; i < own_elements->size(); ++i) {
    JsonNode& element = (*own_elements)[i];
    if (over && i < elements->size()) {
      merge(all[i], std::move(element));
    } else {
      all.push_back(std::move(element));
    }
  }
  *own_elements = std::move(all);
}

/// Parses `file` as a JSON object, and gives its nodes the file number `index`.
Result<JsonNode> read_object(const JsonFile& file, std::size_t index) {
  KW_ASSIGN(JsonNode root, parse_json(file.text, file.place));
  if (!root.object()) {
    return Error{
        ErrorCode::invalid_argument,
        concat(file.place, ":", root.line, ": file: expected object, found ", root.kind())};
  }
  set_file(root, static_cast<int>(index));
  return root;
}

/// Finds the fragment that `extends`, a field of the last of `files`, names.
Result<const Fragment*> find_fragment(const JsonNode& extends, std::span<const JsonFile> files,
                                      std::span<const Fragment> fragments) {
  const auto refused = [&](std::string_view what) {
    return Error{ErrorCode::invalid_argument,
                 concat(files.back().place, ":", extends.line, ": ", kExtends, ": ", what)};
  };
  if (!extends.string()) return refused(concat("expected string, found ", extends.kind()));
  const std::string& name = *extends.string();
  const Fragment* const fragment = find_named(fragments, name);
  if (!fragment) {
    std::string known;
    for (const Fragment& one : fragments) known += concat(known.empty() ? "" : ", ", one.name);
    return refused(concat("no fragment \"", name, "\", there are: ", known));
  }
  const auto is_this = [&](const JsonFile& file) { return file.place == fragment->place; };
  if (std::ranges::any_of(files, is_this)) return refused(concat("\"", name, "\" extends itself"));
  return fragment;
}

}  // namespace

Result<MergedManifest> read_merged(JsonFile manifest, std::span<const Fragment> fragments) {
  MergedManifest merged;
  merged.files.push_back(std::move(manifest));
  std::vector<JsonNode> roots;  // of the files
  while (true) {
    KW_ASSIGN(JsonNode root, read_object(merged.files.back(), roots.size()));
    roots.push_back(std::move(root));
    const JsonNode* const extends = roots.back().find(kExtends);
    if (!extends) break;
    KW_ASSIGN(const Fragment* const fragment, find_fragment(*extends, merged.files, fragments));
    merged.files.push_back(
        {concat("include/", fragment->name), fragment->place, std::string(fragment->text)});
  }
  merged.root = std::move(roots.back());
  if (roots.size() == 1) return merged;
  for (roots.pop_back(); !roots.empty(); roots.pop_back()) {
    merge_elements(merged.root, roots.back(), "rules", /*over=*/false);
    merge_elements(merged.root, roots.back(), "habits", /*over=*/false);
    merge_elements(merged.root, roots.back(), "launches", /*over=*/true);
    merge(merged.root, std::move(roots.back()));
  }
  erase_nulls(merged.root);
  return merged;
}

}  // namespace kernwright::detail
