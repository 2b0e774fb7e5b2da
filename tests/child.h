#pragma once

#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "support/processes/threads.h"

namespace kernwright {

/// Runs `body`, which returns an exit status, in a forked process. SIGALRM ends a process that
/// hangs. Returns the exit status, or minus the signal that ended it.
template <typename Body>
int in_child(const Body& body) {
  constexpr unsigned kSeconds = 120;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSeconds);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Changes the user of this process to one without other processes, who may have `threads` threads.
/// Returns false if the process may not change its user, or the limit has no effect here.
inline bool limit_threads(rlim_t threads) {
  constexpr uid_t kNobodyElse = 54321;
  if (::geteuid() == 0 && (::setgid(kNobodyElse) != 0 || ::setuid(kNobodyElse) != 0)) return false;
  rlimit limit{1, threads};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) return false;
  try {
    std::thread([] {}).join();
    return false;
  } catch (const std::system_error&) {
    limit.rlim_cur = threads;
    return ::setrlimit(RLIMIT_NPROC, &limit) == 0;
  }
}

/// Returns false if an earlier test of this process started threads of the library, which refuses
/// work in a forked process then. (ctest runs each test in a process of its own.)
inline bool forks_start_threads() {
  return in_child([] { return check_not_forked() ? 0 : 1; }) == 0;
}
constexpr const char* kThreadsStarted = "an earlier test of this process has started threads";

}  // namespace kernwright
