// Tests row kernels with data that the checks of a candidate do not have: extreme values, scalars
// other than the default, outputs in place of inputs, and many random shapes. Each repetition has
// 75 other shapes of each operation: --gtest_filter=RowsGpuTest.*Random* --gtest_shuffle
// --gtest_repeat=4

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "compile/render.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

using Values = std::vector<double>;
using Tensors = std::map<std::string, Values>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RowsGpuTest : public GpuWorld {
 protected:
  CandidateList enumerate(const BoundProblem& problem) {
    auto list = enumerate_candidates(*catalog_, problem, device_->profile());
    EXPECT_TRUE(list) << list.error().message;
    EXPECT_TRUE(!list || !list->candidates.empty()) << problem.text();
    return list ? std::move(list).value() : CandidateList{};
  }

  struct Given {
    Tensors inputs;
    std::map<std::string, double> scalars;        ///< other than their defaults
    std::map<std::string, std::string> in_place;  ///< output -> the input whose memory it takes
    double place = 0.5;                ///< of the candidate in the list of all, 0 to below 1
    std::string kernel_template = {};  ///< whose candidates alone are listed; empty: all
  };

  /// Returns the candidates that `given` chooses from.
  static std::vector<const Candidate*> chosen_from(const CandidateList& list,
                                                   std::string_view kernel_template) {
    std::vector<const Candidate*> chosen;
    for (const Candidate& candidate : list.candidates) {
      if (kernel_template.empty() || candidate.kernel_template->name == kernel_template) {
        chosen.push_back(&candidate);
      }
    }
    return chosen;
  }

  bool has_candidates(std::string_view text, std::string_view kernel_template) {
    return !chosen_from(enumerate(bound(text)), kernel_template).empty();
  }

  /// Returns what one candidate computes, by output. Outputs hold NaN before.
  Tensors compute(std::string_view text, const Given& given) {
    Tensors outputs;
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    const std::vector<const Candidate*> chosen = chosen_from(list, given.kernel_template);
    if (chosen.empty()) return outputs;
    const auto candidates = static_cast<double>(chosen.size());
    const Candidate& candidate = *chosen[static_cast<std::size_t>(given.place * candidates)];
    SCOPED_TRACE(candidate.id());
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    EXPECT_TRUE(kernel) << kernel.error().message;
    if (!kernel) return outputs;
    const ExecutionPlan& plan = candidate.plan;
    const auto program = must(device_->load(kernel.value()->bits, plan));

    LaunchArguments arguments;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::map<std::string, DevicePointer> address;
    for (const TensorShape& shape : plan.tensors) {
      const auto count = static_cast<std::size_t>(shape.elements());
      const bool in = shape.role == TensorRole::in;
      if (!in && given.in_place.contains(shape.name)) {
        address[shape.name] = address.at(given.in_place.at(shape.name));
      } else {
        std::vector<std::byte> bytes(static_cast<std::size_t>(shape.bytes()), std::byte{0xFF});
        for (std::size_t i = 0; in && i < count; ++i) {
          store_element(bytes.data(), shape.dtype, static_cast<std::int64_t>(i),
                        given.inputs.at(shape.name).at(i));
        }
        auto buffer = device_->allocate(shape.bytes());
        EXPECT_TRUE(buffer && device_->upload(buffer.value()->address(), bytes));
        address[shape.name] = buffer.value()->address();
        buffers.push_back(std::move(buffer).value());
      }
      arguments.tensors.push_back(address.at(shape.name));
    }
    for (const Scalar& scalar : plan.scalars) {
      const auto set = given.scalars.find(scalar.name);
      arguments.scalars.push_back(set == given.scalars.end() ? scalar.default_value : set->second);
    }
    std::int64_t workspace = 0;
    for (const WorkspacePlan& part : plan.workspaces) workspace += part.bytes + 256;
    auto scratch = must(device_->allocate(std::max<std::int64_t>(workspace, 256)));
    arguments.workspace = scratch->address();
    const auto ran = device_->run(*program, arguments);
    EXPECT_TRUE(ran) << ran.error().message;
    for (const TensorShape& shape : plan.tensors) {
      if (shape.role == TensorRole::in) continue;
      const auto raw = download<char>(address.at(shape.name), shape.bytes());
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        outputs[shape.name].push_back(load_element(raw.data(), shape.dtype, i));
      }
    }
    return outputs;
  }

  Values y(std::string_view text, const Given& given) { return compute(text, given)["y"]; }

  /// Random shapes of one operation, each checked as a candidate is when it is screened.
  void check_random_shapes(const std::vector<std::string>& kinds) {
    std::mt19937 random(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()) +
                        17U);
    const auto draw = [&](double largest) {  // log-uniform in 1 to largest
      return static_cast<std::int64_t>(
          std::exp2(std::uniform_real_distribution<>(0, std::log2(largest + 0.9))(random)));
    };
    constexpr std::array<const char*, 3> kTypes = {"bf16", "fp16", "fp32"};
    for (int shape = 0; shape < 75; ++shape) {
      const std::int64_t columns = draw(shape % 8 == 0 ? 262144 : 9000);
      const std::int64_t rows = draw(std::min(3e6 / static_cast<double>(columns), 5000.0));
      const BoundProblem problem =
          bound(concat(kinds[random() % kinds.size()], " rows=", rows, " columns=", columns,
                       " dtype=", kTypes[random() % kTypes.size()]));
      check_any_candidate(problem, random);
      if (HasFatalFailure()) return;
    }
  }

  /// Rows that begin anywhere in a vector of 16 bytes, of columns fewer and more than it holds, and
  /// so few that the tensor's end is near every row.
  void check_skewed_shapes(const std::vector<std::string>& kinds) {
    std::mt19937 random(29);
    for (const std::string& kind : kinds) {
      for (const char* dtype : {"bf16", "fp32"}) {
        for (const int columns : {1, 3, 7, 9, 999, 1001, 4097}) {
          for (const int rows : {1, 3, 20}) {
            check_any_candidate(
                bound(concat(kind, " rows=", rows, " columns=", columns, " dtype=", dtype)),
                random);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }

  /// Rings, whose blocks take several rows of a skew, and of several.
  void check_skewed_rings(const std::vector<std::string>& kinds) {
    std::mt19937 random(31);
    for (const std::string& kind : kinds) {
      for (const char* columns : {"999", "5003", "20001"}) {
        const BoundProblem problem = bound(concat(kind, " rows=3001 dtype=bf16 columns=", columns));
        std::vector<const Candidate*> rings;
        const CandidateList list = enumerate(problem);
        for (const Candidate& candidate : list.candidates) {
          if (candidate.scope.find("STAGES").value_or(0) > 0) rings.push_back(&candidate);
        }
        if (device_->profile().sm_arch >= 90) {
          ASSERT_FALSE(rings.empty()) << problem.text();
        }
        for (std::size_t i = 0; i < std::min<std::size_t>(rings.size(), 8); ++i) {
          check_candidate(problem, *rings[random() % rings.size()], random());
          if (HasFatalFailure()) return;
        }
      }
    }
  }

 private:
  void check_any_candidate(const BoundProblem& problem, std::mt19937& random) {
    const CandidateList list = enumerate(problem);
    ASSERT_FALSE(list.candidates.empty());
    check_candidate(problem, list.candidates[random() % list.candidates.size()], random());
  }

  /// As a candidate is checked when it is screened.
  void check_candidate(const BoundProblem& problem, const Candidate& candidate,
                       std::uint64_t seed) {
    const auto runner = must(open_runner(problem, seed));
    SCOPED_TRACE(concat(problem.text(), ": ", candidate.id()));
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto prepared = must(runner->prepare(candidate, *kernel.value()));
    const auto checked = must(runner->check(prepared.id, Runner::CheckDepth::screening));
    EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
    ASSERT_FALSE(runner->lost());
  }
};

void expect_near(const Values& got, const Values& expected, double relative) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(got[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(got[i], expected[i], relative * std::fabs(expected[i])) << i;
    }
  }
}

TEST_F(RowsGpuTest, SoftmaxOfLargeValuesIsOneAtTheLargest) {
  Values x(2000, -3e38);
  x[700] = 3e38;
  Values expected(2000, 0);
  expected[700] = 1;
  for (std::size_t i = 1000; i < 2000; ++i) x[i] = 1e30;
  for (std::size_t i = 1000; i < 2000; ++i) expected[i] = 1e-3;
  expect_near(y("softmax rows=2 columns=1000 dtype=fp32", {{{"x", x}}, {}, {}}), expected, 1e-6);
  expect_near(y("softmax rows=2 columns=1000 dtype=bf16", {{{"x", x}}, {}, {}}), expected, 4e-3);
}

TEST_F(RowsGpuTest, SoftmaxLeavesOutWhatIsMaskedAndIsZeroWhereAllIs) {
  constexpr std::size_t kColumns = 777;
  Values x(3 * kColumns, 1.0);
  Values bias(3 * kColumns, -kInfinity);  // row 0: all; row 1: all but one; row 2: every second
  Values expected(3 * kColumns, 0);
  bias[kColumns + 5] = 0;
  expected[kColumns + 5] = 1;
  for (std::size_t i = 0; i < kColumns; i += 2) {
    bias[2 * kColumns + i] = 0.5;
    expected[2 * kColumns + i] = 1.0 / 389;
  }
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    expect_near(y(concat("softmax rows=3 columns=777 mask=additive dtype=", dtype),
                  {{{"x", x}, {"bias", bias}}, {}, {}}),
                expected, 4e-3);
  }
  for (double& v : x) v = -kInfinity;
  expect_near(y("softmax rows=3 columns=777 dtype=fp32", {{{"x", x}}, {}, {}}),
              Values(3 * kColumns, 0), 0);
}

TEST_F(RowsGpuTest, SoftmaxTakesItsScaleAndTheQueriesOfASequence) {
  constexpr std::size_t kColumns = 10;
  constexpr std::size_t kQueries = 4;
  Values x;
  for (std::size_t i = 0; i < 8 * kColumns; ++i) x.push_back(static_cast<double>(i % 7));
  Values expected(x.size(), 0);
  for (std::size_t row = 0; row < 8; ++row) {
    const std::size_t seen = kColumns - kQueries + row % kQueries + 1;
    double sum = 0;
    for (std::size_t c = 0; c < seen; ++c) sum += std::exp(0.25 * x[row * kColumns + c]);
    for (std::size_t c = 0; c < seen; ++c) {
      expected[row * kColumns + c] = std::exp(0.25 * x[row * kColumns + c]) / sum;
    }
  }
  expect_near(y("softmax rows=8 columns=10 mask=causal dtype=fp32",
                {{{"x", x}}, {{"scale", 0.25}, {"queries", kQueries}}, {}}),
              expected, 1e-6);
}

TEST_F(RowsGpuTest, LayernormOfEqualValuesIsTheBias) {
  constexpr std::size_t kColumns = 1000;
  Values x(2 * kColumns, 12345.678F);
  for (std::size_t i = 0; i < kColumns; ++i) x[i] = 0.1F;
  Values b;
  Values expected;
  for (std::size_t i = 0; i < 2 * kColumns; ++i)
    expected.push_back(static_cast<double>(i % kColumns % 5));
  for (std::size_t i = 0; i < kColumns; ++i) b.push_back(static_cast<double>(i % 5));
  expect_near(y("layernorm rows=2 columns=1000 dtype=fp32",
                {{{"x", x}, {"w", Values(kColumns, 3.0)}, {"b", b}}, {}, {}}),
              expected, 0);
}

TEST_F(RowsGpuTest, LayernormKeepsItsDigitsFarFromZero) {
  constexpr std::size_t kColumns = 1000;
  Values x;
  for (std::size_t i = 0; i < kColumns; ++i) x.push_back(1000 + (i % 2 == 0 ? 0.125 : -0.125));
  Values expected;
  for (std::size_t i = 0; i < kColumns; ++i) {
    expected.push_back((i % 2 == 0 ? 0.125 : -0.125) / std::sqrt(0.015625 + 1e-5));
  }
  expect_near(
      y("layernorm rows=1 columns=1000 weight=none bias=none dtype=fp32", {{{"x", x}}, {}, {}}),
      expected, 2e-3);
}

// A row whose mean is far from zero is summed twice, its neighbours in a warp or block are not.
TEST_F(RowsGpuTest, LayernormOfRowsNearZeroFarFromItAndWithoutANumber) {
  constexpr std::size_t kRows = 40;
  for (const std::size_t columns : {64U, 512U, 4104U}) {
    Values x;
    Values expected;
    for (std::size_t i = 0; i < kRows * columns; ++i) {
      const std::size_t row = i / columns;
      const double side = i % 2 == 0 ? 1 : -1;
      x.push_back(row % 3 == 0 ? 300 + 2 * side : side / 4);
      const double variance = row % 3 == 0 ? 4 : 0.0625;
      expected.push_back(side * std::sqrt(variance / (variance + 1e-5)));
    }
    for (std::size_t i = 7 * columns; i < 8 * columns; ++i) expected[i] = std::nan("");
    x[7 * columns + 5] = std::nan("");
    for (const char* dtype : {"bf16", "fp16", "fp32"}) {
      for (const double place : {0.0, 0.15, 0.3, 0.5, 0.7, 0.9}) {
        expect_near(
            y(concat("layernorm weight=none bias=none rows=40 columns=", columns, " dtype=", dtype),
              {{{"x", x}}, {}, {}, place}),
            expected, 4e-3);
      }
    }
  }
}

TEST_F(RowsGpuTest, RmsnormOfTinyAndLargeValues) {
  constexpr std::size_t kColumns = 256;
  Values x(4 * kColumns, 0);
  Values expected(4 * kColumns, 0);
  for (std::size_t i = 0; i < kColumns; ++i) {
    x[kColumns + i] = 1e-40;  // subnormal: eps rules
    expected[kColumns + i] = 1e-37;
    x[2 * kColumns + i] = -1e17;
    expected[2 * kColumns + i] = -1;
    x[3 * kColumns + i] = 1e30;  // its square is infinite
  }
  expect_near(y("rmsnorm rows=4 columns=256 weight=none dtype=fp32", {{{"x", x}}, {}, {}}),
              expected, 1e-4);
}

TEST_F(RowsGpuTest, RmsnormScalesBeforeItRoundsAndSaturates) {
  constexpr std::size_t kColumns = 1000;
  Values x;
  for (std::size_t i = 0; i < kColumns; ++i) x.push_back(i % 2 == 0 ? 2 : -2);
  Values w(kColumns, 1.0);
  for (std::size_t i = 0; i < kColumns; i += 10) w[i] = 100;
  Values bytes;
  Values floats;
  for (std::size_t i = 0; i < kColumns; ++i) {
    bytes.push_back(i % 10 == 0 ? 127 : (i % 2 == 0 ? 10 : -10));
    floats.push_back(i % 10 == 0 ? 448 : (i % 2 == 0 ? 10 : -10));
  }
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    const Given given{{{"x", x}, {"w", w}}, {{"scale", 10}}, {}};
    expect_near(y(concat("rmsnorm rows=1 columns=1000 out=int8 dtype=", dtype), given), bytes, 0);
    expect_near(y(concat("rmsnorm rows=1 columns=1000 out=fp8_e4m3 dtype=", dtype), given), floats,
                0);
  }
}

