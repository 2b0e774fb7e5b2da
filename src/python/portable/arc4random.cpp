#include <cstdint>
#include <sys/random.h>

/// What the linker puts in the place of arc4random, which glibc has since 2.36 and LLVM's Support
/// asks for where it finds it. It names temporary files.
extern "C" std::uint32_t __wrap_arc4random() {
  std::uint32_t value = 0;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}
