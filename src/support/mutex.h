#pragma once

#include <mutex>

// Clang's thread safety analysis: which mutex guards a member, and which a function needs. Other
// compilers see nothing.
#ifdef __clang__
#define KW_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define KW_THREAD_ANNOTATION(x)
#endif

#define KW_CAPABILITY(name) KW_THREAD_ANNOTATION(capability(name))
#define KW_SCOPED_CAPABILITY KW_THREAD_ANNOTATION(scoped_lockable)
#define KW_GUARDED_BY(mutex) KW_THREAD_ANNOTATION(guarded_by(mutex))
#define KW_REQUIRES(...) KW_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define KW_ACQUIRE(...) KW_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define KW_RELEASE(...) KW_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace kernwright {

/// A std::mutex that Clang's analysis knows; libstdc++ does not annotate its own. A
/// std::condition_variable_any waits with it.
class KW_CAPABILITY("mutex") Mutex {
 public:
  void lock() KW_ACQUIRE() { mutex_.lock(); }
  void unlock() KW_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a mutex until the end of the scope.
class KW_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KW_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() KW_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace kernwright
