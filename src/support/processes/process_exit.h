#pragma once

namespace kernwright {

/// Returns true once this process exits: `exit` was called, or `main` returned. Its other threads
/// go on while libraries are torn down, the CUDA driver and the compilers among them. So from then
/// on nothing of ours is started, freed or told to users, and everything that waits gives up soon.
bool exiting();

/// Lets the exit of the process wait for our work (see `BeforeExit`) before it goes on. Handlers
/// run in the reverse order of their registration, and a library registers its own when it is
/// loaded or first used. `DynamicLibrary` calls this after each load. Whoever uses a library that
/// registers more at its first use calls it after that too, once:
///
///     [[maybe_unused]] static const bool heeded = heed_exit();
bool heed_exit();

/// Work that must not run while libraries are torn down. The exit of the process waits for what
/// other threads have begun, but less than a second: a kernel or another process may hold it up.
class BeforeExit {
 public:
  enum class Late {
    goes_on,  ///< the exit goes on beside it
    /// It is within a library and would crash. So the process ends at once, with its status and
    /// with its files of <cstdio> flushed, and without the handlers that are left.
    ends,
    /// It registers exit handlers of its own. Threads that have begun work end after it, and so
    /// does their exit; another thread's exit ends the process as above, without waiting.
    loads
  };

  explicit BeforeExit(Late late = Late::goes_on);
  BeforeExit(const BeforeExit&) = delete;
  BeforeExit& operator=(const BeforeExit&) = delete;
  ~BeforeExit();

  /// Returns false if the process exits: the work must not be done.
  explicit operator bool() const { return begun_; }

 private:
  Late late_;
  bool begun_;
};

/// Holds the calling thread for almost a second where another one exits the process. A thread that
/// ends then, as hosts' threads do once a lookup fails, runs what libraries do at a thread's end
/// while they are torn down. It is held no longer, because an exit handler may wait for it.
void linger_while_exiting();

}  // namespace kernwright
