// Launches that start while the previous one still runs and read its result compute the same bits
// as launches that wait for the host. Results hold NaN before, so that reading too early shows.

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/render.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

/// A problem, and which of its tensors are the result before it and its own.
struct Link {
  std::string problem;
  std::string from;
  std::string to;
};

std::vector<Link> repeated(const Link& link, std::size_t count = 8) {
  return std::vector<Link>(count, link);
}

class EarlyStartGpuTest : public GpuWorld {
 protected:
  /// With candidates from the start, the middle and the end of the list of those that start early.
  void expect_same_bits(const std::vector<Link>& links) {
    for (const double place : {0.0, 0.45, 0.9}) {
      SCOPED_TRACE(concat(links.front().problem, " ... ", links.back().problem, " at ", place));
      Chain chain;
      for (const Link& link : links) {
        append(chain, link, place);
        if (HasFatalFailure()) return;
      }
      clear(chain);
      for (const ProgramLaunch& launch : chain.launches) {
        ASSERT_TRUE(device_->run(*launch.program, launch.arguments));
      }
      const std::vector<unsigned char> expected = result(chain);
      EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                              [](unsigned char byte) { return byte != 0xFF; }));
      for (int repeat = 0; repeat < 4; ++repeat) {
        clear(chain);
        for (const ProgramLaunch& launch : chain.launches) {
          ASSERT_TRUE(device_->enqueue(*launch.program, launch.arguments));
        }
        ASSERT_TRUE(device_->wait());
        EXPECT_TRUE(result(chain) == expected) << "launch by launch";
      }
      const std::vector<WorkUnit> units = {chain.launches};
      auto graph = must(device_->prepare_timing(units, 1));
      for (int repeat = 0; repeat < 4; ++repeat) {
        clear(chain);
        ASSERT_TRUE(device_->sample(*graph));
        ASSERT_TRUE(device_->wait());
        EXPECT_TRUE(result(chain) == expected) << "as a graph";
      }
    }
  }

 private:
  struct Chain {
    std::vector<std::unique_ptr<DeviceBuffer>> inputs;
    std::vector<std::unique_ptr<DeviceBuffer>> outputs;
    std::vector<std::unique_ptr<DeviceBuffer>> workspaces;
    std::vector<std::shared_ptr<LoadedProgram>> programs;
    WorkUnit launches;
    DevicePointer last = 0;  ///< the result of the last launch, 0 before the first
    std::int64_t last_bytes = 0;
  };

  void append(Chain& chain, const Link& link, double place) {
    const BoundProblem problem = bound(link.problem);
    auto list = must(enumerate_candidates(*catalog_, problem, device_->profile()));
    std::erase_if(list.candidates, [](const Candidate& candidate) {
      return !candidate.plan.launches.front().programmatic;
    });
    const std::vector<Candidate>& early = list.candidates;
    ASSERT_FALSE(early.empty()) << problem.text();
    const Candidate& candidate =
        early[static_cast<std::size_t>(place * static_cast<double>(early.size()))];
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    ASSERT_TRUE(kernel) << kernel.error().message;
    const ExecutionPlan& plan = candidate.plan;
    auto program = must(device_->load(kernel.value()->bits, plan));

    ProgramLaunch launch{program.get(), {}};
    std::pair<DevicePointer, std::int64_t> written;
    bool reads = chain.last == 0;
    for (const TensorShape& shape : plan.tensors) {
      const bool in = shape.role == TensorRole::in;
      if (in && shape.name == link.from && chain.last != 0) {
        ASSERT_EQ(shape.bytes(), chain.last_bytes) << candidate.id();
        launch.arguments.tensors.push_back(chain.last);
        reads = true;
        continue;
      }
      auto buffer = must(device_->allocate(shape.bytes()));
      launch.arguments.tensors.push_back(buffer->address());
      if (in) {
        fill_randomly(*buffer, shape);
      } else if (shape.name == link.to) {
        written = {buffer->address(), shape.bytes()};
      }
      (in ? chain.inputs : chain.outputs).push_back(std::move(buffer));
    }
    ASSERT_TRUE(reads && written.first != 0) << link.from << ", " << link.to;
    std::tie(chain.last, chain.last_bytes) = written;
    for (const Scalar& scalar : plan.scalars) {
      launch.arguments.scalars.push_back(scalar.default_value);
    }
    std::int64_t bytes = 256;
    for (const WorkspacePlan& part : plan.workspaces) bytes += part.bytes + 256;
    auto workspace = must(device_->allocate(bytes));
    launch.arguments.workspace = workspace->address();
    chain.workspaces.push_back(std::move(workspace));
    chain.programs.push_back(std::move(program));
    chain.launches.push_back(std::move(launch));
  }

  void fill_randomly(DeviceBuffer& buffer, const TensorShape& shape) {
    std::normal_distribution<> normal;
    std::vector<std::byte> bytes(static_cast<std::size_t>(shape.bytes()));
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      store_element(bytes.data(), shape.dtype, i, normal(random_));
    }
    ASSERT_TRUE(device_->upload(buffer.address(), bytes));
  }

  void clear(const Chain& chain) {
    for (const auto& output : chain.outputs) {
      ASSERT_TRUE(device_->fill(output->address(), 0xFF, output->bytes()));
    }
    ASSERT_TRUE(device_->wait());
  }

  std::vector<unsigned char> result(const Chain& chain) {
    return download<unsigned char>(chain.last, chain.last_bytes);
  }

  std::mt19937 random_{static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed())};
};

