#pragma once

#include <clocale>
#include <cstdlib>
#include <string>

#include "tests/temp_dir.h"

namespace kernwright {

/// The process's locale while it lives is German, with a decimal comma: the machine's, or one that
/// localedef makes for the test.
class CommaLocale {
 public:
  CommaLocale() {
    if (set()) return;
    const std::string make =
        "localedef -c -i de_DE -f UTF-8 " + (folder_ / "de_DE.utf8").string() + " > /dev/null 2>&1";
    if (std::system(make.c_str()) == 0) {
      ::setenv("LOCPATH", folder_.path().c_str(), 1);
      set();
    }
  }
  ~CommaLocale() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  /// Returns why a test must be skipped; empty if it need not be.
  std::string missing() const {
    return *std::localeconv()->decimal_point == ',' ? "" : "no German locale, and none can be made";
  }

 private:
  static bool set() { return std::setlocale(LC_ALL, "de_DE.utf8") != nullptr; }

  ScopedTempDir folder_;
};

}  // namespace kernwright
