#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kernwright {

/// Digests of files in hex, by their names below a folder.
using FileDigests = std::map<std::string, std::string, std::less<>>;

/// Remembers for this process which files of `folder` were checked. `read_entry` and `read_front`
/// then refuse any other content below it, so that files that are replaced after the check are
/// never served. A later call for the same folder replaces the digests. Thread-safe.
void remember_checked(const std::filesystem::path& folder, FileDigests digests);

/// Returns the digest that a file had when its folder was checked: empty if the file was not there
/// then, and nullopt if no checked folder has it. Thread-safe.
std::optional<std::string> checked_digest(std::string_view path);

}  // namespace kernwright
