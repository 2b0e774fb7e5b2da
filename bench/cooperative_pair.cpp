// Compares a barrier of the whole grid with the boundary between two kernels: rmsnorm and a softmax
// of its result, as one cooperative kernel, as a graph of two kernels, and as a graph with a
// programmatic edge. Each form is timed in every configuration below that it can have, and its best
// one counts.

#include "bench/common/cooperative_pair.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "compile/compile_pool.h"
#include "compile/render.h"
#include "device/cuda/cuda_device.h"
#include "support/text.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage = "usage: cooperative_pair [--rounds N] [--json FILE]\n";
constexpr int kUnits = 64;  // of a sample: its 128 nodes fit the stream's queue
constexpr std::int64_t kMostSets = 64;
constexpr struct {
  std::int64_t rows;
  std::int64_t columns;
} kMatrices[] = {{128, 4096}, {4096, 8192}};

/// Device memory of one pair: x, the weight, what passes between the kernels, the result.
struct Buffers {
  std::unique_ptr<DeviceBuffer> x, weight, between, result;

  static Buffers make(Device& device, std::int64_t rows, std::int64_t columns) {
    const std::int64_t bytes = rows * columns * 2;
    return {take(device.allocate(bytes)), take(device.allocate(columns * 2)),
            take(device.allocate(bytes)), take(device.allocate(bytes))};
  }
};

void check(const Result<void>& done) {
  if (!done) fail(done.error());
}

/// The address of each tensor by its name; 0 for those that the problem lacks.
std::vector<DevicePointer> addresses(const std::vector<TensorShape>& tensors, const Buffers& at,
                                     bool second) {
  std::vector<DevicePointer> result;
  for (const TensorShape& tensor : tensors) {
    if (tensor.name == "x") {
      result.push_back((second ? at.between : at.x)->address());
    } else if (tensor.name == "w") {
      result.push_back(at.weight->address());
    } else if (tensor.name == "y") {
      result.push_back((second ? at.result : at.between)->address());
    } else {
      result.push_back(0);
    }
  }
  return result;
}

LaunchArguments arguments(const ExecutionPlan& plan, const Buffers& at, bool second) {
  LaunchArguments result;
  result.tensors = addresses(plan.tensors, at, second);
  for (const Scalar& scalar : plan.scalars) result.scalars.push_back(scalar.default_value);
  return result;
}

/// A way to run the pair in one configuration.
struct Form {
  std::string name;
  std::string configuration;
  std::vector<WorkUnit> sets;
  std::unique_ptr<Device::TimedUnits> units = nullptr;
  std::vector<double> us = {};

  double median_us() const {
    std::vector<double> sorted = us;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

class Bench {
 public:
  Bench(Device& device, CompilePool& pool, const Catalog& catalog, int rounds)
      : device_(device), pool_(pool), catalog_(catalog), rounds_(rounds) {}

  /// Times every form; returns the row of results.
  Json measure(std::int64_t rows, std::int64_t columns);

 private:
  std::shared_ptr<LoadedProgram> load(const CompileRequest& request, const ExecutionPlan& plan) {
    const auto kernel = take(pool_.submit(request).get());
    programs_.push_back(take(device_.load(kernel->bits, plan)));
    return programs_.back();
  }
  void make_sets(std::int64_t rows, std::int64_t columns);
  void add_forms(const PairShape& shape);
  std::vector<std::byte> result_of(const WorkUnit& unit);

  Device& device_;
  CompilePool& pool_;
  const Catalog& catalog_;
  int rounds_;
  std::vector<std::shared_ptr<LoadedProgram>> programs_;
  std::vector<std::unique_ptr<DeviceBuffer>> arrived_;  ///< blocks, of each cooperative form
  std::vector<Buffers> sets_;
  std::vector<Form> forms_;
};

void Bench::make_sets(std::int64_t rows, std::int64_t columns) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const auto drawn = [&](std::int64_t elements) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * 2);
    for (std::int64_t i = 0; i < elements; ++i) {
      store_element(bytes.data(), DType::bf16, i, normal(random));
    }
    return bytes;
  };
  const std::vector<std::byte> x = drawn(rows * columns);
  const std::vector<std::byte> weight = drawn(columns);
  const std::int64_t set_bytes = 3 * rows * columns * 2;
  const std::int64_t beyond_l2 = 3 * device_.profile().l2_bytes / set_bytes + 1;
  sets_.clear();
  for (std::int64_t i = 0; i < std::clamp<std::int64_t>(beyond_l2, 2, kMostSets); ++i) {
    sets_.push_back(Buffers::make(device_, rows, columns));
    check(device_.upload(sets_.back().x->address(), x));
    check(device_.upload(sets_.back().weight->address(), weight));
  }
}

/// Returns the bytes that the pair leaves in poisoned memory.
std::vector<std::byte> Bench::result_of(const WorkUnit& unit) {
  const Buffers& set = sets_.front();
  for (const auto* buffer : {&set.between, &set.result}) {
    check(device_.fill((*buffer)->address(), 0xFF, (*buffer)->bytes()));
  }
  for (const ProgramLaunch& launch : unit) {
    check(device_.enqueue(*launch.program, launch.arguments));
  }
  check(device_.wait());
  std::vector<std::byte> result(static_cast<std::size_t>(set.result->bytes()));
  check(device_.download(result, set.result->address()));
  return result;
}

