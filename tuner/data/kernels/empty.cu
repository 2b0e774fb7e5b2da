// What launching costs when there is nothing to do.
extern "C" __global__ void empty() {}
