#include "model/catalog/catalog.h"

#include <algorithm>
#include <utility>

#include "model/catalog/manifest.h"
#include "model/catalog/operation_reader.h"
#include "model/operation/problem_length.h"
#include "support/names.h"
#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

template <typename Entries>
Error not_found(std::string_view what, std::string_view name, const Entries& entries) {
  std::string known;
  for (const auto& entry : entries) known += concat(known.empty() ? "" : ", ", entry.name);
  return {ErrorCode::not_found,
          concat("no ", what, " \"", name, "\"", did_you_mean(name, names_in(entries)),
                 ", there are ", known)};
}

Error defined_twice(std::string_view what, std::string_view name, std::string_view first,
                    std::string_view second) {
  return {ErrorCode::invalid_argument,
          concat(what, " \"", name, "\" is defined twice, in ", first, " and ", second)};
}

Result<std::vector<std::shared_ptr<const UserFunction>>> read_functions(
    const std::vector<fs::path>& files) {
  std::vector<std::shared_ptr<const UserFunction>> functions;
  for (const fs::path& file : files) {
    KW_ASSIGN(UserFunction function, UserFunction::read(file));
    for (const auto& other : functions) {
      if (other->name != function.name) continue;
      return defined_twice("function", function.name, other->file, function.file);
    }
    functions.push_back(std::make_shared<const UserFunction>(std::move(function)));
  }
  return functions;
}

}  // namespace

Result<std::shared_ptr<const Catalog>> Catalog::load(const std::vector<fs::path>& template_dirs,
                                                     const std::vector<fs::path>& function_files) {
  auto catalog = std::make_shared<Catalog>();
  catalog->folders_.push_back(TemplateFolder::embedded());
  for (const fs::path& path : template_dirs) {
    KW_ASSIGN(TemplateFolder folder, TemplateFolder::read(path));
    catalog->folders_.push_back(std::move(folder));
  }
  KW_ASSIGN(catalog->functions_, read_functions(function_files));

  // All headers, fragments and operations before templates, since a template may implement an
  // operation of another folder.
  using Step = Result<void> (Catalog::*)(const TemplateFolder&);
  for (const Step step : {&Catalog::add_included, &Catalog::add_models, &Catalog::add_operations,
                          &Catalog::add_templates}) {
    for (const TemplateFolder& folder : catalog->folders_) {
      if (Result<void> added = ((*catalog).*step)(folder); !added) return std::move(added).error();
    }
  }
  return std::shared_ptr<const Catalog>(std::move(catalog));
}

/// Adds the headers and fragments of `include/`.
Result<void> Catalog::add_included(const TemplateFolder& folder) {
  constexpr std::string_view kPrefix = "include/";
  for (const auto& [path, text] : folder.files()) {
    const bool is_fragment = path.ends_with(".json");
    if (!path.starts_with(kPrefix) || !(path.ends_with(".cuh") || is_fragment)) continue;
    const std::string_view name = path.substr(kPrefix.size());
    if (name == "kernwright/config.cuh") {
      return Error{ErrorCode::invalid_argument,
                   concat(folder.place(path), ": header \"", name, "\" is made for each kernel")};
    }
    if (find_named(headers_, name) || find_named(fragments_, name)) {
      const auto first = std::ranges::find_if(
          folders_, [&same = path](const auto& other) { return other.files().contains(same); });
      return defined_twice(is_fragment ? "fragment" : "header", name, first->place(path),
                           folder.place(path));
    }
    if (is_fragment) {
      fragments_.push_back({std::string(name), folder.place(path), text});
    } else {
      headers_.push_back({std::string(name), text});
    }
  }
  return {};
}