TEST_F(RowsGpuTest, TheLargestOfARowKnowsInfinityAndNan) {
  constexpr std::size_t kColumns = 500;
  Values x(3 * kColumns, -kInfinity);
  for (std::size_t i = 0; i < kColumns; ++i) x[kColumns + i] = -static_cast<double>(i) - 1;
  x[2 * kColumns + 123] = std::nan("");
  expect_near(y("reduce rows=3 columns=500 kind=max dtype=fp32", {{{"x", x}}, {}, {}}),
              {-kInfinity, -1, std::nan("")}, 0);
}

TEST_F(RowsGpuTest, SoftmaxOfARowWithANanThatIsSeenIsNan) {
  constexpr std::size_t kColumns = 300;
  for (const double place : {0.0, 0.3, 0.6, 0.9}) {
    Values x(3 * kColumns, 1.0);
    x[kColumns + 250] = std::nan("");
    Values expected(3 * kColumns, 1.0 / kColumns);
    for (std::size_t i = 0; i < kColumns; ++i) expected[kColumns + i] = std::nan("");
    expect_near(y("softmax rows=3 columns=300 dtype=bf16", {{{"x", x}}, {}, {}, place}), expected,
                4e-3);
    // Row 0 sees 298 columns, row 1 one more, row 2 all.
    for (std::size_t row = 0; row < 3; ++row) {
      const std::size_t seen = kColumns - 2 + row;
      for (std::size_t i = 0; i < kColumns; ++i) {
        const double one = row == 1 ? std::nan("") : 1.0 / static_cast<double>(seen);
        expected[row * kColumns + i] = row == 1 || i < seen ? one : 0.0;
      }
      x[row * kColumns + 299] = row == 2 ? 1.0 : std::nan("");  // not seen
    }
    expect_near(y("softmax rows=3 columns=300 dtype=bf16 mask=causal",
                  {{{"x", x}}, {{"queries", 3}}, {}, place}),
                expected, 4e-3);
  }
}

