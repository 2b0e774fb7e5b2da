#include "device/timing/timed_graph.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Launches behind a closed gate must not fill the stream's queue: the host would block, and could
/// not open the gate. Replays beyond this number of nodes are enqueued while the first ones run.
/// Graphs with more nodes have no gate; they last so long that the host's few microseconds do not
/// show.
constexpr int kMaxGatedNodes = 256;
/// A sample is enqueued in microseconds. A gate that is shut at two looks, this far apart, blocks
/// the thread that should open it.
constexpr std::chrono::milliseconds kPatience{150};

Result<ContextOwned<EventHandle>> make_event(const std::shared_ptr<CudaContext>& context) {
  CUevent event = nullptr;
  KW_TRY(context->check({"cuEventCreate", context->api().event_create(&event, CU_EVENT_DEFAULT)}));
  return ContextOwned<EventHandle>(context, EventHandle(context->api(), event));
}

}  // namespace

Result<std::unique_ptr<StreamGate>> StreamGate::make(const std::shared_ptr<CudaContext>& context) {
  const DriverApi& api = context->api();
  void* word = nullptr;
  KW_TRY(context->check({"cuMemHostAlloc", api.mem_host_alloc(&word, sizeof(std::uint32_t),
                                                              CU_MEMHOSTALLOC_DEVICEMAP)}));
  ContextOwned<HostMemoryHandle> owned(context, HostMemoryHandle(api, word));
  *static_cast<std::uint32_t*>(word) = 0;
  CUdeviceptr address = 0;
  KW_TRY(context->check(
      {"cuMemHostGetDevicePointer", api.mem_host_get_device_pointer(&address, word, 0)}));
  std::unique_ptr<StreamGate> gate(new StreamGate(std::move(owned), address));
  KW_ASSIGN(gate->watcher_, Thread::start([raw = gate.get()] { raw->watch(); }));
  return gate;
}

StreamGate::~StreamGate() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  watcher_.join();
}

Result<void> StreamGate::close() {
  CudaContext& context = word_.context();
  shut_ = ticket_ + 1;
  return context.check({"cuStreamWaitValue32",
                        context.api().stream_wait_value32(context.stream(), address_, ++ticket_,
                                                          CU_STREAM_WAIT_VALUE_GEQ)});
}

void StreamGate::open() {
  shut_ = 0;
  release(ticket_);
}

void StreamGate::release(std::uint32_t ticket) {
  std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(word_.handle().get()));
  // The word never goes back: the watcher may be late, and the next sample's gate open already.
  std::uint32_t now = word.load(std::memory_order_relaxed);
  while (now < ticket && !word.compare_exchange_weak(now, ticket, std::memory_order_release)) {
  }
}

void StreamGate::watch() {
  const MutexLock lock(mutex_);
  std::uint32_t seen = 0;
  for (;;) {
    const auto look = std::chrono::steady_clock::now() + kPatience;
    while (!stop_ && stopped_.wait_until(mutex_, look) == std::cv_status::no_timeout) {
    }
    if (stop_) return;
    const std::uint32_t ticket = shut_;
    if (ticket != 0 && ticket == seen) {
      forced_ = true;
      release(ticket);
    }
    seen = ticket;
  }
}

Result<std::unique_ptr<TimedGraph>> TimedGraph::make(
    const std::shared_ptr<CudaContext>& context, std::span<const std::vector<SequenceStep>> sets,
    int units) {
  const DriverApi& api = context->api();
  CUgraph graph = nullptr;
  KW_TRY(context->check({"cuGraphCreate", api.graph_create(&graph, 0)}));
  const ContextOwned<GraphHandle> owned_graph(context, GraphHandle(api, graph));
  GraphTail tail;
  for (int unit = 0; unit < units; ++unit) {
    for (const SequenceStep& step : sets[static_cast<std::size_t>(unit) % sets.size()]) {
      KW_TRY(context->check(step.program->append_to(graph, context->context(), step.arguments, tail,
                                                    nullptr, step.early)));
    }
  }
  CUgraphExec exec = nullptr;
  KW_TRY(context->check({"cuGraphInstantiate", api.graph_instantiate(&exec, graph, 0)}));
  ContextOwned<GraphExecHandle> owned_exec(context, GraphExecHandle(api, exec));
  KW_TRY(context->check({"cuGraphUpload", api.graph_upload(exec, context->stream())}));
  KW_TRY(context->wait());
  KW_ASSIGN(ContextOwned<EventHandle> begin, make_event(context));
  KW_ASSIGN(ContextOwned<EventHandle> end, make_event(context));
  std::unique_ptr<TimedGraph> timed(
      new TimedGraph(std::move(owned_exec), std::move(begin), std::move(end), units, tail.nodes));
  for (const std::vector<SequenceStep>& set : sets) {
    for (const SequenceStep& step : set) {
      const std::pair used{step.program, step.arguments.workspace};
      if (std::ranges::find(timed->used_, used) == timed->used_.end()) timed->used_.push_back(used);
    }
  }
  return timed;
}

Result<void> TimedGraph::enqueue(StreamGate* gate, ClockStamps* stamps) {
  CudaContext& context = exec_.context();
  const DriverApi& api = context.api();
  const auto stamp = [&](ClockStamps::Place place) {
    return stamps ? context.check(stamps->enqueue(place)) : Result<void>();
  };
  const auto record = [&](const ContextOwned<EventHandle>& event) {
    return context.check(
        {"cuEventRecord", api.event_record(event.handle().get(), context.stream())});
  };
  // Other graphs use the same memory between two samples.
  for (const auto& [program, workspace] : used_) {
    KW_TRY(context.check(program->zero_kept(context.stream(), workspace)));
  }
  KW_TRY(stamp(ClockStamps::Place::before));
  KW_TRY(record(begin_));
  for (int replay = 0; replay < replays; ++replay) {
    if (gate && (replay + 1) * nodes_ > kMaxGatedNodes) gate->open();
    KW_TRY(
        context.check({"cuGraphLaunch", api.graph_launch(exec_.handle().get(), context.stream())}));
  }
  KW_TRY(record(end_));
  return stamp(ClockStamps::Place::after);
}

Result<Sample> TimedGraph::sample(StreamGate* gate, ClockStamps* stamps, TimerCheck& check) {
  CudaContext& context = exec_.context();
  if (nodes_ > kMaxGatedNodes || (gate && !gate->usable())) gate = nullptr;
  if (gate) {
    KW_TRY(gate->close());
  }
  const Result<void> enqueued = enqueue(gate, stamps);
  // Opened on failure too, because work behind a closed gate never ends.
  if (gate) gate->open();
  if (!enqueued) return enqueued.error();
  KW_TRY(context.wait());
  float milliseconds = 0;
  KW_TRY(context.check(
      {"cuEventElapsedTime", context.api().event_elapsed_time(&milliseconds, begin_.handle().get(),
                                                              end_.handle().get())}));
  const double total_us = static_cast<double>(milliseconds) * 1e3;
  Sample sample;
  sample.us = total_us / units_ / replays;
  sample.at_seconds = steady_seconds();
  if (const auto span = stamps ? stamps->read() : std::nullopt) {
    sample.sm_mhz = span->sm_mhz;
    // Without a gate the host may pause between a stamp and its event.
    if (gate && replays * nodes_ <= kMaxGatedNodes) check.add(total_us, span->us);
  }
  return sample;
}

}  // namespace kernwright