TEST_F(EarlyStartGpuTest, RowsReadWhatTheKernelBeforeWrote) {
  for (const char* operation : {"rmsnorm", "layernorm", "softmax"}) {
    for (const char* shape : {"rows=128 columns=4096", "rows=1003 columns=1032"}) {
      expect_same_bits(repeated({concat(operation, " ", shape, " dtype=bf16"), "x", "y"}));
    }
    expect_same_bits(repeated({concat(operation, " rows=301 columns=32768 dtype=bf16"), "x", "y"}));
  }
}

TEST_F(EarlyStartGpuTest, SumsReadWhatTheKernelBeforeWrote) {
  for (const char* over : {"row", "tensor"}) {
    std::vector<Link> links = repeated({"softmax rows=128 columns=4096 dtype=bf16", "x", "y"}, 3);
    links.push_back({concat("reduce rows=128 columns=4096 dtype=bf16 over=", over), "x", "y"});
    expect_same_bits(links);
  }
}

TEST_F(EarlyStartGpuTest, PointwiseKernelsReadWhatTheKernelBeforeWrote) {
  for (const auto& [problem, from, to] : std::vector<Link>{
           {"vector_add n=524288 dtype=bf16", "a", "c"},
           {"elementwise n=524288 dtype=bf16 formula=a*x+y", "x", "r"},
           {"bias_activation rows=301 columns=4104 dtype=bf16", "x", "y"},
           {"gated_activation rows=301 columns=4104 dtype=bf16", "gate", "y"},
           {"rope tokens=100 heads=16 kv_heads=4 head_dim=128 dtype=bf16", "q", "q_out"}}) {
    expect_same_bits(repeated({problem, from, to}));
  }
}

TEST_F(EarlyStartGpuTest, ProductsReadWhatTheKernelBeforeWrote) {
  for (const char* rows : {"1", "13", "130", "1000"}) {
    expect_same_bits(
        repeated({concat("matmul m=", rows, " n=1024 k=1024 dtype=bf16"), "a", "d"}, 4));
  }
}

TEST_F(EarlyStartGpuTest, KernelsOfSeveralOperationsReadWhatTheOneBeforeWrote) {
  expect_same_bits({{"rmsnorm rows=130 columns=1024 dtype=bf16", "x", "y"},
                    {"matmul m=130 n=4096 k=1024 dtype=bf16", "a", "d"},
                    {"bias_activation rows=130 columns=4096 dtype=bf16", "x", "y"},
                    {"matmul m=130 n=1024 k=4096 dtype=bf16", "a", "d"},
                    {"layernorm rows=130 columns=1024 dtype=bf16", "x", "y"},
                    {"softmax rows=130 columns=1024 dtype=bf16", "x", "y"},
                    {"reduce rows=130 columns=1024 dtype=bf16", "x", "y"}});
}

}  // namespace
}  // namespace kernwright