TEST_F(RowsGpuTest, ANanIsTheResultOfEveryMaximumMinimumAndActivation) {
  const double nan = std::nan("");
  const Values x{nan, 1, nan, -2};
  const Values y{5, nan, -5, 3};
  for (const char* out : {"bf16", "fp8_e4m3"}) {
    const auto result = [&](std::string_view formula) {
      const auto both = formula.find('y') != std::string_view::npos;
      const Tensors inputs = both ? Tensors{{"x", x}, {"y", y}} : Tensors{{"x", x}};
      return compute(concat("elementwise n=4 dtype=bf16 out=", out, " formula=", formula),
                     {inputs, {}, {}})["r"];
    };
    expect_near(result("max(x,y)"), {nan, nan, nan, 3}, 0);
    expect_near(result("min(x,y)"), {nan, nan, nan, -2}, 0);
    expect_near(result("max(min(x,1),-1)"), {nan, 1, nan, -1}, 0);
    expect_near(result("relu(x)"), {nan, 1, nan, 0}, 0);
  }
  for (const char* activation : {"gelu_tanh", "gelu_erf", "silu", "relu", "relu_squared"}) {
    const Values activated =
        this->y(concat("bias_activation rows=1 columns=4 dtype=fp32 activation=", activation),
                {{{"x", x}, {"bias", Values(4, 0.0)}}, {}, {}});
    ASSERT_EQ(activated.size(), 4U);
    EXPECT_TRUE(std::isnan(activated[0]) && std::isnan(activated[2])) << activation;
    EXPECT_FALSE(std::isnan(activated[1]) || std::isnan(activated[3])) << activation;
  }
}

