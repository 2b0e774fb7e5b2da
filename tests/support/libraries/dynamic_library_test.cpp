#include "support/libraries/dynamic_library.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "support/processes/process_exit.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibraryTest, OpensTheFirstThatLoads) {
  const DynamicLibrary library =
      must(DynamicLibrary::open({"/no/such/library.so", "libc.so.6", "libm.so.6"}));
  EXPECT_EQ(library.name(), "libc.so.6");
  EXPECT_NE(library.symbol("getpid"), nullptr);
  EXPECT_EQ(library.symbol("no_such_symbol"), nullptr);
}

TEST(DynamicLibraryTest, FailureTellsEveryAttempt) {
  EXPECT_THAT(DynamicLibrary::open({"libone_missing.so", "/two/missing.so"}),
              Fails(ErrorCode::unavailable, ::testing::AllOf(HasSubstr("libone_missing.so"),
                                                             HasSubstr("/two/missing.so"))));
}

TEST(DynamicLibraryTest, PathsWhereNothingLiesAreCountedNotListed) {
  const Result<DynamicLibrary> library =
      DynamicLibrary::open({"/one/missing.so", "/two/missing.so", "/proc/self/status"});
  ASSERT_FALSE(library);
  const std::string& message = library.error().message;
  EXPECT_THAT(message, ::testing::Not(HasSubstr("/one/missing.so")));
  EXPECT_THAT(message, HasSubstr("nothing at 2 paths"));
  EXPECT_THAT(message, HasSubstr("/proc/self/status: ")) << "it is there, and no library";
}

/// Exits while another thread loads, on a thread that is our users' or on one of somebody else.
[[noreturn]] void exit_while_it_loads(bool used) {
  if (used) {
    const BeforeExit begun;
  }
  std::atexit([] { std::_Exit(0); });  // before what of the loader waits for a load
  std::array<int, 2> begun{};
  if (::pipe(begun.data()) != 0) std::_Exit(1);
  ::setenv("SLOW_LIBRARY", std::to_string(begun[1]).c_str(), 1);
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe");
  std::thread([library = here.parent_path() / "libslow_library.so"] {
    if (!DynamicLibrary::open({library.native()})) std::_Exit(1);
  }).detach();
  char byte = 0;
  if (::read(begun[0], &byte, 1) != 1) std::_Exit(1);
  std::exit(2);
}

[[noreturn]] void exit_and_load() {
  std::atexit([] { std::_Exit(DynamicLibrary::open({"libc.so.6"}) ? 1 : 0); });
  heed_exit();
  std::exit(2);
}

TEST(DynamicLibraryDeathTest, TheExitWaitsForALoadAndNoneBeginsThen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_it_loads(true), testing::ExitedWithCode(0), "slow library: loaded");
  EXPECT_EXIT(exit_while_it_loads(false), testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit_and_load(), testing::ExitedWithCode(0), "");
}

/// With the folder of the toolkit named, as long as this lives.
class ChosenToolkit {
 public:
  explicit ChosenToolkit(const char* folder) {
    if (const char* before = std::getenv(kName)) before_ = before;
    folder ? ::setenv(kName, folder, 1) : ::unsetenv(kName);
  }
  ~ChosenToolkit() { before_.empty() ? ::unsetenv(kName) : ::setenv(kName, before_.c_str(), 1); }

 private:
  static constexpr const char* kName = "KERNWRIGHT_CUDA_PATH";
  std::string before_;
};

TEST(DynamicLibraryTest, AToolkitIsLookedForByTheLoaderFirst) {
  const ChosenToolkit none(nullptr);
  const std::vector<std::string> names = toolkit_library_names("libnvrtc.so", {"13", "12"});
  const auto at = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_EQ(names.front(), "libnvrtc.so.13");
  EXPECT_LT(at("libnvrtc.so.13"), at("libnvrtc.so.12"));
  EXPECT_LT(at("libnvrtc.so.12"), at("/usr/local/cuda/lib64/libnvrtc.so.13"));
  EXPECT_LT(at("/usr/local/cuda/lib64/libnvrtc.so.13"),
            at("/usr/local/cuda/nvidia/cu13/lib/libnvrtc.so.13"));
  EXPECT_LT(at("/usr/local/cuda/nvidia/cu13/lib/libnvrtc.so.13"),
            static_cast<std::ptrdiff_t>(names.size()));
}

TEST(DynamicLibraryTest, TheFolderAskedForIsTheOnlyOne) {
  const ChosenToolkit chosen("/asked/for");
  for (const std::string& name : toolkit_library_names("libnvrtc.so", {"13", "12"})) {
    EXPECT_EQ(name.rfind("/asked/for/", 0), 0U) << name;
  }
  // libc is there by the loader's search, and is not what was asked for.
  const Result<DynamicLibrary> library = open_toolkit_library("libc.so", {"6"});
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().message.rfind(
                "KERNWRIGHT_CUDA_PATH is /asked/for, and libc.so is not there", 0),
            0U)
      << library.error().message;
}

}  // namespace
}  // namespace kernwright
