#include "python/extension/log_queue.h"

#include "python/extension/errors.h"

namespace kernwright::python {

void LogQueue::tell(int level, const char* message) {
  const std::lock_guard lock(mutex_);
  messages_.emplace_back(level, message);
  if (is_announced_) return;
  auto self = std::make_unique<std::shared_ptr<LogQueue>>(shared_from_this());
  is_announced_ = Py_AddPendingCall(hand_on_later, self.get()) == 0;
  if (is_announced_) self.release();  // NOLINT(bugprone-unused-return-value): it comes back
}

int LogQueue::hand_on_later(void* queue) {
  const std::unique_ptr<std::shared_ptr<LogQueue>> self(
      static_cast<std::shared_ptr<LogQueue>*>(queue));
  {
    const std::lock_guard lock((*self)->mutex_);
    (*self)->is_announced_ = false;
  }
  return (*self)->hand_on() ? 0 : -1;
}

bool LogQueue::hand_on() {
  std::vector<std::pair<int, std::string>> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(messages_);
  }
  for (const auto& [level, message] : messages) {
    const Ref text(text_from(message.c_str()));
    const Ref answer(text ? PyObject_CallFunction(receiver_.get(), "iO", level, text.get())
                          : nullptr);
    if (answer) continue;
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
    PyErr_WriteUnraisable(receiver_.get());
  }
  return true;
}

}  // namespace kernwright::python