TEST_F(RowsGpuTest, AnIntegerIsZeroWhereItsValueIsNan) {
  Values x(64, 1.0);
  Values w(64, 3.0);
  w[7] = std::nan("");
  Values expected(64, 3);
  expected[7] = 0;
  expect_near(y("rmsnorm rows=1 columns=64 dtype=bf16 out=int8", {{{"x", x}, {"w", w}}, {}, {}}),
              expected, 0);
}

// A NaN is the scale of its row or group, and nothing of its neighbours'.
TEST_F(RowsGpuTest, ANanReachesNoOtherScale) {
  constexpr std::size_t kColumns = 400;
  Values x(3 * kColumns, 1.0);
  x[kColumns + 130] = std::nan("");
  for (const double place : {0.0, 0.3, 0.6, 0.9}) {
    for (const char* way : {"row", "block"}) {
      const Tensors gated = compute(
          concat("gated_activation rows=3 columns=400 dtype=bf16 out=fp8_e4m3 activation=relu "
                 "quantize=",
                 way),
          {{{"gate", x}, {"up", Values(x.size(), 2.0)}}, {}, {}, place});
      const Tensors normal = compute(
          concat("rmsnorm rows=3 columns=400 dtype=bf16 out=fp8_e4m3 weight=none quantize=", way),
          {{{"x", x}}, {{"eps", 0}}, {}, place});
      const bool by_row = way == std::string_view("row");
      const std::size_t groups = by_row ? 1 : 4;
      Values of_gates(groups * 3, 2.0 / 448);
      Values of_norms(groups * 3, 1.0 / 448);
      of_gates[by_row ? 1 : 3 + 1] = std::nan("");  // [groups, rows]
      for (std::size_t g = 0; g < groups; ++g) of_norms[g * 3 + 1] = std::nan("");
      expect_near(gated.at("y_scale"), of_gates, 1e-6);
      expect_near(normal.at("y_scale"), of_norms, 1e-6);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t column = i % kColumns;
        const bool shares = i / kColumns == 1 && (by_row || column / 128 == 1);
        EXPECT_EQ(std::isnan(gated.at("y")[i]), shares) << way << ' ' << i;
        EXPECT_EQ(std::isnan(normal.at("y")[i]), i / kColumns == 1) << way << ' ' << i;
      }
    }
  }
}

