#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "python/extension/python.h"

namespace kernwright::python {

/// Messages of the library on their way to a callable of Python. They come from any thread, also at
/// the interpreter's end, and from a thread that holds locks which a thread with the GIL waits for.
/// So a thread that adds a message does not wait for the GIL.
class LogQueue : public std::enable_shared_from_this<LogQueue> {
 public:
  /// `receiver` is called with a level and a text.
  explicit LogQueue(PyObject* receiver) : receiver_(Ref::to(receiver)) {}

  /// Takes a message. The main thread hands it on soon, if nobody does before.
  void tell(int level, const char* message);

  /// Hands on the messages so far, with the GIL. Errors of the receiver are reported and go no
  /// further. Returns false with a Python error set if the receiver raises something other than an
  /// Exception, such as KeyboardInterrupt.
  bool hand_on();

 private:
  static int hand_on_later(void* queue);

  const Ref receiver_;
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> messages_;
  bool is_announced_ = false;
};

}  // namespace kernwright::python
