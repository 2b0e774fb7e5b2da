#pragma once
// The parts of the CUDA driver that an example needs, loaded with dlopen so that the examples build
// without the CUDA Toolkit. A program that uses CUDA has its own contexts and buffers and needs
// none of this.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

/// GPU 0 with its primary context current in this thread. A failing call ends the program.
class Gpu {
 public:
  using Address = unsigned long long;  // CUdeviceptr

  /// Opens GPU 0. Returns why there is no GPU to use; empty if there is one.
  std::string open() {
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    if (library_ == nullptr) return dlerror();
    if (const int code = call<unsigned>("cuInit", 0); code != 0) {
      return "cuInit returns error " + std::to_string(code);
    }
    int device = 0;
    check("cuDeviceGet", call<int*, int>("cuDeviceGet", &device, 0));
    void* context = nullptr;
    check("cuDevicePrimaryCtxRetain",
          call<void**, int>("cuDevicePrimaryCtxRetain", &context, device));
    check("cuCtxSetCurrent", call<void*>("cuCtxSetCurrent", context));
    return {};
  }

  Address allocate(std::size_t bytes) {
    Address address = 0;
    check("cuMemAlloc", call<Address*, std::size_t>("cuMemAlloc_v2", &address, bytes));
    return address;
  }

  /// Allocates device memory with a copy of `values`.
  template <typename T>
  Address upload(const std::vector<T>& values) {
    const Address address = allocate(values.size() * sizeof(T));
    write(address, values);
    return address;
  }

  /// Copies `values` to `address`.
  template <typename T>
  void write(Address address, const std::vector<T>& values) {
    check("cuMemcpyHtoD",
          call<Address, const void*, std::size_t>("cuMemcpyHtoD_v2", address, values.data(),
                                                  values.size() * sizeof(T)));
  }

  /// Downloads `count` elements from `address`, once all work before has finished.
  template <typename T>
  std::vector<T> download(Address address, std::size_t count) {
    std::vector<T> values(count);
    check("cuMemcpyDtoH", call<void*, Address, std::size_t>("cuMemcpyDtoH_v2", values.data(),
                                                            address, count * sizeof(T)));
    return values;
  }

  /// Makes a stream. Copies wait for the work on it, and it waits for copies.
  void* make_stream() {
    void* stream = nullptr;
    check("cuStreamCreate", call<void**, unsigned>("cuStreamCreate", &stream, 0));
    return stream;
  }

  /// Returns the time in microseconds that the work of `enqueue` takes on `stream`.
  template <typename Enqueue>
  double elapsed_us(void* stream, const Enqueue& enqueue) {
    void* events[2] = {};
    for (void*& event : events) {
      check("cuEventCreate", call<void**, unsigned>("cuEventCreate", &event, 0));
    }
    check("cuEventRecord", call<void*, void*>("cuEventRecord", events[0], stream));
    enqueue();
    check("cuEventRecord", call<void*, void*>("cuEventRecord", events[1], stream));
    synchronize();
    float ms = 0;
    check("cuEventElapsedTime",
          call<float*, void*, void*>("cuEventElapsedTime", &ms, events[0], events[1]));
    for (void* event : events) check("cuEventDestroy", call<void*>("cuEventDestroy_v2", event));
    return static_cast<double>(ms) * 1e3;
  }

  std::string name() {
    char text[256] = {};
    check("cuDeviceGetName", call<char*, int, int>("cuDeviceGetName", text, sizeof text, 0));
    return text;
  }

  /// Returns the bytes that the memory can deliver in a second: two a clock and pin.
  double bytes_per_second() {
    constexpr int kClockKhz = 36, kBusBits = 37;  // CU_DEVICE_ATTRIBUTE_..
    int clock = 0, bits = 0;
    check("cuDeviceGetAttribute",
          call<int*, int, int>("cuDeviceGetAttribute", &clock, kClockKhz, 0));
    check("cuDeviceGetAttribute", call<int*, int, int>("cuDeviceGetAttribute", &bits, kBusBits, 0));
    return 2e3 * clock * bits / 8;
  }

  void synchronize() { check("cuCtxSynchronize", call<>("cuCtxSynchronize")); }

 private:
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) {
    void* function = dlsym(library_, name);
    if (function == nullptr) check(name, -1);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  }

  static void check(const char* what, int code) {
    if (code == 0) return;
    std::fprintf(stderr, "%s returns error %d\n", what, code);
    std::exit(1);
  }

  void* library_ = nullptr;
};