// A row whose elements are equal becomes the bias, which then has the largest code.
TEST_F(RowsGpuTest, ARowOfEqualValuesIsItsQuantizedBias) {
  constexpr std::size_t kColumns = 500;
  const Values x(2 * kColumns, 1.0);
  const Values bias(kColumns, 0.5);
  for (const double place : {0.0, 0.3, 0.6, 0.9}) {
    for (const char* way : {"row", "block"}) {
      const Tensors results =
          compute(concat("layernorm rows=2 columns=500 dtype=bf16 out=int8 quantize=", way),
                  {{{"x", x}, {"w", Values(kColumns, 1.0)}, {"b", bias}}, {}, {}, place});
      expect_near(results.at("y"), Values(x.size(), 127.0), 0);
      for (const double scale : results.at("y_scale")) EXPECT_NEAR(scale, 0.5 / 127, 1e-6) << way;
    }
  }
}

// A factor of 0 takes its tensor out, whatever that holds: here nothing but NaN.
TEST_F(RowsGpuTest, AScaleOfZeroMakesZeroOfAnything) {
  constexpr std::size_t kRows = 6;
  constexpr std::size_t kColumns = 1001;
  const Values x(kRows * kColumns, std::nan(""));
  const Values w(kColumns, std::nan(""));
  const Values zeros(x.size(), 0.0);
  for (const double place : {0.0, 0.3, 0.6, 0.9}) {
    for (const char* out : {"bf16", "fp32", "fp8_e4m3"}) {
      expect_near(y(concat("gated_activation rows=6 columns=1001 dtype=bf16 out=", out),
                    {{{"gate", x}, {"up", x}}, {{"scale", 0}}, {}, place}),
                  zeros, 0);
    }
    for (const char* out : {"bf16", "fp8_e4m3", "int8"}) {
      expect_near(y(concat("rmsnorm rows=6 columns=1001 dtype=bf16 out=", out),
                    {{{"x", x}, {"w", w}}, {{"scale", 0}}, {}, place}),
                  zeros, 0);
    }
    expect_near(
        y("softmax rows=6 columns=1001 dtype=fp32", {{{"x", x}}, {{"scale", 0}}, {}, place}),
        Values(x.size(), 1.0 / kColumns), 1e-6);
    Values bias(x.size(), -kInfinity);
    Values expected = zeros;
    for (std::size_t row = 0; row < kRows; ++row) {
      bias[row * kColumns + 7 * row] = 3;
      expected[row * kColumns + 7 * row] = 1;
    }
    expect_near(y("softmax rows=6 columns=1001 dtype=fp32 mask=additive",
                  {{{"x", x}, {"bias", bias}}, {{"scale", 0}}, {}, place}),
                expected, 1e-6);
  }
}

