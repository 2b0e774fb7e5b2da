#pragma once

#include <functional>
#include <memory>

#include "python/extension/log_queue.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// A service of the library and the queue that its messages go to; null if nobody receives them.
struct ServiceState {
  kw_service* handle = nullptr;
  std::shared_ptr<LogQueue> log;
};

/// Runs `work` on a thread of its own and waits for it without the GIL. Meanwhile the handlers of
/// signals run as in any Python code. If one raises, as Ctrl-C's does, the tunings of `service` are
/// stopped, and once `work` has ended the result is false with the Python error set. `work` holds
/// no GIL and does not throw. `meanwhile` is called with the GIL from time to time; if it returns
/// false, with a Python error set, that counts as if a handler had raised. Messages are handed on
/// meanwhile.
bool run_interruptibly(const ServiceState& service, const std::function<void()>& work,
                       const std::function<bool()>& meanwhile = {});

}  // namespace kernwright::python
