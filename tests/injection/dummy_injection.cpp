// What a profiler's injection library looks like to CUDA: loaded by the driver while it
// initialises, where CUDA_INJECTION64_PATH names it, and asked to start. It does nothing.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() { return 1; }