TEST_F(RowsGpuTest, AProductsFactorOfZeroTakesItsTensorsOut) {
  std::set<std::string> tried;
  for (const auto& [m, n, k] : {std::array<std::size_t, 3>{5, 72, 200},
                                {100, 144, 136},
                                {100, 144, 133},  // copied first, if TMA loads
                                {300, 272, 520}}) {
    const auto filled = [](std::size_t count, double value) { return Values(count, value); };
    const double nan = std::nan("");
    const std::string sizes = concat("matmul m=", m, " n=", n, " k=", k, " dtype=bf16");
    for (const KernelTemplate* made : catalog_->templates_of("matmul")) {
      for (const double place : {0.2, 0.8}) {
        const char* const layout = place < 0.5 ? " b_layout=nk" : " b_layout=kn";
        const std::string added = concat(sizes, " out=fp32 scaling=alpha residual=scaled", layout);
        if (has_candidates(added, made->name)) {
          tried.insert(made->name);
          Given given{{{"a", filled(m * k, nan)},
                       {"b", filled(n * k, nan)},
                       {"residual", filled(m * n, 8)}},
                      {{"alpha", 0}, {"beta", 0.5}},
                      {},
                      place,
                      made->name};
          expect_near(compute(added, given)["d"], filled(m * n, 4), 0);
          given.inputs = {
              {"a", filled(m * k, 1)}, {"b", filled(n * k, 1)}, {"residual", filled(m * n, nan)}};
          given.scalars = {{"alpha", 2}, {"beta", 0}};
          expect_near(compute(added, given)["d"], filled(m * n, 2.0 * static_cast<double>(k)), 0);
        }
        const std::string gated =
            concat(sizes, " scaling=alpha gate=stacked activation=silu", layout);
        if (has_candidates(gated, made->name)) {
          const Tensors inputs{{"a", filled(m * k, nan)}, {"b", filled(2 * n * k, nan)}};
          expect_near(compute(gated, {inputs, {{"alpha", 0}}, {}, place, made->name})["d"],
                      filled(m * n, 0), 0);
        }
      }
    }
  }
  for (const KernelTemplate* made : catalog_->templates_of("matmul")) {
    const bool runs = made->runs_on(device_->profile().sm_arch);
    EXPECT_EQ(tried.contains(made->name), runs) << made->name;
  }
}