Result<void> Catalog::add_models(const TemplateFolder& folder) {
  constexpr std::string_view kPrefix = "models/";
  for (const auto& [path, text] : folder.files()) {
    if (!path.starts_with(kPrefix) || !path.ends_with(".json")) continue;
    Fragment added{std::string(path.substr(kPrefix.size())), folder.place(path), text};
    if (const Fragment* other = find_named(models_, added.name)) {
      return defined_twice("model", added.name, other->place, added.place);
    }
    models_.push_back(std::move(added));
  }
  return {};
}

Result<void> Catalog::add_operations(const TemplateFolder& folder) {
  for (const auto& [path, text] : folder.files()) {
    const std::vector<std::string_view> parts = split(path, '/');
    if (parts.size() != 2 || parts[1] != "operation.json") continue;
    if (const auto* other = find_named(operations_, parts[0])) {
      return defined_twice("operation", parts[0], other->folder->place(parts[0]),
                           folder.place(parts[0]));
    }
    const auto& added = operations_.emplace_back(std::string(parts[0]), folder, path);
    if (is_built_in(folder)) continue;
    if (auto operation = parsed(added); !operation) return std::move(operation).error();
  }
  return {};
}

Result<void> Catalog::add_templates(const TemplateFolder& folder) {
  for (const auto& [path, text] : folder.files()) {
    const std::vector<std::string_view> parts = split(path, '/');
    if (parts.size() != 3 || parts[2] != "manifest.json") continue;
    std::string name = concat(parts[0], "/", parts[1]);
    if (const auto* other = find_named(templates_, name)) {
      return defined_twice("template", name, other->folder->place(path), folder.place(path));
    }
    const auto& added = templates_.emplace_back(std::move(name), folder, path);
    if (is_built_in(folder)) continue;
    if (auto made = parsed(added); !made) return std::move(made).error();
  }
  return {};
}

bool Catalog::is_built_in(const TemplateFolder& folder) const {
  return &folder == &folders_.front();
}

Result<Operation> Catalog::parse(const Entry<Operation>& entry) const {
  const TemplateFolder& folder = *entry.folder;
  KW_ASSIGN(const auto reference,
            folder.companion(concat(entry.name, "/reference.cu"), entry.path));
  const std::string place = folder.place(entry.path);
  // A test binds the cases of what is built in.
  Result<Operation> operation = parse_operation(folder.files().at(entry.path), place,
                                                std::string(reference), !is_built_in(folder));
  if (!operation) return operation;
  if (operation->name != entry.name) {
    return Error{ErrorCode::invalid_argument,
                 concat(place, ": operation: \"", operation->name,
                        "\" is not the folder's name, \"", entry.name, "\"")};
  }
  KW_ASSIGN(operation->reference_headers,
            headers_beside(folder, concat(entry.name, "/reference.cu"), *operation));
  if (operation->input_kernels) {
    InputKernels& kernels = *operation->input_kernels;
    const std::string path = concat(entry.name, "/", kernels.source_file);
    KW_ASSIGN(kernels.source, folder.companion(path, entry.path));
    KW_ASSIGN(kernels.headers, headers_beside(folder, path, *operation));
  }
  const bool takes_functions =
      std::ranges::any_of(operation->flags, [](const Flag& flag) { return flag.is_function(); });
  if (!takes_functions) return operation;
  for (const auto& function : functions_) {
    for (const Flag& flag : operation->flags) {
      if (!flag.is_function() ||
          std::ranges::find(flag.values, function->name) == flag.values.end())
        continue;
      return Error{ErrorCode::invalid_argument,
                   concat(function->file, ": ", flag.name, '=', function->name,
                          " means no function; call the file something else")};
    }
  }
  operation->functions = functions_;
  return operation;
}

