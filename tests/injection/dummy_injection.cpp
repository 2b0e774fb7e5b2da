// Looks to CUDA like a profiler's injection library. If CUDA_INJECTION64_PATH names it, the driver
// loads it while CUDA initialises, and calls it to start. It does nothing.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() { return 1; }