void Bench::add_forms(const PairShape& shape) {
  auto pair = make_row_pair(catalog_, device_.profile(), shape);
  if (!pair) return;  // the rules reject the shape
  const int arch = device_.profile().sm_arch;
  ExecutionPlan early = pair->second.plan;
  early.launches.front().programmatic = true;
  const auto first = load(render(pair->first, catalog_, arch), pair->first.plan);
  const auto second = load(render(pair->second, catalog_, arch), pair->second.plan);
  const auto second_early = load(render(pair->second, catalog_, arch), early);
  const std::string configuration = pair->second.configuration.text();
  Form two{"graph_of_two", configuration, {}};
  Form programmatic{"programmatic_graph_of_two", configuration, {}};
  for (const Buffers& set : sets_) {
    const LaunchArguments one = arguments(pair->first.plan, set, false);
    const LaunchArguments other = arguments(pair->second.plan, set, true);
    two.sets.push_back({{first.get(), one}, {second.get(), other}});
    programmatic.sets.push_back({{first.get(), one}, {second_early.get(), other}});
  }
  if (check_resident(*pair, shape, device_.profile())) {
    const auto both = load(pair->request, pair->plan);
    // It counts on in multiples of one grid, so no two grids may share it.
    arrived_.push_back(take(device_.allocate(sizeof(std::uint32_t))));
    check(device_.fill(arrived_.back()->address(), 0, sizeof(std::uint32_t)));
    Form cooperative{"cooperative", configuration, {}};
    for (const Buffers& set : sets_) {
      LaunchArguments all = arguments(pair->first.plan, set, false);
      const LaunchArguments other = arguments(pair->second.plan, set, true);
      all.tensors.insert(all.tensors.end(), other.tensors.begin(), other.tensors.end());
      all.scalars.insert(all.scalars.end(), other.scalars.begin(), other.scalars.end());
      all.workspace = arrived_.back()->address();
      cooperative.sets.push_back({{both.get(), std::move(all)}});
    }
    if (result_of(cooperative.sets.front()) != result_of(two.sets.front())) {
      fail({ErrorCode::device, concat(configuration,
                                      ": the cooperative kernel's result is not "
                                      "that of the two, bit by bit")});
    }
    forms_.push_back(std::move(cooperative));
  }
  forms_.push_back(std::move(two));
  forms_.push_back(std::move(programmatic));
}

Json Bench::measure(std::int64_t rows, std::int64_t columns) {
  forms_.clear();
  arrived_.clear();
  make_sets(rows, columns);
  for (const std::int64_t threads : {256, 512, 1024}) {
    for (const std::int64_t resident : {512, 1024}) {
      for (const std::int64_t stages : {0, 2})
        add_forms({rows, columns, threads, resident, stages});
    }
  }
  for (Form& form : forms_) {
    form.units = take(device_.prepare_timing(form.sets, kUnits));
    take(device_.sample(*form.units));  // the first replay pages in the code
  }
  for (int round = 0; round < rounds_; ++round) {
    for (Form& form : forms_) form.us.push_back(take(device_.sample(*form.units)).us);
  }
  Json row = {
      {"problem", concat("rmsnorm softmax rows=", rows, " columns=", columns, " dtype=bf16")},
      {"rounds", rounds_}};
  std::printf("%lld x %lld\n", static_cast<long long>(rows), static_cast<long long>(columns));
  for (const char* name : {"cooperative", "graph_of_two", "programmatic_graph_of_two"}) {
    const Form* best = nullptr;
    for (const Form& form : forms_) {
      if (form.name == name && (!best || form.median_us() < best->median_us())) best = &form;
    }
    if (!best) fail({ErrorCode::internal, concat("no configuration is ", name)});
    row[concat(name, "_us")] = best->median_us();
    row[concat(name, "_configuration")] = best->configuration;
    std::printf("  %-26s %8.3f us  %s\n", name, best->median_us(), best->configuration.c_str());
  }
  std::fflush(stdout);
  for (Form& form : forms_) form.units.reset();  // before their programs
  programs_.clear();
  return row;
}

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const auto rounds = static_cast<int>(integer_option(argc, argv, "--rounds", 101));
  const auto device = take(open_cuda_device(0));
  if (device->profile().sm_arch < 90) {
    return report({ErrorCode::unavailable,
                   concat("the pair needs sm_90, the GPU is sm_", device->profile().sm_arch)});
  }
  CompilePool pool(make_toolkit_compiler(), CompilePoolOptions{});
  const auto catalog = take(Catalog::load({}));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "cooperative_pair", command_line(argc, argv),
                                        {{"name", device->profile().name},
                                         {"uuid", device->identity().uuid},
                                         {"driver", device->identity().driver_version},
                                         {"sm_count", device->profile().sm_count}}));
  Bench bench(*device, pool, *catalog, rounds);
  for (const auto& [rows, columns] : kMatrices) {
    if (auto added = json.add(bench.measure(rows, columns)); !added) return report(added.error());
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
