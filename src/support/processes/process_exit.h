#pragma once

namespace kernwright {

/// Returns true once this process exits: `exit` was called, or `main` returned. Its other threads
/// go on while libraries are torn down, the CUDA driver and the compilers among them. So from then
/// on nothing of ours is started, freed or told to users, and everything that waits gives up soon.
bool exiting();

/// Lets the exit of the process wait for our work (see `BeforeExit`) before it goes on. Handlers
/// run in the reverse order of their registration, and a library registers its own when it is
/// loaded. So this is called after each load of a library that work uses, once for each:
///
///     [[maybe_unused]] static const bool heeded = heed_exit();
bool heed_exit();

/// Work that must not run while libraries are torn down. The exit of the process waits for the work
/// that other threads have begun.
class BeforeExit {
 public:
  enum class Wait {
    briefly,   ///< a second: it may be held up by a kernel, or by another process
    patiently  ///< a minute: it would crash if it went on
  };

  explicit BeforeExit(Wait wait = Wait::briefly);
  BeforeExit(const BeforeExit&) = delete;
  BeforeExit& operator=(const BeforeExit&) = delete;
  ~BeforeExit();

  /// Returns false if the process exits: the work must not be done.
  explicit operator bool() const { return begun_; }

 private:
  Wait wait_;
  bool begun_;
};

}  // namespace kernwright
