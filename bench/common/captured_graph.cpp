#include "bench/common/captured_graph.h"

#include <utility>

#include "support/libraries/dynamic_library.h"

namespace kernwright {
namespace {

/// The two functions of the driver that only captures need.
struct CaptureApi {
  CUresult (*begin)(CUstream, CUstreamCaptureMode) = nullptr;
  CUresult (*end)(CUstream, CUgraph*) = nullptr;
};

Result<CaptureApi> capture_api() {
  const Result<DynamicLibrary> library = DynamicLibrary::open({"libcuda.so.1"});
  if (!library) return library.error();
  CaptureApi api;
  api.begin = reinterpret_cast<decltype(api.begin)>(library->symbol("cuStreamBeginCapture_v2"));
  api.end = reinterpret_cast<decltype(api.end)>(library->symbol("cuStreamEndCapture"));
  if (!api.begin || !api.end) {
    return Error{ErrorCode::unavailable, "the driver cannot capture streams"};
  }
  return api;
}

Result<ContextOwned<EventHandle>> make_event(const std::shared_ptr<CudaContext>& context) {
  CUevent event = nullptr;
  if (auto made =
          context->check({"cuEventCreate", context->api().event_create(&event, CU_EVENT_DEFAULT)});
      !made) {
    return made.error();
  }
  return ContextOwned<EventHandle>(context, EventHandle(context->api(), event));
}

}  // namespace

Result<CapturedGraph> CapturedGraph::make(const std::shared_ptr<CudaContext>& context, int units,
                                          const Enqueue& enqueue) {
  static const Result<CaptureApi> capture = capture_api();
  if (!capture) return capture.error();
  const CUstream stream = context->stream();
  if (auto begun = context->check(
          {"cuStreamBeginCapture", capture->begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED)});
      !begun) {
    return begun.error();
  }
  Result<void> enqueued;
  for (int unit = 0; unit < units && enqueued; ++unit) enqueued = enqueue(stream, unit);
  CUgraph graph = nullptr;
  const auto ended = context->check({"cuStreamEndCapture", capture->end(stream, &graph)});
  const DriverApi& api = context->api();
  const ContextOwned<GraphHandle> owned(context, graph ? GraphHandle(api, graph) : GraphHandle());
  if (!enqueued) return enqueued.error();
  if (!ended) return ended.error();

  CUgraphExec exec = nullptr;
  if (auto made = context->check({"cuGraphInstantiate", api.graph_instantiate(&exec, graph, 0)});
      !made) {
    return made.error();
  }
  ContextOwned<GraphExecHandle> owned_exec(context, GraphExecHandle(api, exec));
  if (auto uploaded = context->check({"cuGraphUpload", api.graph_upload(exec, stream)});
      !uploaded) {
    return uploaded.error();
  }
  if (auto done = context->wait(); !done) return done.error();
  auto begin = make_event(context);
  if (!begin) return begin.error();
  auto end = make_event(context);
  if (!end) return end.error();
  return CapturedGraph(std::move(owned_exec), std::move(*begin), std::move(*end), units);
}

Result<void> CapturedGraph::enqueue() {
  CudaContext& context = exec_.context();
  const DriverApi& api = context.api();
  const CUstream stream = context.stream();
  if (auto recorded =
          context.check({"cuEventRecord", api.event_record(begin_.handle().get(), stream)});
      !recorded) {
    return recorded;
  }
  if (auto launched =
          context.check({"cuGraphLaunch", api.graph_launch(exec_.handle().get(), stream)});
      !launched) {
    return launched;
  }
  return context.check({"cuEventRecord", api.event_record(end_.handle().get(), stream)});
}

Result<double> CapturedGraph::sample_us(StreamGate& gate) {
  CudaContext& context = exec_.context();
  if (auto closed = gate.close(); !closed) return closed.error();
  const Result<void> enqueued = enqueue();
  gate.open();  // on failure too, because work behind a closed gate never ends
  if (!enqueued) return enqueued.error();
  if (auto done = context.wait(); !done) return done.error();
  float milliseconds = 0;
  if (auto read = context.check(
          {"cuEventElapsedTime", context.api().event_elapsed_time(
                                     &milliseconds, begin_.handle().get(), end_.handle().get())});
      !read) {
    return read.error();
  }
  return static_cast<double>(milliseconds) * 1e3 / units_;
}

}  // namespace kernwright
