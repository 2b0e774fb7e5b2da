#pragma once

#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace kernwright {

/// A process that runs `body()` and exits with its value.
template <typename Body>
pid_t start_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

/// Returns the exit code of a child, or -1 if it did not end by itself.
inline int wait_for(pid_t child) {
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// Runs `body()` in a process of its own, whose limits, user and mounts it may change.
template <typename Body>
int in_child(const Body& body) {
  return wait_for(start_child(body));
}

}  // namespace kernwright
