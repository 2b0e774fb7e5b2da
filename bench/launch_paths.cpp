// Times our launches on the host, each compared with the driver's own call in the same run: an
// empty kernel of 132 blocks with nine pointers, and one with three tensor maps, from one thread
// and from sixteen threads with a stream each.

#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/program/context_memory.h"
#include "device/program/launch_graph.h"
#include "device/program/tensor_map.h"
#include "device/timing/path_timer.h"
#include "launch/loaded_kernel.h"
#include "support/text.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage = "usage: launch_paths [--rounds N] [--json FILE]\n";
constexpr int kThreads = 16;
constexpr std::size_t kPointers = 9;
constexpr std::size_t kMaps = 3;
constexpr std::int64_t kBytes = 1 << 20;
// The first sets stay ready after they were bound. The others are used in turn; there are more than
// a `LaunchGraph` remembers, so each comes as if for the first time.
constexpr std::size_t kReadySets = LaunchGraph::kStates - 1;
constexpr std::size_t kManySets = kReadySets + LaunchGraph::kStates + 1;

constexpr const char* kSource = R"(
struct alignas(64) TensorMap { unsigned long long opaque[16]; };
extern "C" __global__ void pointers(const float*, const float*, const float*, const float*,
                                    const float*, const float*, const float*, const float*,
                                    float*) {}
extern "C" __global__ void maps(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap,
                                const __grid_constant__ TensorMap, int, int, int) {}
)";

ArgumentPlan argument(ArgumentKind kind, std::size_t index) {
  return {.kind = kind, .index = index, .value = 0};
}

/// `count` tensors of 1024 x 64 bf16, and an empty kernel of 132 blocks over them.
ExecutionPlan plan_of(std::string_view kernel, std::size_t count) {
  ExecutionPlan plan;
  LaunchPlan launch;
  launch.kernel = kernel;
  launch.grid = {132, 1, 1};
  launch.block = {128, 1, 1};
  for (std::size_t i = 0; i < count; ++i) {
    TensorShape tensor;
    tensor.name = concat("t", i);
    tensor.dtype = DType::bf16;
    tensor.extent = {1024, 64};
    plan.tensors.push_back(tensor);
    if (kernel == "pointers") {
      launch.arguments.push_back(argument(ArgumentKind::tensor, i));
    } else {
      plan.tensor_maps.push_back({.name = tensor.name,
                                  .tensor = i,
                                  .dtype = DType::bf16,
                                  .dims = {64, 1024},
                                  .strides_bytes = {128},
                                  .box = {64, 64},
                                  .swizzle = 128,
                                  .l2_promotion = 256});
      launch.arguments.push_back(argument(ArgumentKind::tensor_map, i));
    }
  }
  if (kernel == "maps") {
    for (int i = 0; i < 3; ++i) launch.arguments.push_back(argument(ArgumentKind::int32, 0));
  }
  plan.launches = {std::move(launch)};
  return plan;
}

/// The GPU with its primary context current in the calling thread.
struct Gpu {
  const DriverApi& api;
  CUcontext context;

  static Gpu open() {
    const DriverApi& api = *take(load_driver());
    return {api, take(primary_context(api, 0))};
  }
  void check(const DriverStatus& status) const {
    if (!status) fail(driver_error(api, status));
  }
  StreamHandle stream() const {
    CUstream stream = nullptr;
    check({"cuStreamCreate", api.stream_create(&stream, CU_STREAM_NON_BLOCKING)});
    return {api, stream};
  }
};

