#include "model/catalog.h"

#include <algorithm>

#include "model/embedded_files.h"
#include "model/find_named.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// The files of one folder of templates: text by path relative to the folder.
struct TemplateFolder {
  std::string name;  ///< put before paths in messages
  std::map<std::string, std::string> files;

  std::string place(std::string_view path) const { return concat(name, "/", path); }
};

TemplateFolder embedded_folder() {
  TemplateFolder folder{"templates", {}};
  for (const EmbeddedFile& file : embedded_templates()) {
    folder.files.emplace(file.path, file.content);
  }
  return folder;
}

/// Reads what the layout of a folder of templates has a place for; other files are nobody's.
Result<TemplateFolder> read_folder(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return Error{ErrorCode::not_found, concat("no folder of templates ", path.native())};
  }
  TemplateFolder folder{path.native(), {}};
  std::vector<fs::path> pending{fs::path()};
  constexpr std::ptrdiff_t kDepth = 3;  // operation/template/file
  while (!pending.empty()) {
    const fs::path below = std::move(pending.back());
    pending.pop_back();
    for (const std::string& name : list_directory(path / below)) {
      const fs::path relative = below / name;
      const std::string extension = relative.extension().native();
      if (fs::is_directory(path / relative, error)) {
        if (std::distance(relative.begin(), relative.end()) < kDepth) pending.push_back(relative);
      } else if (extension == ".json" || extension == ".cu" || extension == ".cuh") {
        Result<std::string> text = read_file(path / relative);
        if (!text) return std::move(text).error();
        folder.files.emplace(relative.native(), *std::move(text));
      }
    }
  }
  return folder;
}

template <typename Item>
Error not_found(std::string_view what, std::string_view name, const std::vector<Item>& items) {
  std::string known;
  for (const Item& item : items) known += concat(known.empty() ? "" : ", ", item.name);
  return {ErrorCode::not_found, concat("no ", what, " \"", name, "\", there are ", known)};
}

Error defined_twice(std::string_view what, std::string_view name, std::string_view first,
                    std::string_view second) {
  return {ErrorCode::invalid_argument,
          concat(what, " \"", name, "\" is defined twice, in ", first, " and ", second)};
}

Result<std::string> companion(const TemplateFolder& folder, const std::string& path,
                              std::string_view named_by) {
  const auto found = folder.files.find(path);
  if (found != folder.files.end()) return found->second;
  return Error{ErrorCode::not_found,
               concat(folder.place(named_by), ": no file ", folder.place(path), " beside it")};
}

/// Loads folders into the catalog's lists: headers and operations of all folders first, since a
/// template may implement an operation of another folder.
class Loader {
 public:
  Loader(std::vector<Operation>& operations, std::vector<KernelTemplate>& templates,
         std::vector<DeviceHeader>& headers)
      : operations_(operations), templates_(templates), headers_(headers) {}

  Result<void> load_headers(const TemplateFolder& folder) {
    constexpr std::string_view kPrefix = "include/";
    for (const auto& [path, text] : folder.files) {
      if (!path.starts_with(kPrefix) || !path.ends_with(".cuh")) continue;
      std::string name = path.substr(kPrefix.size());
      const auto [known, added] = header_places_.emplace(name, folder.place(path));
      if (!added) return defined_twice("header", name, known->second, folder.place(path));
      headers_.push_back({std::move(name), text});
    }
    return {};
  }

  Result<void> load_operations(const TemplateFolder& folder) {
    for (const auto& [path, text] : folder.files) {
      const std::vector<std::string_view> parts = split(path, '/');
      if (parts.size() != 2 || parts[1] != "operation.json") continue;
      Result<std::string> reference = companion(folder, concat(parts[0], "/reference.cu"), path);
      if (!reference) return std::move(reference).error();
      const std::string place = folder.place(path);
      Result<Operation> operation = parse_operation(text, place, *std::move(reference));
      if (!operation) return std::move(operation).error();
      if (operation->name != parts[0]) {
        return Error{ErrorCode::invalid_argument,
                     concat(place, ": operation: \"", operation->name,
                            "\" is not the folder's name, \"", parts[0], "\"")};
      }
      if (const Operation* other = find_named(operations_, operation->name)) {
        return defined_twice("operation", other->name, other->folder, operation->folder);
      }
      operations_.push_back(*std::move(operation));
    }
    return {};
  }

