#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/driver/driver.h"

namespace kernwright {

/// A driver that executes nothing. It records calls, hands out handles, counts living objects, and
/// fails when a test says so. Its functions are in `api()`, which is valid as long as the object
/// lives. There is one at a time.
class FakeDriver {
 public:
  /// One kernel launch as the driver saw it, from a stream or as a graph node.
  struct Launch {
    std::string kernel;
    std::vector<unsigned int> geometry;  ///< grid, block, dynamic shared memory
    std::map<int, CUlaunchAttributeValue> attributes;
    std::vector<std::vector<std::byte>> arguments;
    CUstream stream = nullptr;
    bool in_graph = false;
    std::vector<CUgraphNode> after;  ///< ordinary edges
    CUgraphNode programmatic_after = nullptr;
    CUgraphNode node = nullptr;

    /// The low bytes of one argument, as a number.
    std::uint64_t value(std::size_t argument) const;
  };
  struct Fill {
    CUdeviceptr to = 0;
    std::size_t bytes = 0;
    bool in_graph = false;
    CUgraphNode node = nullptr;
  };
  struct Mapping {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
  };
  /// Memory of a pool, from its taking to its return.
  struct PoolMemory {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    CUstream taken_on = nullptr;
    CUstream returned_on = nullptr;
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

  // Set by the test.
  std::map<std::string, CUresult> failures;                 ///< by function
  std::map<std::string, std::vector<std::size_t>> kernels;  ///< parameter sizes by name
  std::map<int, int> kernel_attributes{{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}};
  std::map<int, int> device_attributes;
  CUresult stream_state = CUDA_SUCCESS;  ///< what the stream is found in
  CUresult side_stream_state = CUDA_SUCCESS;
  float elapsed_ms = 1;
  /// The values that the stamp kernel reads, clock cycles and nanoseconds. They grow by
  /// `stamp_step` each time.
  std::array<std::uint64_t, 2> stamp{1'000, 1'000};
  std::array<std::uint64_t, 2> stamp_step{0, 0};
  /// The time that launches of graphs take the calling thread, by kernel. Null: no time.
  std::function<std::chrono::microseconds(const Launch&)> takes;
  bool launches_wait = false;  ///< as under compute-sanitizer: a launch returns when it has run
  CUcontext current = nullptr;
  CUdevice current_device = 0;                       ///< the device of `current`
  std::set<CUdeviceptr> unreachable;                 ///< addresses that no GPU can reach
  std::map<CUdeviceptr, std::vector<int>> integers;  ///< what copies to the host find
  /// The state of every stream. A call that is not allowed in a capture makes it invalid, unless
  /// the mode is relaxed.
  CUstreamCaptureStatus capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  ///< of the calling thread
  cuuint64_t capture = 1;                        ///< its number, if there is one
  std::map<CUstream, std::uint64_t> stream_ids;  ///< of streams that have another than their handle
  CUcontext stream_context = nullptr;            ///< of each stream; null: `current`

  // Recorded calls.
  std::vector<Launch> launches;
  /// The last arguments of the nodes of each executable graph, in the graph's order.
  std::map<CUgraphExec, std::vector<Launch>> executables;
  std::vector<CUgraphExec> graph_launches;
  std::vector<Fill> fills;
  std::vector<PoolMemory> pool_memory;
  cuuint64_t pool_keeps = 0;  ///< bytes that pools do not return to the system
  std::vector<Encoding> encodings;
  std::vector<Mapping> reserved;
  std::vector<Mapping> mapped;
  std::map<int, int> set_attributes;
  std::vector<std::string> calls;    ///< names of what changes something, in order
  std::multiset<std::string> alive;  ///< kinds of objects not destroyed yet
  int destroyed_twice = 0;
  cuuint32_t* gate_word = nullptr;
  cuuint32_t gate_value = 0;  ///< what the stream waits for
  int open_launches = 0;      ///< of graphs, while the gate was open

  /// Registers a call; the injected failure, or success.
  CUresult enter(const char* function);
  template <typename Handle>
  CUresult create(const char* function, const char* kind, Handle* handle);
  template <typename Handle>
  CUresult destroy(const char* function, Handle handle);
  /// Does what happens when a graph and all that was made from it are destroyed.
  void end_graph(cuuint64_t of_capture);

 private:
  void write_stamp(const Launch& launch);
  void change_node(CUgraphNode node, const std::function<void(Launch&)>& change);

  CUstream main_stream_ = nullptr;
  std::vector<CUcontext> pushed_;
  std::map<CUgraph, std::vector<Launch>> graphs_;
  std::map<std::uint64_t, std::string> kinds_;
  std::uint64_t next_handle_ = 0x1000;
  std::map<void*, std::vector<std::uint64_t>> host_memory_;
  /// The calls at the end of each capture's graph, and of objects that no graph has yet.
  std::map<cuuint64_t, std::vector<std::function<void()>>> at_end_;
  std::map<CUuserObject, std::function<void()>> user_objects_;
  DriverApi api_;
};

}  // namespace kernwright