/// The driver's calls on one kernel, with everything prepared that can be.
class RawLaunch {
 public:
  RawLaunch(const Gpu& gpu, std::string_view cubin, const ExecutionPlan& plan,
            const std::vector<CUdeviceptr>& memory)
      : gpu_(gpu), mapped_(!plan.tensor_maps.empty()) {
    CUlibrary library = nullptr;
    gpu.check({"cuLibraryLoadData", gpu.api.library_load_data(&library, cubin.data(), nullptr,
                                                              nullptr, 0, nullptr, nullptr, 0)});
    library_ = LibraryHandle(gpu.api, library);
    CUkernel kernel = nullptr;
    gpu.check({"cuLibraryGetKernel",
               gpu.api.library_get_kernel(&kernel, library, plan.launches[0].kernel.c_str())});
    any_context_ = reinterpret_cast<CUfunction>(kernel);
    gpu.check({"cuKernelGetFunction", gpu.api.kernel_get_function(&params_.func, kernel)});
    const std::size_t count = plan.tensors.size();
    for (std::size_t set = 0; set < kManySets; ++set) {
      for (std::size_t i = 0; i < count; ++i) {
        pointers_[set][i] = memory[i] + set * 1024;
        if (mapped_) {
          gpu.check(
              encode_tensor_map(gpu.api, plan.tensor_maps[i], pointers_[set][i], maps_[set][i]));
        }
      }
      for (std::size_t i = 0; i < kPointers; ++i) {
        arguments_[set][i] = &zero_;
        if (i >= count) continue;
        arguments_[set][i] = mapped_ ? static_cast<void*>(&maps_[set][i]) : &pointers_[set][i];
      }
    }
    params_.gridDimX = plan.launches[0].grid[0];
    params_.gridDimY = params_.gridDimZ = params_.blockDimY = params_.blockDimZ = 1;
    params_.blockDimX = plan.launches[0].block[0];
    params_.kernelParams = arguments_[0].data();
    make_graph();
  }

  Result<void> launch(CUstream stream) { return launch(stream, params_.func); }
  /// With the handle that is good in every context.
  Result<void> launch_any(CUstream stream) { return launch(stream, any_context_); }
  Result<void> launch(CUstream stream, CUfunction function) {
    CUlaunchConfig config{};
    config.gridDimX = params_.gridDimX;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = params_.blockDimX;
    config.hStream = stream;
    return result({"cuLaunchKernelEx",
                   gpu_.api.launch_kernel_ex(&config, function, params_.kernelParams, nullptr)});
  }
  Result<void> launch_graph(CUstream stream) {
    return result({"cuGraphLaunch", gpu_.api.graph_launch(exec_.get(), stream)});
  }
  Result<void> change_and_launch(CUstream stream, std::size_t set) {
    params_.kernelParams = arguments_[set].data();
    Result<void> changed =
        result({"cuGraphExecKernelNodeSetParams",
                gpu_.api.graph_exec_kernel_node_set_params(exec_.get(), node_, &params_)});
    return changed ? launch_graph(stream) : changed;
  }

 private:
  Result<void> result(const DriverStatus& status) const {
    if (!status) return driver_error(gpu_.api, status);
    return {};
  }
  void make_graph() {
    CUgraph graph = nullptr;
    gpu_.check({"cuGraphCreate", gpu_.api.graph_create(&graph, 0)});
    graph_ = GraphHandle(gpu_.api, graph);
    gpu_.check({"cuGraphAddKernelNode",
                gpu_.api.graph_add_kernel_node(&node_, graph, nullptr, 0, &params_)});
    CUgraphExec exec = nullptr;
    gpu_.check({"cuGraphInstantiate", gpu_.api.graph_instantiate(&exec, graph, 0)});
    exec_ = GraphExecHandle(gpu_.api, exec);
  }

  const Gpu& gpu_;
  bool mapped_;
  std::uint64_t zero_ = 0;
  std::array<std::array<CUdeviceptr, kPointers>, kManySets> pointers_{};
  std::array<std::array<CUtensorMap, kMaps>, kManySets> maps_{};
  std::array<std::array<void*, kPointers>, kManySets> arguments_{};
  CUDA_KERNEL_NODE_PARAMS params_{};
  CUfunction any_context_ = nullptr;
  LibraryHandle library_;
  GraphHandle graph_;
  CUgraphNode node_ = nullptr;
  GraphExecHandle exec_;
};

/// One kernel, loaded on both sides, with the argument sets that are launched in turn.
struct Subject {
  std::string name;
  ExecutionPlan plan;
  std::string cubin;
  std::vector<CUdeviceptr> memory;
  std::shared_ptr<LoadedKernel> kernel;
  std::array<std::vector<Arg>, kManySets> sets;

  const Arg* arguments(std::size_t set) const { return sets[set].data(); }
  std::size_t count() const { return plan.tensors.size(); }
};

