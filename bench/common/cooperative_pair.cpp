#include "bench/common/cooperative_pair.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "compile/render.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::string_view kEntry =
    R"(extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS))";
constexpr std::string_view kFunction = "__device__ __forceinline__ void";

/// The blocks meet between the two; what the first wrote is read through the L1 and by bulk copies.
constexpr std::string_view kPair = R"(
__device__ __forceinline__ void await_all_blocks(unsigned* arrived) {
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (first::STAGES > 0) {  // the second's barriers come to the same places
      extern __shared__ __align__(128) unsigned char memory[];
      const unsigned end = static_cast<unsigned>(__cvta_generic_to_shared(memory)) + first::RING_BYTES;
      for (unsigned at = end - 8 * first::STAGES * first::ROWS_PER_BLOCK; at < end; at += 8) {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at) : "memory");
      }
    }
    __threadfence();
    const unsigned before = atomicAdd(arrived, 1u);
    const unsigned all = before - before % gridDim.x + gridDim.x;
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    } while (now < all);
  }
  __syncthreads();
  asm volatile("fence.proxy.async;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(first::THREADS, first::MIN_BLOCKS)
    rmsnorm_softmax(const first::dtype_t* x, const first::dtype_t* r, const first::dtype_t* w,
                    first::out_t* y, first::dtype_t* sum, long long rows, float epsilon,
                    float scale, unsigned early_blocks, const second::dtype_t* scores,
                    const second::dtype_t* bias, second::dtype_t* shares, long long score_rows,
                    float score_scale, int queries, unsigned* arrived) {
  static_assert(first::THREADS == second::THREADS && first::RING_BYTES == second::RING_BYTES);
  first::rmsnorm_row(x, r, w, nullptr, y, nullptr, sum, rows, epsilon, scale, 0, early_blocks);
  await_all_blocks(arrived);
  second::softmax_row(scores, bias, shares, score_rows, score_scale, queries);
}
)";

/// Replaces every `from`; returns false if there is none.
bool replace_all(std::string& text, std::string_view from, std::string_view to) {
  bool found = false;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    found = true;
  }
  return found;
}

/// Adds a template's text to the pair's: its kernel as a function in a namespace of its own, with a
/// copy of the headers, since each has its own configuration.
Result<void> add_part(CompileRequest& pair, CompileRequest part, std::string_view space) {
  const std::string folder = concat("<", space, "/");
  if (!replace_all(part.source, kEntry, kFunction)) {
    return Error{ErrorCode::not_found, concat(part.name, " has no \"", kEntry, '"')};
  }
  replace_all(part.source, "<kernwright/", folder);
  for (auto& [name, text] : part.headers) {
    replace_all(name, "kernwright/", folder.substr(1));
    replace_all(text, "<kernwright/", folder);
    pair.headers.emplace_back(name, text);
  }
  pair.source += concat("namespace ", space, " {\n", part.source, "}\n");
  pair.target = part.target;
  return {};
}

Result<Candidate> make_part(const Catalog& catalog, const DeviceProfile& profile,
                            const PairShape& shape, std::string_view operation_name,
                            bool weight_early) {
  const auto kernel_template = catalog.kernel_template(concat(operation_name, "/row"));
  if (!kernel_template) return kernel_template.error();
  const auto problem = Problem::parse(
      concat(operation_name, " rows=", shape.rows, " columns=", shape.columns, " dtype=bf16"));
  if (!problem) return problem.error();
  const auto bound = catalog.bind(*problem);
  if (!bound) return bound.error();
  std::vector<std::pair<std::string, std::int64_t>> values{{"THREADS_PER_ROW", shape.threads},
                                                           {"ROWS_PER_BLOCK", 1},
                                                           {"CLUSTER", 1},
                                                           {"STAGES", shape.stages},
                                                           {"RESIDENT", shape.resident}};
  if (weight_early) {
    values.emplace_back("WEIGHT_EARLY", 1);
    values.emplace_back("ROWS_AT_ONCE", 1);
  }
  values.emplace_back("PROGRAMMATIC", 0);
  return make_candidate(**kernel_template, *bound, Configuration(std::move(values)), profile);
}

/// Both launches as one of both plans.
ExecutionPlan join(const ExecutionPlan& first, const ExecutionPlan& second) {
  ExecutionPlan plan = first;
  plan.tensors.insert(plan.tensors.end(), second.tensors.begin(), second.tensors.end());
  plan.scalars.insert(plan.scalars.end(), second.scalars.begin(), second.scalars.end());
  plan.workspaces = {{.name = "arrived", .bytes = sizeof(std::uint32_t), .zeroed = false}};
  LaunchPlan& launch = plan.launches.front();
  launch.kernel = "rmsnorm_softmax";
  launch.cooperative = true;
  launch.waits = false;
  for (ArgumentPlan argument : second.launches.front().arguments) {
    if (argument.kind == ArgumentKind::tensor && argument.index != ArgumentPlan::kAbsent) {
      argument.index += first.tensors.size();
    }
    if (argument.kind == ArgumentKind::scalar) argument.index += first.scalars.size();
    launch.arguments.push_back(argument);
  }
  launch.arguments.push_back({.kind = ArgumentKind::workspace, .index = 0, .value = 0});
  return plan;
}

}  // namespace

Result<RowPair> make_row_pair(const Catalog& catalog, const DeviceProfile& profile,
                              const PairShape& shape) {
  Result<Candidate> first = make_part(catalog, profile, shape, "rmsnorm", true);
  if (!first) return first.error();
  Result<Candidate> second = make_part(catalog, profile, shape, "softmax", false);
  if (!second) return second.error();
  RowPair pair;
  pair.first = *std::move(first);
  pair.second = *std::move(second);
  pair.plan = join(pair.first.plan, pair.second.plan);
  pair.request.name = "rmsnorm_softmax.cu";
  for (const auto& [part, space] : {std::pair{&pair.first, "first"}, {&pair.second, "second"}}) {
    auto added = add_part(pair.request, render(*part, catalog, profile.sm_arch), space);
    if (!added) return added.error();
  }
  // The output of the first kernel is not read-only in a kernel that holds both.
  for (auto& [name, text] : pair.request.headers) {
    if (name == "second/rows/row.cuh") replace_all(text, "Load::read_only", "Load::plain");
  }
  pair.request.source += kPair;
  return pair;
}

Result<void> check_resident(const RowPair& pair, const PairShape& shape,
                            const DeviceProfile& profile) {
  const std::int64_t blocks = pair.plan.launches.front().grid[0];
  const std::int64_t resident = shape.resident / shape.threads * profile.sm_count;
  if (blocks <= resident) return {};
  return Error{ErrorCode::invalid_argument,
               concat("of ", blocks, " blocks ", resident, " are resident at once")};
}

}  // namespace kernwright
