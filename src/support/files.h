#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The whole file as bytes. Errors: `not_found`, or `io` naming the path and the reason.
Result<std::string> read_file(const std::filesystem::path& path);

/// Publishes `bytes` under `path`: written to a temporary file in the same directory (created if
/// missing), every write checked, then renamed. Readers see the old file or the whole new one. Not
/// fsynced: a torn file after power loss is for the reader's checksum to find.
Result<void> publish_file(const std::filesystem::path& path, std::string_view bytes);

/// Appends one line (a newline is added) with a single O_APPEND write, so that concurrent writers
/// never interleave within a line.
Result<void> append_line(const std::filesystem::path& path, std::string_view line);

/// The names in a directory, sorted; empty where it does not exist.
std::vector<std::string> list_directory(const std::filesystem::path& path);

}  // namespace kernwright