Subject make_subject(std::string_view name, std::size_t tensors, std::string cubin,
                     CUdeviceptr memory) {
  Subject subject;
  subject.name = name;
  subject.plan = plan_of(name, tensors);
  subject.cubin = std::move(cubin);
  KernelSummary summary;
  summary.problem = subject.name;
  subject.kernel = std::make_shared<LoadedKernel>(
      std::move(summary), std::make_shared<const CompactPlan>(subject.plan),
      take(Launcher::load(subject.cubin, subject.plan)), Error{});
  for (std::size_t i = 0; i < tensors; ++i) {
    subject.memory.push_back(memory + i * (kBytes / kPointers / 1024 * 1024));
    for (std::size_t set = 0; set < kManySets; ++set) {
      subject.sets[set].emplace_back(subject.memory[i] + set * 1024);
    }
  }
  return subject;
}

/// The paths of one thread on one stream, ours and the driver's, in turn.
class Lane {
 public:
  Lane(const Gpu& gpu, const Subject& subject)
      : subject_(subject),
        stream_(gpu.stream()),
        raw_(gpu, subject.cubin, subject.plan, subject.memory),
        baked_(take(subject.kernel->handle().bake(subject.arguments(0), subject.count()))),
        rebound_(take(subject.kernel->handle().bake(subject.arguments(0), subject.count()))) {
    for (std::size_t set = 1; set < kReadySets; ++set) {
      if (auto bound = rebound_.rebind(subject.arguments(set), subject.count()); !bound) {
        fail(bound.error());
      }
    }
  }

  CUstream stream() const { return stream_.get(); }

  std::vector<TimedCall> paths() {
    const auto ours = [this] {
      return subject_.kernel->handle().launch(stream(), subject_.arguments(0), subject_.count());
    };
    const auto rebind = [this](std::size_t first, std::size_t end) {
      return [this, first, end, set = first]() mutable -> Result<void> {
        if (++set == end) set = first;
        Result<void> bound = rebound_.rebind(subject_.arguments(set), subject_.count());
        return bound ? rebound_.launch(stream()) : bound;
      };
    };
    return {
        {"launch", ours, {}, {}},
        {"cuLaunchKernelEx", [this] { return raw_.launch(stream()); }, {}, {}},
        {"cuLaunchKernelEx of a CUkernel", [this] { return raw_.launch_any(stream()); }, {}, {}},
        {"baked", [this] { return baked_.launch(stream()); }, {}, {}},
        {"cuGraphLaunch", [this] { return raw_.launch_graph(stream()); }, {}, {}},
        {"rebind", rebind(kReadySets, kManySets), {}, {}},
        {"SetParams + cuGraphLaunch",
         [this, set = kReadySets]() mutable {
           if (++set == kManySets) set = kReadySets;
           return raw_.change_and_launch(stream(), set);
         },
         {},
         {}},
        {"rebind_alternating", rebind(0, 2), {}, {}},
        {"launch_checked",
         [this] {
           return subject_.kernel->handle().launch_checked(stream(), subject_.arguments(0),
                                                           subject_.count());
         },
         {},
         {}}};
  }

 private:
  const Subject& subject_;
  StreamHandle stream_;
  RawLaunch raw_;
  BakedLaunch baked_;
  BakedLaunch rebound_;
};

/// A path of ours, the driver's path that it is compared with, and by how much ours may be slower.
struct Pair {
  const char* ours;
  const char* peer;
  std::optional<double> bar_us;
};
constexpr Pair kPairs[] = {{"launch", "cuLaunchKernelEx", 0.15},
                           {"launch", "cuLaunchKernelEx of a CUkernel", std::nullopt},
                           {"baked", "cuGraphLaunch", 0.05},
                           {"rebind", "SetParams + cuGraphLaunch", 0.10},
                           {"rebind_alternating", "SetParams + cuGraphLaunch", 0.10},
                           {"launch_checked", "cuLaunchKernelEx", std::nullopt}};

const TimedCall& find(const std::vector<TimedCall>& paths, std::string_view name) {
  for (const TimedCall& path : paths) {
    if (path.name == name) return path;
  }
  fail({ErrorCode::internal, concat("no launch path ", name)});
}

