#include "support/processes/file_lock.h"

#include <cerrno>
#include <sys/file.h>

namespace kernwright {

LockAttempt try_lock(int file) {
  // A call that does not wait is hardly ever interrupted. Some file systems always say that it was.
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return LockAttempt::taken;
    if (errno == EWOULDBLOCK) return LockAttempt::busy;
    if (errno != EINTR) break;
  }
  return LockAttempt::failed;
}

}  // namespace kernwright
