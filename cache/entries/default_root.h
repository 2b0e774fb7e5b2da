#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kernwright {

/// Returns `$KERNWRIGHT_CACHE`, else `$XDG_CACHE_HOME/kernwright`, else `~/.cache/kernwright`. If
/// no home is known, returns a path that cannot hold anything: every lookup misses and every put
/// says so.
std::filesystem::path default_cache_root();

/// Returns the folders that $KERNWRIGHT_SIGNED_CACHES names, with colons between them: bundles that
/// packages bring. The tool of the Python package sets it to the installed ones.
std::vector<std::string> signed_cache_roots();

}  // namespace kernwright