  Result<void> load_templates(const TemplateFolder& folder) {
    for (const auto& [path, text] : folder.files) {
      const std::vector<std::string_view> parts = split(path, '/');
      if (parts.size() != 3 || parts[2] != "manifest.json") continue;
      const std::string place = folder.place(path);
      const std::string name = concat(parts[0], "/", parts[1]);
      const Operation* operation = find_named(operations_, parts[0]);
      if (!operation) {
        Error missing = not_found("operation", parts[0], operations_);
        missing.message = concat(place, ": ", missing.message);
        return missing;
      }
      if (const KernelTemplate* other = find_named(templates_, name)) {
        return defined_twice("template", name, other->manifest_file, place);
      }
      Result<std::string> source_file = manifest_source(text, place);
      if (!source_file) return std::move(source_file).error();
      Result<std::string> source = companion(folder, concat(name, "/", *source_file), path);
      if (!source) return std::move(source).error();
      Result<KernelTemplate> made =
          parse_manifest(text, place, name, *operation, *std::move(source));
      if (!made) return std::move(made).error();
      templates_.push_back(*std::move(made));
    }
    return {};
  }

 private:
  std::vector<Operation>& operations_;
  std::vector<KernelTemplate>& templates_;
  std::vector<DeviceHeader>& headers_;
  std::map<std::string, std::string> header_places_;
};

/// Gives the functions to the operations whose problems may bring one along.
Result<void> load_functions(const std::vector<fs::path>& files,
                            std::vector<Operation>& operations) {
  std::vector<std::shared_ptr<const UserFunction>> functions;
  for (const fs::path& file : files) {
    Result<UserFunction> function = UserFunction::read(file);
    if (!function) return std::move(function).error();
    for (const auto& other : functions) {
      if (other->name != function->name) continue;
      return defined_twice("function", function->name, other->file, function->file);
    }
    functions.push_back(std::make_shared<const UserFunction>(*std::move(function)));
  }
  for (Operation& operation : operations) {
    if (std::any_of(operation.flags.begin(), operation.flags.end(),
                    [](const Flag& flag) { return flag.is_function(); })) {
      operation.functions = functions;
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Catalog>> Catalog::load(const std::vector<fs::path>& template_dirs,
                                                     const std::vector<fs::path>& function_files) {
  std::vector<TemplateFolder> folders{embedded_folder()};
  for (const fs::path& path : template_dirs) {
    Result<TemplateFolder> folder = read_folder(path);
    if (!folder) return std::move(folder).error();
    folders.push_back(*std::move(folder));
  }
  auto catalog = std::make_shared<Catalog>();
  Loader loader(catalog->operations_, catalog->templates_, catalog->headers_);
  using Step = Result<void> (Loader::*)(const TemplateFolder&);
  for (const Step step :
       {&Loader::load_headers, &Loader::load_operations, &Loader::load_templates}) {
    for (const TemplateFolder& folder : folders) {
      if (Result<void> loaded = (loader.*step)(folder); !loaded) return std::move(loaded).error();
    }
  }
  if (Result<void> loaded = load_functions(function_files, catalog->operations_); !loaded) {
    return std::move(loaded).error();
  }
  return std::shared_ptr<const Catalog>(std::move(catalog));
}

Result<const Operation*> Catalog::operation(std::string_view name) const {
  if (const Operation* found = find_named(operations_, name)) return found;
  return not_found("operation", name, operations_);
}

Result<const KernelTemplate*> Catalog::kernel_template(std::string_view name) const {
  if (const KernelTemplate* found = find_named(templates_, name)) return found;
  return not_found("template", name, templates_);
}

std::vector<const KernelTemplate*> Catalog::templates_of(std::string_view operation) const {
  std::vector<const KernelTemplate*> found;
  for (const KernelTemplate& made : templates_) {
    if (made.operation == operation) found.push_back(&made);
  }
  return found;
}

}  // namespace kernwright
