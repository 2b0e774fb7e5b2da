#pragma once

namespace kernwright {

/// Keeps NVRTC from taking signals from the process. While its front end compiles it replaces the
/// handlers of SIGINT and SIGTERM by one that ends the process, with status 0 or 4 and without a
/// word: a Ctrl-C or a graceful end that falls into a compile would never reach the program's own
/// handlers. It asks `signal` whether a signal is ignored and then leaves it alone, so the
/// library's own reference to `signal` is led to a function that says so. `function` is one of
/// NVRTC's. If there is no such reference, nothing is changed.
void keep_signals_from_nvrtc(const void* function);

}  // namespace kernwright
