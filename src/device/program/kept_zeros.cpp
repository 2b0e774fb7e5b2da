#include "device/program/kept_zeros.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/driver/handles.h"
#include "device/program/context_memory.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kLeastBlock = 4096;
constexpr std::size_t kLeastChunk = 1 << 20;

std::atomic<std::uint64_t> states_made{0};

}  // namespace

class KeptZeros::State {
 public:
  explicit State(const DriverApi& api) : api_(api) {}

  DevicePointer of(CUstream stream, std::size_t bytes);

 private:
  struct Block {
    DevicePointer address = 0;
    std::size_t bytes = 0;
  };

  /// Launches that follow each other.
  struct Line {
    std::uint64_t stream = 0;   ///< the driver's number, which no later one gets; in a capture its
                                ///< handle
    std::uint64_t capture = 0;  ///< the driver's number; 0 outside of captures

    auto operator<=>(const Line&) const = default;
  };

  /// Lines whose graphs, and all that was made from them, are destroyed.
  struct EndedLines {
    std::mutex mutex;
    std::vector<Line> lines;
  };

  struct EndOfLine {
    std::shared_ptr<EndedLines> ended;
    Line line;
  };

  /// Called by the driver, which must not be called from here.
  static void CUDA_CB end_line(void* given) {
    const std::unique_ptr<EndOfLine> end(static_cast<EndOfLine*>(given));
    const std::lock_guard lock(end->ended->mutex);
    end->ended->lines.push_back(end->line);
  }

  DevicePointer take(const Line& line, CUstream stream, CUgraph graph, std::size_t bytes);
  Result<Block> block_of(std::size_t bytes);
  Result<void> add_chunk(std::size_t bytes);
  bool keep(const Line& line, CUgraph graph);
  bool has_our_context(CUstream stream);
  void take_back_ended();

  const DriverApi& api_;
  const std::uint64_t number_ = ++states_made;
  std::mutex mutex_;
  CUcontext context_ = nullptr;  ///< of all memory
  std::vector<ContextMemory> chunks_;
  Block left_;  ///< of the last chunk
  std::vector<Block> free_;
  std::map<Line, std::vector<Block>> used_;
  std::size_t streams_ = 0;
  std::shared_ptr<EndedLines> ended_ = std::make_shared<EndedLines>();
};

[[gnu::hot]] DevicePointer KeptZeros::State::of(CUstream stream, std::size_t bytes) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  if (api_.stream_get_capture_info(stream, &status, &capture, &graph, nullptr, nullptr, nullptr) !=
      CUDA_SUCCESS) {
    return 0;
  }
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return 0;
  Line line;
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    // To ask for the number would end the capture, and this handle is of a stream in each thread.
    if (stream == CU_STREAM_PER_THREAD) return 0;
    line = {reinterpret_cast<std::uintptr_t>(stream), capture};
  } else {
    unsigned long long id = 0;  // NOLINT(google-runtime-int): the driver's type
    if (api_.stream_get_id(stream, &id) != CUDA_SUCCESS) return 0;
    line.stream = id;
  }
  struct Last {
    std::uint64_t state = 0;
    Line line;
    Block block;
  };
  thread_local Last last;
  if (last.state != number_ || last.line != line || last.block.bytes < bytes) [[unlikely]] {
    const DevicePointer taken = take(line, stream, graph, bytes);
    if (taken == 0) return 0;
    last = {number_, line, {taken, bytes}};
  }
  return last.block.address;
}

/// Returns the address of a block of the line, of which it gets a larger one if it must. Kernels
/// that run use the smaller ones, so these stay the line's.
DevicePointer KeptZeros::State::take(const Line& line, CUstream stream, CUgraph graph,
                                     std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  take_back_ended();
  const auto known = used_.find(line);
  if (known != used_.end()) {
    for (const Block& block : known->second) {
      if (block.bytes >= bytes) return block.address;
    }
  } else if (!has_our_context(stream) || (line.capture == 0 && streams_ == kMostStreams)) {
    return 0;
  }
  const Result<Block> block = block_of(std::bit_ceil(std::max(bytes, kLeastBlock)));
  if (!block) return 0;
  if (known == used_.end()) {
    if (line.capture == 0) {
      ++streams_;
    } else if (!keep(line, graph)) {
      free_.push_back(*block);
      return 0;
    }
  }
  used_[line].push_back(*block);
  return block->address;
}

Result<KeptZeros::State::Block> KeptZeros::State::block_of(std::size_t bytes) {
  const auto same = std::ranges::find(free_, bytes, &Block::bytes);
  if (same != free_.end()) {
    const Block block = *same;
    free_.erase(same);
    return block;
  }
  if (left_.bytes < bytes) KW_TRY(add_chunk(std::max(bytes, kLeastChunk)));
  const Block block{left_.address, bytes};
  left_ = {left_.address + bytes, left_.bytes - bytes};
  return block;
}

Result<void> KeptZeros::State::add_chunk(std::size_t bytes) {
  const OutsideOfCaptures allocates(api_);
  KW_ASSIGN(ContextMemory memory, ContextMemory::allocate(api_, static_cast<std::int64_t>(bytes)));
  CUstream stream = nullptr;
  DriverStatus status{"cuStreamCreate", api_.stream_create(&stream, CU_STREAM_NON_BLOCKING)};
  if (!status) return driver_error(api_, status);
  const StreamHandle owned(api_, stream);
  status = {"cuMemsetD8Async", api_.memset_d8_async(memory.address(), 0, bytes, stream)};
  if (status) status = {"cuStreamSynchronize", api_.stream_synchronize(stream)};
  if (!status) return driver_error(api_, status);
  left_ = {memory.address(), bytes};
  chunks_.push_back(std::move(memory));
  return {};
}

/// Makes the graph keep the line until it is destroyed.
bool KeptZeros::State::keep(const Line& line, CUgraph graph) {
  auto end = std::make_unique<EndOfLine>(EndOfLine{ended_, line});
  CUuserObject object = nullptr;
  if (api_.user_object_create(&object, end.get(), end_line, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) !=
      CUDA_SUCCESS) {
    return false;
  }
  [[maybe_unused]] const EndOfLine* const driver_owns = end.release();
  if (api_.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS) {
    return true;
  }
  api_.user_object_release(object, 1);
  return false;
}

bool KeptZeros::State::has_our_context(CUstream stream) {
  CUcontext context = nullptr;
  const bool is_default =
      stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  const CUresult asked =
      is_default ? api_.context_get_current(&context) : api_.stream_get_context(stream, &context);
  CUcontext current = nullptr;  // of the memory that is allocated now
  if (asked != CUDA_SUCCESS || context == nullptr) return false;
  if (api_.context_get_current(&current) != CUDA_SUCCESS || current != context) return false;
  if (context_ == nullptr) context_ = context;
  return context == context_;
}

void KeptZeros::State::take_back_ended() {
  std::vector<Line> lines;
  {
    const std::lock_guard lock(ended_->mutex);
    lines.swap(ended_->lines);
  }
  for (const Line& line : lines) {
    const auto ended = used_.find(line);
    if (ended == used_.end()) continue;
    free_.insert(free_.end(), ended->second.begin(), ended->second.end());
    used_.erase(ended);
  }
}

KeptZeros::KeptZeros(const DriverApi& api) : state_(std::make_unique<State>(api)) {}
KeptZeros::~KeptZeros() = default;

DevicePointer KeptZeros::of(CUstream stream, std::size_t bytes) const {
  return state_->of(stream, bytes);
}

}  // namespace kernwright