TEST_F(RowsGpuTest, ASumMayTakeThePlaceOfWhatWasAdded) {
  constexpr std::size_t kColumns = 1000;
  Values x;
  Values r;
  Values sum;
  for (std::size_t i = 0; i < 3 * kColumns; ++i) {
    x.push_back(static_cast<double>(i % 11) - 5);
    r.push_back(static_cast<double>(i % 13) - 6);
    sum.push_back(x.back() + r.back());
  }
  for (const char* operation :
       {"rmsnorm", "layernorm bias=none", "rmsnorm out=int8 quantize=row",
        "rmsnorm out=int8 quantize=block", "layernorm bias=none out=int8 quantize=row",
        "layernorm bias=none out=int8 quantize=block"}) {
    const std::string text =
        concat(operation, " rows=3 columns=1000 weight=none residual=add dtype=bf16");
    const Tensors apart = compute(text, {{{"x", x}, {"r", r}}, {}, {}});
    const Tensors over = compute(text, {{{"x", x}, {"r", r}}, {}, {{"sum", "r"}}});
    expect_near(apart.at("sum"), sum, 0);
    expect_near(over.at("sum"), sum, 0);
    expect_near(over.at("y"), apart.at("y"), 0);
  }
}

TEST_F(RowsGpuTest, RmsnormSkewedRowsAreRight) {
  check_skewed_shapes({"rmsnorm", "rmsnorm out=fp8_e4m3 residual=add",
                       "rmsnorm out=int8 quantize=row", "rmsnorm out=fp8_e4m3 quantize=block"});
}
TEST_F(RowsGpuTest, LayernormSkewedRowsAreRight) {
  check_skewed_shapes({"layernorm", "layernorm residual=add", "layernorm out=int8 quantize=row",
                       "layernorm out=fp8_e4m3 quantize=block"});
}
TEST_F(RowsGpuTest, SoftmaxSkewedRowsAreRight) {
  check_skewed_shapes({"softmax", "softmax mask=additive"});
}
TEST_F(RowsGpuTest, ReduceSkewedRowsAreRight) {
  check_skewed_shapes({"reduce out=fp32", "reduce kind=max"});
}
TEST_F(RowsGpuTest, SkewedRowsInRingsAreRight) {
  check_skewed_rings({"rmsnorm", "rmsnorm residual=add", "rmsnorm out=fp8_e4m3 quantize=row",
                      "layernorm", "layernorm out=fp8_e4m3 quantize=row", "softmax",
                      "reduce out=fp32"});
}

