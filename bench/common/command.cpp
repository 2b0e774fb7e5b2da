#include "bench/common/command.h"

#include <cstdio>
#include <string_view>

namespace kernwright {

bool lacks_arguments(int argc, const char* const* argv, const char* usage) {
  const bool lacks = argc <= 1 || (argc == 3 && std::string_view(argv[1]) == "--json");
  if (lacks) std::fputs(usage, stderr);
  return lacks;
}

}  // namespace kernwright