void write_rows(const Subject& subject, int threads, const std::vector<TimedCall>& paths,
                BenchJson& json) {
  for (const Pair& pair : kPairs) {
    const TimedCall& ours = find(paths, pair.ours);
    const TimedCall& peer = find(paths, pair.peer);
    const double difference_us = median_difference_us(ours, peer);
    const std::string name =
        concat(pair.ours, " ", subject.name, threads > 1 ? concat(" threads=", threads) : "");
    Json row = {{"problem", name},
                {"ours_us", ours.median_host_us()},
                {"peer", pair.peer},
                {"peer_us", peer.median_host_us()},
                {"difference_us", difference_us},
                {"period_us", ours.median_period_us()},
                {"peer_period_us", peer.median_period_us()},
                {"threads", threads},
                {"rounds", ours.host_us.size()}};
    // Sixteen threads wait for each other inside the driver: there is a bar for one alone.
    if (pair.bar_us && threads == 1) {
      row["bar_us"] = *pair.bar_us;
      row["holds"] = difference_us <= *pair.bar_us;
    }
    if (auto added = json.add(std::move(row)); !added) fail(added.error());
    std::printf("%-38s %7.3f %7.3f %+7.3f   %7.3f %7.3f  %s\n", name.c_str(), ours.median_host_us(),
                peer.median_host_us(), difference_us, ours.median_period_us(),
                peer.median_period_us(), pair.peer);
  }
  std::fflush(stdout);
}

/// Every thread times the same path at the same time; the samples of all are one list.
std::vector<TimedCall> time_threads(const Gpu& gpu, const Subject& subject, int rounds) {
  std::deque<Lane> lanes;
  std::vector<std::vector<TimedCall>> paths;
  for (int i = 0; i < kThreads; ++i) paths.push_back(lanes.emplace_back(gpu, subject).paths());
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const ContextScope scope(gpu.api, gpu.context);
      gpu.check(scope.status());
      for (TimedCall& path : paths[i]) {
        std::vector<double> host_us, period_us;
        for (int round = 0; round < rounds; ++round) {
          together.arrive_and_wait();
          if (auto timed = time_paths(gpu.api, lanes[i].stream(), {&path, 1}, {}); !timed) {
            fail(timed.error());
          }
          host_us.push_back(path.host_us.front());
          period_us.push_back(path.period_us.front());
        }
        path.host_us = std::move(host_us);
        path.period_us = std::move(period_us);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<TimedCall> all = paths.front();
  for (std::size_t i = 1; i < kThreads; ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      const TimedCall& path = paths[i][j];
      all[j].host_us.insert(all[j].host_us.end(), path.host_us.begin(), path.host_us.end());
      all[j].period_us.insert(all[j].period_us.end(), path.period_us.begin(), path.period_us.end());
    }
  }
  return all;
}

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const auto rounds = static_cast<int>(integer_option(argc, argv, "--rounds", 101));
  const CudaDeviceInfo info = take(describe_cuda_device(0));
  if (info.profile.sm_arch < 90) {
    return report({ErrorCode::unavailable,
                   concat("tensor maps need sm_90, the GPU is sm_", info.profile.sm_arch)});
  }
  const Gpu gpu = Gpu::open();
  const ContextScope scope(gpu.api, gpu.context);
  gpu.check(scope.status());
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "launch_paths", command_line(argc, argv),
                                        {{"name", info.profile.name},
                                         {"uuid", info.identity.uuid},
                                         {"driver", info.identity.driver_version},
                                         {"sm_count", info.profile.sm_count}}));
  CompileRequest request;
  request.name = "launch_paths.cu";
  request.source = kSource;
  request.target = concat("sm_", info.profile.sm_arch);
  const std::string cubin = take(make_toolkit_compiler()->compile(request)).bits;
  const ContextMemory memory = take(ContextMemory::allocate(gpu.api, 2 * kBytes));
  std::printf("%-38s %7s %7s %7s   %7s %7s\n", "host us per launch", "ours", "peer", "diff",
              "period", "peer");
  for (const auto& [name, tensors] : {std::pair{"pointers", kPointers}, std::pair{"maps", kMaps}}) {
    const Subject subject = make_subject(name, tensors, cubin, memory.address());
    {
      Lane lane(gpu, subject);
      std::vector<TimedCall> paths = lane.paths();
      if (auto timed = time_paths(gpu.api, lane.stream(), paths, {.rounds = rounds}); !timed) {
        return report(timed.error());
      }
      write_rows(subject, 1, paths, json);
    }
    write_rows(subject, kThreads, time_threads(gpu, subject, rounds / 4 + 1), json);
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