TEST_F(RowsGpuTest, RmsnormRandomShapesAreRight) {
  check_random_shapes({"rmsnorm", "rmsnorm weight=none", "rmsnorm residual=add",
                       "rmsnorm out=fp8_e4m3", "rmsnorm out=int8 residual=add",
                       "rmsnorm out=fp32"});
}
TEST_F(RowsGpuTest, QuantizedRmsnormRandomShapesAreRight) {
  check_random_shapes(
      {"rmsnorm out=fp8_e4m3 quantize=row", "rmsnorm out=int8 quantize=row residual=add",
       "rmsnorm out=fp8_e4m3 quantize=block residual=add",
       "rmsnorm out=int8 quantize=block weight=none", "rmsnorm out=int8 quantize=tensor"});
}
TEST_F(RowsGpuTest, QuantizedLayernormRandomShapesAreRight) {
  check_random_shapes({"layernorm out=fp8_e4m3 quantize=row",
                       "layernorm out=int8 quantize=row residual=add",
                       "layernorm out=fp8_e4m3 quantize=block residual=add",
                       "layernorm out=int8 quantize=block weight=none bias=none",
                       "layernorm out=fp8_e4m3 quantize=tensor"});
}
TEST_F(RowsGpuTest, QuantizedGatesOfRandomShapesAreRight) {
  check_random_shapes({"gated_activation out=fp8_e4m3 quantize=row layout=packed",
                       "gated_activation out=int8 quantize=row activation=gelu_erf",
                       "gated_activation out=fp8_e4m3 quantize=block layout=packed",
                       "gated_activation out=int8 quantize=block activation=gelu_tanh",
                       "gated_activation out=int8 quantize=tensor layout=packed"});
}
TEST_F(RowsGpuTest, LayernormRandomShapesAreRight) {
  check_random_shapes({"layernorm", "layernorm weight=none bias=none", "layernorm residual=add"});
}
TEST_F(RowsGpuTest, SoftmaxRandomShapesAreRight) {
  check_random_shapes({"softmax", "softmax mask=causal", "softmax mask=additive"});
}
TEST_F(RowsGpuTest, ReduceRandomShapesAreRight) {
  check_random_shapes({"reduce out=fp32", "reduce kind=max", "reduce kind=mean out=fp32",
                       "reduce kind=sum_squares out=fp32", "reduce over=tensor out=fp32"});
}

}  // namespace
}  // namespace kernwright
