// A library that takes its time to load. It tells that it has begun by a byte for the descriptor
// that SLOW_LIBRARY names.
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <unistd.h>

namespace {

void write_all(int file, std::string_view text) {
  if (::write(file, text.data(), text.size()) < 0) std::abort();
}

struct Slow {
  Slow() {
    write_all(std::atoi(std::getenv("SLOW_LIBRARY")), "b");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    write_all(STDERR_FILENO, "slow library: loaded");
  }
} const slow;

}  // namespace
