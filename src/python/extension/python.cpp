#include "python/extension/python.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace kernwright::python {
namespace {

// The thread that ends the interpreter is written before `ends` tells that there is one.
pthread_t ending_thread;
std::atomic<bool> ends{false};

/// Ends the process before the destructors of libraries run, if threads use these libraries.
void leave(int status, void*) {
  if (threads_without_gil.load() == 0) return;
  std::fflush(nullptr);
  ::_exit(status);
}

PyObject* notice_exit(PyObject*, PyObject*) {
  // Another interpreter than the main one may end while the process goes on.
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) {
    ending_thread = pthread_self();
    ends.store(true, std::memory_order_release);
    ::on_exit(leave, nullptr);  // registered last, it runs before all others
    for (int i = 0; i < 1000 && threads_in_foreign_calls > 0; ++i) {
      const WithoutGil released;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Py_RETURN_NONE;
}

PyMethodDef exit_notice = {"notice_exit", notice_exit, METH_NOARGS, nullptr};

}  // namespace

std::atomic<int> threads_without_gil{0};
int threads_in_foreign_calls = 0;

bool is_left_behind() {
  return ends.load(std::memory_order_acquire) && pthread_equal(pthread_self(), ending_thread) == 0;
}

void wait_for_exit() {
  for (;;) ::pause();
}

bool watch_exit() {
  const Ref module(PyImport_ImportModule("atexit"));
  const Ref function(PyCFunction_New(&exit_notice, nullptr));
  return module && function &&
         static_cast<bool>(Ref(PyObject_CallMethod(module.get(), "register", "O", function.get())));
}

}  // namespace kernwright::python
