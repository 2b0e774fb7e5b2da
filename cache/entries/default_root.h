#pragma once

#include <filesystem>

namespace kernwright {

/// `$KERNWRIGHT_CACHE`, else `$XDG_CACHE_HOME/kernwright`, else `~/.cache/kernwright`. Where no
/// home is known, a place that cannot hold anything: every lookup misses and every put says so.
std::filesystem::path default_cache_root();

}  // namespace kernwright
