// A kernel without work, for measuring the cost of launches.
extern "C" __global__ void empty() {}
