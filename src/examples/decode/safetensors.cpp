#include "safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "input.h"

namespace decode {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::uint64_t kLongestIndex = 64 << 20;

std::string spelled(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text == "[" ? "" : ", ") + std::to_string(size);
  return text + "]";
}

kw::Error corrupt(const std::string& file, const std::string& why) {
  return {kw::ErrorCode::corrupt, file + ": " + why};
}

/// Returns the bytes of an element; 0 for a dtype that is not read.
std::uint64_t element_bytes(const std::string& dtype) {
  return dtype == "BF16" || dtype == "F16" ? 2 : dtype == "F32" ? 4 : 0;
}

bool is_size(const json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX;
}

/// Returns whether it names a file beside the one that names it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\0", 2)) == std::string::npos;
}

}  // namespace

kw::Result<Safetensors> Safetensors::open(const std::vector<std::string>& paths) {
  Safetensors tensors;
  for (const std::string& path : paths) {
    const kw::Result<void> added = tensors.add_path(path);
    if (!added) return added.error();
  }
  return tensors;
}

kw::Result<void> Safetensors::add_path(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return add_file(path);
  std::set<std::string> files;
  const fs::path index = fs::path(path) / "model.safetensors.index.json";
  std::error_code failed;
  if (fs::exists(fs::symlink_status(index, failed))) {
    const kw::Result<std::string> text = read_text(index.string(), kLongestIndex);
    if (!text) return text.error();
    const json document = parse_json(*text);
    const bool has_map = document.is_object() && document.contains("weight_map") &&
                         document["weight_map"].is_object();
    if (!has_map) return corrupt(index.string(), "has no object weight_map");
    for (const auto& [tensor, file] : document["weight_map"].items()) {
      if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
        return corrupt(index.string(), "weight_map: " + tensor + ": " + shown(file) +
                                           " is no name of a file beside it");
      }
      files.insert((fs::path(path) / file.get<std::string>()).string());
    }
  } else {
    for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (entry->path().extension() == ".safetensors") files.insert(entry->path().string());
    }
    if (failed) return kw::Error{kw::ErrorCode::io, path + ": " + failed.message()};
  }
  if (files.empty()) return kw::Error{kw::ErrorCode::io, path + ": has no .safetensors"};
  for (const std::string& file : files) {
    const kw::Result<void> added = add_file(file);
    if (!added) return added;
  }
  return {};
}

kw::Result<void> Safetensors::add_file(const std::string& file) {
  constexpr std::uint64_t kLengthBytes = 8;
  const kw::Result<InputFile> opened = InputFile::open(file);
  if (!opened) return opened.error();
  const std::uint64_t file_bytes = opened->bytes();
  const kw::Result<std::string> length = opened->read(0, std::min(kLengthBytes, file_bytes));
  if (!length) return length.error();
  std::uint64_t header_bytes = 0;
  for (std::size_t i = length->size(); i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>((*length)[i]);
  }
  if (file_bytes < kLengthBytes ||
      header_bytes > std::min(kLongestHeader, file_bytes - kLengthBytes)) {
    return corrupt(file, "has " + std::to_string(file_bytes) + " bytes, and a header of " +
                             std::to_string(header_bytes));
  }
  const kw::Result<std::string> header = opened->read(kLengthBytes, header_bytes);
  if (!header) return header.error();
  const json document = parse_json(*header);
  if (!document.is_object()) {
    return corrupt(file, std::string("its header ") + kNoObject);
  }
  const std::uint64_t data = kLengthBytes + header_bytes;
  const auto wrong = [&](const std::string& name, const std::string& why) {
    return corrupt(file, "tensor " + name + ": " + why);
  };
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__") continue;
    const json dtype = value.is_object() ? value.value("dtype", json()) : json();
    const json shape = value.is_object() ? value.value("shape", json()) : json();
    const json offsets = value.is_object() ? value.value("data_offsets", json()) : json();
    if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 ||
        !std::all_of(shape.begin(), shape.end(), is_size) ||
        !std::all_of(offsets.begin(), offsets.end(), is_size)) {
      return wrong(name, "needs dtype, shape and two data_offsets, has " + shown(value));
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > file_bytes - data) {
      return wrong(name, "data_offsets " + shown(offsets) + " are not in the file's " +
                             std::to_string(file_bytes - data) + " bytes of data");
    }
    Entry entry{file, dtype.get<std::string>(), shape.get<std::vector<std::int64_t>>(),
                data + begin, end - begin};
    const auto [there, is_new] = entries_.emplace(name, std::move(entry));
    if (!is_new) return wrong(name, "is also in " + there->second.file);
  }
  return {};
}

kw::Result<Tensor> Safetensors::read(const std::string& name,
                                     const std::vector<std::int64_t>& shape) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return kw::Error{kw::ErrorCode::not_found,
                     "tensor " + name + " " + spelled(shape) + " is missing"};
  }
  const Entry& entry = found->second;
  const std::string what = entry.file + ": tensor " + name + ": ";
  if (entry.shape != shape) {
    return kw::Error{
        kw::ErrorCode::invalid_argument,
        what + "its shape is " + spelled(entry.shape) + ", the config's is " + spelled(shape)};
  }
  const std::uint64_t of_element = element_bytes(entry.dtype);
  if (of_element == 0) {
    return kw::Error{kw::ErrorCode::invalid_argument,
                     what + "its dtype is " + entry.dtype + ", not one of BF16, F16 and F32"};
  }
  std::uint64_t wanted = of_element;
  bool fits = true;
  for (const std::int64_t size : shape)
    fits = fits && !__builtin_mul_overflow(wanted, size, &wanted);
  if (!fits || wanted != entry.bytes) {
    return corrupt(entry.file, "tensor " + name + ": " + entry.dtype + " " + spelled(shape) +
                                   " has " + (fits ? std::to_string(wanted) : "2^64 or more") +
                                   " bytes, its data_offsets " + std::to_string(entry.bytes));
  }
  const kw::Result<InputFile> file = InputFile::open(entry.file);
  if (!file) return file.error();
  const kw::Result<std::string> bytes = file->read(entry.begin, entry.bytes);
  if (!bytes) return bytes.error();
  const std::uint64_t count = entry.bytes / of_element;
  Tensor tensor(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (of_element == 4) {
      float element = 0;
      std::memcpy(&element, bytes->data() + 4 * i, 4);
      tensor[i] = to_bf16(element);
    } else {
      std::memcpy(&tensor[i], bytes->data() + 2 * i, 2);
      if (entry.dtype == "F16") tensor[i] = to_bf16(half_to_float(tensor[i]));
    }
  }
  return tensor;
}

}  // namespace decode
