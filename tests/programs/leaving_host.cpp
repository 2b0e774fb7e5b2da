// A host that leaves in the middle of its work, for tests/build/leave_test.py:
//
//   leaving_host CACHE WAY MILLISECONDS DEVICE SEED
//
// Its threads ask for kernels, and what they miss is tuned in the background. After so many
// milliseconds it prints "leaving" and leaves, with status 7:
//
//   return     main returns, which closes the service
//   leak       the same, but the service is never closed
//   static     the same, but the service is closed by a static object's destructor
//   handler    the same, but the service is closed by an exit handler
//   thread     another thread calls exit
//   lookup     a thread that asks for kernels calls exit
//   close      it closes the service, and then returns
//   _exit      it calls _exit
//   quick      it calls quick_exit
//   wait       it does not leave, and waits to be killed
//
// DEVICE is a number of a GPU, or `fake`: kernels are then compiled, but run on a FakeDevice of
// this process.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "service/serve/core.h"
#include "support/processes/find_tool.h"
#include "support/text.h"
#include "tests/service/fake_surroundings.h"

namespace kernwright {
namespace {

constexpr int kStatus = 7;

/// Lets a crash say where it is. The status stays that of the signal.
void tell_of_crashes() {
  static std::array<void*, 40> frames;
  ::backtrace(frames.data(), 1);  // loads what it needs
  for (const int signal : {SIGSEGV, SIGABRT}) {
    std::signal(signal, [](int caught) {
      std::signal(caught, SIG_DFL);
      ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), 40), STDERR_FILENO);
      std::raise(caught);
    });
  }
}

constexpr int kThreads = 3;

using Core = std::shared_ptr<ServiceCore>;

struct Arguments {
  std::string cache, way, device;
  int milliseconds = 0;
  unsigned seed = 0;
};

/// Returns the real compilers and, if `device` is fake, a device that is not one.
Surroundings surroundings_of(const std::string& device) {
  if (device != "fake") return {};
  auto& world = *new FakeWorld;  // outlives all threads
  Surroundings made = fake_surroundings(world);
  made.make_compiler = make_toolkit_compiler_in_processes;
  return made;
}

Core open(const Arguments& arguments) {
  ServiceOptions options;
  options.cache = arguments.cache;
  options.on_miss = MissPolicy::tune_in_background;
  options.tune_seconds = 5;
  options.measure_in_process = arguments.device == "fake";
  if (arguments.device != "fake") options.device = std::stoi(arguments.device);
  options.log = [](LogLevel, std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  Result<Core> core = ServiceCore::open(std::move(options), surroundings_of(arguments.device));
  if (core) return *core;
  std::fprintf(stderr, "%s\n", core.error().message.c_str());
  ::_exit(77);
}

/// Asks for one kernel after another until `leave`.
void ask(ServiceCore& core, unsigned seed, const std::atomic<bool>& leave) {
  std::minstd_rand random(seed);
  while (!leave) {
    const std::int64_t size = 64 * (1 + random() % 40);
    const Problem problem =
        random() % 2 == 0 ? vector_add(size, DType::fp32) : rmsnorm(4, size, DType::bf16);
    const Result<Kernel> kernel = core.get_best_kernel(problem);
    if (!kernel) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Closes a service, which is most of a leave's time where that is too long.
void close(Core& core) {
  const auto begun = std::chrono::steady_clock::now();
  core.reset();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  std::fprintf(stderr, "closed after %.1f s\n", taken.count());
}

void say_leaving() {
  std::puts("leaving");
  std::fflush(stdout);
}

/// Closes a service at the end of static objects.
struct AtEnd {
  Core core;
};
AtEnd& at_end() {
  static AtEnd it;
  return it;
}

int run(const Arguments& arguments) {
  const std::string& way = arguments.way;
  if (way == "static") at_end();
  Core core = open(arguments);
  auto& leave = *new std::atomic<bool>(false);
  auto& exits = *new std::atomic<bool>(false);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&leave, &exits, own = core, seed = arguments.seed + i, i] {
      ask(*own, seed, leave);
      if (i == 0 && exits) {
        say_leaving();
        std::exit(kStatus);
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(arguments.milliseconds));
  if (way == "wait") {
    say_leaving();
    for (;;) ::pause();
  }
  if (way == "lookup") {
    exits = true;
    leave = true;
    for (;;) ::pause();
  }
  const bool closes = way == "return" || way == "close" || way == "static" || way == "handler";
  if (closes) {
    // Lookups hold their threads until they end, as in any host.
    leave = true;
    for (std::thread& thread : threads) thread.join();
  } else {
    for (std::thread& thread : threads) thread.detach();
  }
  if (way == "close") {
    say_leaving();
    close(core);
    return kStatus;
  }
  if (way == "static") at_end().core = core;
  if (way == "handler") {
    static Core kept;
    kept = core;
    std::atexit([] { close(kept); });
  }
  if (!closes) static_cast<void>(new Core(core));  // never closed
  say_leaving();
  if (way == "_exit") ::_exit(kStatus);
  if (way == "quick") std::quick_exit(kStatus);
  if (way == "thread") {
    std::thread([] { std::exit(kStatus); }).detach();
    for (;;) ::pause();
  }
  return kStatus;
}

}  // namespace
}  // namespace kernwright

int main(int count, char** words) {
  kernwright::tell_of_crashes();
  if (count != 6) {
    std::fprintf(stderr, "usage: %s CACHE WAY MILLISECONDS DEVICE SEED\n", words[0]);
    return 2;
  }
  kernwright::Arguments arguments{words[1], words[2], words[4], std::atoi(words[3]),
                                  static_cast<unsigned>(std::atoi(words[5]))};
  return kernwright::run(arguments);
}
