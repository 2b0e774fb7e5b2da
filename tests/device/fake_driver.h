#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/driver.h"

namespace kernwright {

/// A driver that executes nothing: it records what it is asked, hands out handles, counts what is
/// alive and fails where it is told to. Answers through `api()` as long as it lives; one at a time.
class FakeDriver {
 public:
  /// One kernel launch as the driver saw it, from a stream or as a graph node.
  struct Launch {
    std::string kernel;
    std::vector<unsigned int> geometry;  ///< grid, block, dynamic shared memory
    std::map<int, CUlaunchAttributeValue> attributes;
    std::vector<std::vector<std::byte>> arguments;
    bool in_graph = false;
    std::vector<CUgraphNode> after;  ///< ordinary edges
    CUgraphNode programmatic_after = nullptr;
    CUgraphNode node = nullptr;
  };
  struct Fill {
    CUdeviceptr to = 0;
    std::size_t bytes = 0;
    bool in_graph = false;
    CUgraphNode node = nullptr;
  };
  struct Encoding {
    CUtensorMapDataType type;
    std::vector<cuuint64_t> dims;
    std::vector<cuuint64_t> strides;
    std::vector<cuuint32_t> box;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
  };

  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const DriverApi& api() const { return api_; }

  /// Bytes that pass for a cubin.
  static std::string cubin();

  // What the test sets.
  std::map<std::string, CUresult> failures;                 ///< by function
  std::map<std::string, std::vector<std::size_t>> kernels;  ///< parameter sizes by name
  std::map<int, int> kernel_attributes{{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}};
  std::map<int, int> device_attributes;
  CUresult stream_state = CUDA_SUCCESS;  ///< what the stream is found in
  float elapsed_ms = 1;
  bool launches_wait = false;  ///< as under compute-sanitizer: a launch returns when it has run
  CUcontext current = nullptr;

  // What the driver saw.
  std::vector<Launch> launches;
  std::vector<Fill> fills;
  std::vector<Encoding> encodings;
  std::map<int, int> set_attributes;
  std::vector<std::string> calls;    ///< names of what changes something, in order
  std::multiset<std::string> alive;  ///< kinds of objects not destroyed yet
  int destroyed_twice = 0;
  cuuint32_t* gate_word = nullptr;
  cuuint32_t gate_value = 0;  ///< what the stream waits for

  /// Registers a call; the injected failure, or success.
  CUresult enter(const char* function);
  template <typename Handle>
  CUresult create(const char* function, const char* kind, Handle* handle);
  template <typename Handle>
  CUresult destroy(const char* function, Handle handle);

 private:
  std::map<std::uint64_t, std::string> kinds_;
  std::uint64_t next_handle_ = 0x1000;
  cuuint32_t host_memory_ = 0;
  DriverApi api_;
};

}  // namespace kernwright