Result<KernelTemplate> Catalog::parse(const Entry<KernelTemplate>& entry) const {
  const TemplateFolder& folder = *entry.folder;
  const std::string place = folder.place(entry.path);
  const std::string_view operation_name =
      std::string_view(entry.name).substr(0, entry.name.find('/'));
  const auto* owner = find_named(operations_, operation_name);
  if (!owner) {
    Error missing = not_found("operation", operation_name, operations_);
    missing.message = concat(place, ": ", missing.message);
    return missing;
  }
  KW_ASSIGN(const Operation* operation, parsed(*owner));
  Result<KernelTemplate> made =
      parse_manifest(folder.files().at(entry.path), place, entry.name, *operation, fragments_);
  if (!made) return made;
  KW_ASSIGN(made->source, folder.companion(concat(entry.name, "/", made->source_file), entry.path));
  auto headers = headers_beside(folder, concat(entry.name, "/", made->source_file), *operation);
  if (!headers) return std::move(headers).error();
  made->headers = *std::move(headers);
  return made;
}

Result<std::vector<DeviceHeader>> Catalog::headers_beside(const TemplateFolder& folder,
                                                          std::string_view source,
                                                          const Operation& operation) const {
  std::vector<DeviceHeader> headers = folder.beside(source);
  const std::string_view place = source.substr(0, source.rfind('/') + 1);
  for (const DeviceHeader& header : headers) {
    if (find_named(headers_, header.name)) {
      return defined_twice("header", header.name, concat("include/", header.name),
                           folder.place(concat(place, header.name)));
    }
    for (const Flag& flag : operation.flags) {
      if (!flag.is_function() || header.name != flag.header()) continue;
      return defined_twice("header", header.name, concat("the function of flag ", flag.name),
                           folder.place(concat(place, header.name)));
    }
  }
  return headers;
}

template <typename Value>
Result<const Value*> Catalog::parsed(const Entry<Value>& entry) const {
  std::call_once(entry.once, [&] { entry.value.emplace(parse(entry)); });
  if (!*entry.value) return entry.value->error();
  return &**entry.value;
}

template <typename Value>
std::vector<std::reference_wrapper<const Value>> Catalog::all(
    const std::deque<Entry<Value>>& entries) const {
  std::vector<std::reference_wrapper<const Value>> values;
  for (const Entry<Value>& entry : entries) {
    if (const Result<const Value*> value = parsed(entry)) values.emplace_back(**value);
  }
  return values;
}

Result<void> Catalog::parse_all() const {
  for (const auto& entry : operations_) {
    if (auto operation = parsed(entry); !operation) return std::move(operation).error();
  }
  for (const auto& entry : templates_) {
    if (auto made = parsed(entry); !made) return std::move(made).error();
  }
  return {};
}

std::vector<std::reference_wrapper<const Operation>> Catalog::operations() const {
  return all(operations_);
}

std::vector<std::reference_wrapper<const KernelTemplate>> Catalog::templates() const {
  return all(templates_);
}

std::vector<const KernelTemplate*> Catalog::templates_of(std::string_view operation) const {
  std::vector<const KernelTemplate*> found;
  const std::string prefix = concat(operation, "/");
  for (const auto& entry : templates_) {
    if (!entry.name.starts_with(prefix)) continue;
    if (const auto made = parsed(entry)) found.push_back(*made);
  }
  return found;
}

Result<const Operation*> Catalog::operation(std::string_view name) const {
  if (const auto* found = find_named(operations_, name)) return parsed(*found);
  return not_found("operation", name, operations_);
}

Result<const KernelTemplate*> Catalog::kernel_template(std::string_view name) const {
  if (const auto* found = find_named(templates_, name)) return parsed(*found);
  return not_found("template", name, templates_);
}

Result<BoundProblem> Catalog::bind(const Problem& problem) const {
  std::size_t bytes = problem.operation().size();
  for (const auto& [name, size] : problem.dims()) bytes += name.size() + sizeof size;
  for (const auto& [name, value] : problem.flags()) bytes += name.size() + value.size();
  KW_TRY(check_problem_length(bytes));
  KW_ASSIGN(const Operation* found, operation(problem.operation()));
  return BoundProblem::bind(*found, problem);
}

}  // namespace kernwright
