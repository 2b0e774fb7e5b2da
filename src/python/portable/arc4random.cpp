#include <cstdint>
#include <sys/random.h>

/// The linker puts this in the place of arc4random. glibc has arc4random since 2.36, and
/// libstdc++'s std::random_device asks for it if libstdc++ was built with such a glibc.
extern "C" std::uint32_t __wrap_arc4random() {
  std::uint32_t value = 0;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}
