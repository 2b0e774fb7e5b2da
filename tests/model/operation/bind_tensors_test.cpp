#include "model/operation/bind_tensors.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class BindTensorsTest : public testing::Test {
 protected:
  void SetUp() override { catalog_ = must(Catalog::load({})); }

  const Operation& operation(std::string_view name) const { return **catalog_->operation(name); }

  /// Binds tensors of the operation without scalars.
  Result<TensorBinding> bind(std::string_view name, const std::vector<GivenTensor>& tensors,
                             const std::string& options = "",
                             const std::vector<std::string>& scalars = {}) const {
    return bind_tensors(operation(name), tensors, scalars,
                        *Problem::parse(concat(name, " ", options)));
  }
  std::string refusal(std::string_view name, const std::vector<GivenTensor>& tensors,
                      const std::string& options = "") const {
    const auto bound = bind(name, tensors, options);
    return bound ? concat("not refused: ", bound->problem ? bound->problem->text() : "nothing")
                 : bound.error().message;
  }

  std::shared_ptr<const Catalog> catalog_;
};

GivenTensor tensor(std::string name, std::vector<std::int64_t> extent, DType dtype = DType::bf16,
                   std::vector<std::int64_t> strides = {}) {
  std::int64_t stride = 1;
  for (std::size_t i = strides.empty() ? extent.size() : 0; i-- > 0; stride *= extent[i]) {
    strides.insert(strides.begin(), stride);
  }
  return {std::move(name), {}, dtype, std::move(extent), std::move(strides), {}};
}

/// Returns the tensors of a problem as callers pass them.
std::vector<GivenTensor> tensors_of(const BoundProblem& problem) {
  std::vector<GivenTensor> given;
  const auto& swapped = problem.operation().call.swapped;
  for (const TensorShape& shape : problem.shapes()) {
    GivenTensor one{shape.name, {}, shape.dtype, shape.extent, {}, {}};
    for (std::size_t i = 0; i < shape.extent.size(); ++i) {
      one.strides.push_back(i + 1 == shape.extent.size() ? 1 : shape.pitch(i));
    }
    if (swapped && std::count(swapped->tensors.begin(), swapped->tensors.end(), shape.name) != 0 &&
        swapped->when.evaluate(problem.scope()).value() == 1) {
      const std::size_t a = shape.extent.size() - swapped->axes.first;
      const std::size_t b = shape.extent.size() - swapped->axes.second;
      std::swap(one.extent[a], one.extent[b]);
      std::swap(one.strides[a], one.strides[b]);
    }
    given.push_back(std::move(one));
  }
  return given;
}

bool same_tensors(const std::vector<GivenTensor>& some, const std::vector<GivenTensor>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const GivenTensor& a, const GivenTensor& b) {
                      return a.name == b.name && a.dtype == b.dtype && a.extent == b.extent &&
                             a.strides == b.strides;
                    });
}

/// Returns the names of the flags that follow from which inputs and scalars there are, and from the
/// layout.
std::set<std::string> told_flags(const Operation& operation) {
  std::set<std::string> told;
  const std::function<void(const Expression&)> add = [&](const Expression& expression) {
    for (const std::string& name : expression.names()) {
      if (!told.insert(name).second) continue;
      for (const NamedValue& value : operation.derived) {
        if (value.name == name) add(value.expression);
      }
    }
  };
  for (const Tensor& one : operation.tensors) {
    if (one.when && one.role != TensorRole::out) add(*one.when);
  }
  for (const Scalar& scalar : operation.scalars) {
    if (scalar.when) add(*scalar.when);
  }
  if (operation.call.swapped) add(operation.call.swapped->when);
  return told;
}

/// Returns the options of a problem that its tensors cannot tell: dims that callers may say, and
/// flags that no input and no layout depends on.
Problem options_of(const BoundProblem& problem) {
  const Operation& operation = problem.operation();
  const std::set<std::string> told = told_flags(operation);
  Problem::Dims dims;
  for (const std::string& name : operation.call.options) {
    dims.emplace_back(name, *problem.scope().find(name));
  }
  Problem::Flags flags;
  for (const auto& [name, value] : problem.problem().flags()) {
    if (!told.contains(name)) flags.emplace_back(name, value);
  }
  return Problem::make(operation.name, std::move(dims), std::move(flags));
}

/// Returns variants of the operation's example: other dtypes, other flags, pairs of those that
/// tensors tell, and rows with gaps.
std::vector<BoundProblem> variants_of(const Operation& operation) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Flag& flag : operation.flags) {
    for (const std::string& value : flag.values) values.emplace_back(flag.name, value);
  }
  for (const TypeVariable& variable : operation.type_variables) {
    for (const DType dtype : variable.dtypes) {
      values.emplace_back(variable.name, std::string(to_string(dtype)));
    }
  }
  const std::set<std::string> told = told_flags(operation);
  const Problem& example = operation.example;
  std::vector<Problem> problems{example};
  for (const auto& [name, value] : values) {
    problems.push_back(example.with(name, value));
    for (const auto& [other, also] : values) {
      if (other > name && told.contains(name) && told.contains(other)) {
        problems.push_back(example.with(name, value).with(other, also));
      }
    }
  }
  std::vector<BoundProblem> variants;
  for (const Problem& problem : problems) {
    if (auto bound = BoundProblem::bind(operation, problem)) variants.push_back(*std::move(bound));
  }
  const BoundProblem first = variants.front();
  for (const Dim& dim : operation.dims) {
    if (dim.name.rfind("ld", 0) != 0) continue;
    Problem::Dims dims = example.dims();
    dims.emplace_back(dim.name, *first.scope().find(dim.name) + 16);
    const auto apart =
        BoundProblem::bind(operation, Problem::make(operation.name, dims, example.flags()));
    if (apart) variants.push_back(*apart);
  }
  return variants;
}

TEST_F(BindTensorsTest, TheTensorsOfAProblemLeadBackToIt) {
  std::size_t count = 0;
  for (const Operation& operation : catalog_->operations()) {
    for (const BoundProblem& problem : variants_of(operation)) {
      std::vector<std::string> scalars;
      const std::vector<Scalar> present = problem.scalars().value();
      for (const Scalar& scalar : present) scalars.push_back(scalar.name);
      const std::vector<GivenTensor> tensors = tensors_of(problem);
      const auto bound = bind_tensors(operation, tensors, scalars, options_of(problem));
      ASSERT_TRUE(bound) << problem.text() << "\n" << bound.error().message;
      ASSERT_TRUE(bound->problem) << problem.text();
      if (bound->problem->text() != problem.text()) {
        // Several problems have these tensors, and the flags that are not told are the defaults.
        const auto other = BoundProblem::bind(operation, *bound->problem);
        EXPECT_TRUE(same_tensors(tensors, tensors_of(*other))) << bound->problem->text() << "\n"
                                                               << problem.text();
      }
      EXPECT_TRUE(bound->made.empty()) << problem.text();
      ++count;

      // The results that are not given are made with the same shapes.
      std::vector<GivenTensor> inputs;
      for (const GivenTensor& one : tensors) {
        const auto is_output = [&](const TensorShape& shape) {
          return shape.name == one.name && shape.role == TensorRole::out;
        };
        if (std::none_of(problem.shapes().begin(), problem.shapes().end(), is_output)) {
          inputs.push_back(one);
        }
      }
      Problem options = options_of(problem);
      for (const auto& [name, value] : problem.problem().flags()) {
        const bool is_given =
            std::any_of(options.flags().begin(), options.flags().end(),
                        [&, &wanted = name](const auto& flag) { return flag.first == wanted; });
        if (name != "dtype" && !is_given) options = options.with(name, value);
      }
      const auto made = bind_tensors(operation, inputs, scalars, options);
      ASSERT_TRUE(made) << problem.text() << "\n" << made.error().message;
      for (const MadeTensor& one : made->made) {
        const auto given = std::find_if(tensors.begin(), tensors.end(),
                                        [&](const GivenTensor& t) { return t.name == one.name; });
        ASSERT_NE(given, tensors.end()) << problem.text() << " " << one.name;
        std::vector<std::int64_t> extent = one.extent;
        if (one.swapped) std::swap(extent[one.swapped->first], extent[one.swapped->second]);
        if (extent.empty()) extent = {1};  // a result that has no axis of its own
        EXPECT_EQ(extent, given->extent) << problem.text() << " " << one.name;
        EXPECT_EQ(one.dtype, given->dtype) << problem.text() << " " << one.name;
      }
    }
  }
  EXPECT_GT(count, 200U);
}

/// Calls of one operation whose tensors differ in sizes and strides.
class Calls {
 public:
  explicit Calls(const BoundProblem& problem) : problem_(problem), options_(options_of(problem)) {
    for (const auto& [name, value] : problem.problem().flags()) {
      if (problem.operation().call.options.empty()) options_ = options_.with(name, value);
    }
    const std::vector<Scalar> present = problem.scalars().value();
    for (const Scalar& scalar : present) scalars_.push_back(scalar.name);
  }

  const Operation& operation() const { return problem_.operation(); }
  const Problem& options() const { return options_; }
  const std::vector<std::string>& scalars() const { return scalars_; }

  /// Returns the tensors of the problem, or of one with other sizes, some of which are equal or 1.
  /// Some calls have a number that does not fit.
  std::vector<GivenTensor> draw(std::mt19937_64& random, bool other_sizes) const {
    BoundProblem drawn = problem_;
    if (other_sizes) {
      const std::int64_t sizes[] = {1, 2, 3, 8, 16, 17, 64, 128, pick(random, 2, 4000)};
      Problem::Dims dims = problem_.problem().dims();
      for (auto& [name, size] : dims) {
        if (random() % 2 == 0) size = sizes[random() % std::size(sizes)];
      }
      const auto bound = BoundProblem::bind(
          operation(), Problem::make(operation().name, dims, problem_.problem().flags()));
      if (bound) drawn = *bound;
    }
    std::vector<GivenTensor> tensors = tensors_of(drawn);
    if (other_sizes && random() % 4 == 0) {
      GivenTensor& wrong = tensors[random() % tensors.size()];
      auto& numbers = random() % 2 == 0 ? wrong.extent : wrong.strides;
      if (!numbers.empty()) numbers[random() % numbers.size()] = pick(random, 0, 70);
    }
    return tensors;
  }
  /// Removes the tensors that this problem only writes.
  std::vector<GivenTensor> inputs(std::vector<GivenTensor> tensors) const {
    std::erase_if(tensors, [&](const GivenTensor& one) {
      return std::ranges::any_of(problem_.shapes(), [&](const TensorShape& shape) {
        return shape.name == one.name && shape.role == TensorRole::out;
      });
    });
    return tensors;
  }

 private:
  static std::int64_t pick(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  }

  BoundProblem problem_;
  Problem options_;
  std::vector<std::string> scalars_;
};

TEST_F(BindTensorsTest, APatternSaysWhatBindingSays) {
  std::mt19937_64 random(1);
  std::size_t followed = 0;
  std::size_t bound_calls = 0;
  for (const Operation& operation : catalog_->operations()) {
    for (const BoundProblem& problem : variants_of(operation)) {
      const Calls calls(problem);
      const bool all = random() % 2 == 0;
      const auto draw = [&](bool other_sizes) {
        auto tensors = calls.draw(random, other_sizes);
        return all ? tensors : calls.inputs(std::move(tensors));
      };
      const auto found = find_pattern(operation, draw(false), calls.scalars(), calls.options());
      if (!found) continue;  // its results tell something
      ASSERT_TRUE(*found) << problem.text();
      for (int i = 0; i < 40; ++i) {
        const std::vector<GivenTensor> tensors = draw(i > 0);
        std::vector<std::int64_t> numbers;
        for (const GivenTensor& one : tensors) {
          numbers.insert(numbers.end(), one.extent.begin(), one.extent.end());
          numbers.insert(numbers.end(), one.strides.begin(), one.strides.end());
        }
        std::vector<std::int64_t> made;
        const auto by_pattern = (*found)->problem(numbers.data(), numbers.size(), made);
        const auto bound = bind_tensors(operation, tensors, calls.scalars(), calls.options());
        const bool is_bound = bound && bound->problem && bound->refusal.empty();
        bound_calls += is_bound ? 1 : 0;
        ASSERT_TRUE(by_pattern || i > 0) << problem.text();
        if (!by_pattern) continue;
        followed += is_bound ? 1 : 0;
        // A problem that a rule refuses has no kernel.
        if (!BoundProblem::bind(operation, *by_pattern)) continue;
        ASSERT_TRUE(is_bound) << problem.text() << "\n" << by_pattern->text();
        ASSERT_EQ(by_pattern->text(), bound->problem->text()) << problem.text();
        std::vector<std::int64_t> expected;
        for (const MadeTensor& one : bound->made) {
          expected.insert(expected.end(), one.extent.begin(), one.extent.end());
        }
        ASSERT_EQ(made, expected) << by_pattern->text();
      }
    }
  }
  EXPECT_GT(followed, bound_calls / 4) << "of " << bound_calls;
}

TEST_F(BindTensorsTest, LeadingAxesAreRows) {
  const auto bound = must(bind("matmul", {tensor("a", {2, 8, 128}), tensor("b", {64, 128})}));
  EXPECT_EQ(bound.problem->text(), "matmul m=16 n=64 k=128 dtype=bf16");
  ASSERT_EQ(bound.made.size(), 1U);
  EXPECT_EQ(bound.made[0].extent, (std::vector<std::int64_t>{2, 8, 64}));
  const auto vector = must(bind("matmul", {tensor("a", {128}), tensor("b", {64, 128})}));
  EXPECT_EQ(vector.made[0].extent, std::vector<std::int64_t>{64});
}

TEST_F(BindTensorsTest, AProductMayBeTwoAxesOfTheCaller) {
  GivenTensor b = tensor("b", {4, 64, 128});
  b.order = {0, 1, 2};
  const auto batched = must(bind("matmul", {tensor("a", {4, 16, 128}), b}));
  EXPECT_EQ(batched.problem->text(), "matmul m=16 n=64 k=128 batch=4 dtype=bf16");
  EXPECT_EQ(batched.made[0].extent, (std::vector<std::int64_t>{4, 16, 64}));
  EXPECT_EQ(refusal("matmul", {tensor("a", {2, 32, 128}), b}),
            "a has the shape [2, 32, 128], and 4 expected in place of the first size: batch");
  GivenTensor several = tensor("b", {2, 3, 64, 128});
  several.order = {0, 1, 2, 3};
  const auto more = must(bind("matmul", {tensor("a", {2, 3, 16, 128}), several}));
  EXPECT_EQ(more.problem->text(), "matmul m=16 n=64 k=128 batch=6 dtype=bf16");
  EXPECT_EQ(more.made[0].extent, (std::vector<std::int64_t>{2, 3, 16, 64}));
  EXPECT_EQ(refusal("matmul", {tensor("a", {3, 2, 16, 128}), several}),
            "b has the shape [2, 3, 64, 128], and [3, 2, 64, 128] expected")
      << "they would be paired otherwise";
  GivenTensor weights = tensor("b", {3, 256, 128}, DType::bf16, {32768, 1, 256});
  weights.order = {0, 2, 1};
  EXPECT_EQ(refusal("grouped_matmul",
                    {tensor("a", {64, 256}), weights, tensor("ends", {4}, DType::int32)}),
            "ends has the shape [4], and [3] expected");
}

TEST_F(BindTensorsTest, LayoutsFollowFromTheStrides) {
  const auto kn =
      must(bind("matmul", {tensor("a", {16, 128}), tensor("b", {64, 128}, DType::bf16, {1, 64})}));
  EXPECT_EQ(kn.problem->text(), "matmul m=16 n=64 k=128 dtype=bf16 b_layout=kn");
  const auto heads = [](std::string name, std::int64_t count) {
    return tensor(std::move(name), {2, count, 32, 64}, DType::bf16,
                  {32 * count * 64, 64, count * 64, 1});
  };
  const auto bshd = must(bind("attention", {heads("q", 8), heads("k", 2), heads("v", 2)}));
  EXPECT_EQ(bshd.problem->text(),
            "attention batch=2 heads=8 kv_heads=2 q_len=32 kv_len=32 head_dim=64 dtype=bf16");
  EXPECT_EQ(bshd.made[0].extent, (std::vector<std::int64_t>{2, 32, 8, 64}));
  EXPECT_EQ(bshd.made[0].swapped, std::pair(std::size_t{1}, std::size_t{2}));
  EXPECT_EQ(bshd.unwritten, (std::vector<std::string>{"k", "v"}));
}

TEST_F(BindTensorsTest, AxesThatShareEntriesHaveTheSizeOne) {
  const auto biased = [&](GivenTensor bias) {
    return bind("attention", {tensor("q", {2, 8, 3, 64}), tensor("k", {2, 8, 5, 64}),
                              tensor("v", {2, 8, 5, 64}), std::move(bias)});
  };
  const std::string begin = "attention batch=2 heads=8 q_len=3 kv_len=5 head_dim=64 ";
  const auto boolean = [](std::vector<std::int64_t> extent,
                          std::vector<std::int64_t> strides = {}) {
    return tensor("seen", std::move(extent), DType::boolean, std::move(strides));
  };
  EXPECT_EQ(must(biased(boolean({2, 8, 3, 5}))).problem->text(),
            begin + "dtype=bf16 layout=bhsd bias=boolean");
  const std::string shared =
      begin + "bias_batch=1 bias_heads=1 dtype=bf16 layout=bhsd bias=boolean";
  EXPECT_EQ(must(biased(boolean({3, 5}))).problem->text(), shared);
  EXPECT_EQ(must(biased(boolean({1, 1, 3, 5}))).problem->text(), shared);
  EXPECT_EQ(must(biased(boolean({2, 8, 3, 5}, {0, 0, 5, 1}))).problem->text(), shared);
  EXPECT_EQ(must(biased(boolean({2, 1, 1, 5}, {7, 7, 7, 1}))).problem->text(),
            begin + "bias_heads=1 bias_q=1 ldbias_batch=7 dtype=bf16 layout=bhsd bias=boolean");
  EXPECT_EQ(must(biased(tensor("bias", {8, 3, 5}, DType::fp32, {40, 8, 1}))).problem->text(),
            begin +
                "bias_batch=1 ldbias=8 ldbias_head=40 dtype=bf16 bias_dtype=fp32 layout=bhsd "
                "bias=additive");
  const auto refused = [&](GivenTensor bias) {
    const auto bound = biased(std::move(bias));
    return bound ? bound->refusal : bound.error().message;
  };
  EXPECT_THAT(refused(boolean({2, 3, 3, 5})),
              HasSubstr("an entry for each sequence, head and query"));
  EXPECT_EQ(refused(boolean({3, 1})), "seen has the shape [3, 1], and [3, 5] expected");
  EXPECT_EQ(refused(boolean({3, 5}, {5, 0})),
            "seen has a last stride of 0, and 1 expected: its rows are not contiguous");
  EXPECT_EQ(refused(boolean({1, 2, 8, 3, 5})), "seen has 5 dimensions, and 4 expected");
  EXPECT_THAT(refused(tensor("bias", {3, 5}, DType::fp16)),
              HasSubstr("an additive bias has the dtype of q or is fp32"));
}

TEST_F(BindTensorsTest, WhatTensorsDoNotTellIsAnOption) {
  const std::vector<GivenTensor> paged = {
      tensor("q", {4, 8, 1, 64}), tensor("k", {100, 2, 16, 64}), tensor("v", {100, 2, 16, 64}),
      tensor("kv_lengths", {4}, DType::int32), tensor("page_table", {4, 20}, DType::int32)};
  const auto bound = must(bind("attention", paged));
  EXPECT_EQ(bound.problem->text(),
            "attention batch=4 heads=8 kv_heads=2 q_len=1 kv_len=320 head_dim=64 pages=100 "
            "dtype=bf16 layout=bhsd lengths=kv cache=paged");
  EXPECT_EQ(refusal("attention_schedule", {tensor("kv_lengths", {4}, DType::int32)}),
            "slots is not told by the tensors, and has to be given");
}

TEST_F(BindTensorsTest, AResultHasItsOnesUnlessTheCallerLeavesThemOut) {
  const GivenTensor x = tensor("x", {3, 300});
  for (const char* operation : {"rmsnorm", "gated_activation", "quantize_rows"}) {
    const char* way = std::string_view(operation) == "quantize_rows" ? "scaling" : "quantize";
    const char* layout = std::string_view(operation) == "gated_activation" ? " layout=packed" : "";
    for (const auto& [value, groups] : {std::pair("row", 1), std::pair("block", *layout ? 2 : 3)}) {
      const auto bound = must(bind(operation, {x}, concat("out=int8 ", way, "=", value, layout)));
      ASSERT_EQ(bound.made.size(), 2U) << operation;
      EXPECT_EQ(bound.made[1].extent, (std::vector<std::int64_t>{groups, 3})) << operation;
    }
  }
  const GivenTensor ends = tensor("kv_offsets", {3}, DType::int32);
  const auto ragged = [&](std::vector<std::int64_t> lead) {
    const auto with = [&](const char* name, std::initializer_list<std::int64_t> extent) {
      std::vector<std::int64_t> all = lead;
      all.insert(all.end(), extent);
      return tensor(name, all);
    };
    const GivenTensor starts = tensor("q_offsets", {3}, DType::int32);
    return must(
        bind("attention",
             {with("q", {8, 12, 64}), with("k", {2, 40, 64}), with("v", {2, 40, 64}), starts, ends},
             "q_len=6 kv_len=20"));
  };
  EXPECT_EQ(ragged({}).made[0].extent, (std::vector<std::int64_t>{8, 12, 64}));
  EXPECT_EQ(ragged({1}).made[0].extent, (std::vector<std::int64_t>{1, 8, 12, 64}));
  EXPECT_TRUE(must(bind("reduce", {x}, "over=tensor")).made[0].extent.empty());
}

TEST_F(BindTensorsTest, ScalarsThatAreGivenAreThoseOfTheProblem) {
  const std::vector<GivenTensor> tensors = {
      tensor("q", {1, 8, 16, 64}), tensor("k", {1, 8, 16, 64}), tensor("v", {1, 8, 16, 64})};
  const auto bound = must(bind("attention", tensors, "", {"scale", "cap"}));
  EXPECT_THAT(bound.problem->text(), HasSubstr("softcap=tanh"));
}

TEST_F(BindTensorsTest, DtypesAreThoseOfTheTensorsThatHaveThem) {
  const auto bound =
      must(bind("elementwise", {tensor("y", {8, 16}), tensor("z", {8, 16}, DType::fp32)},
                "formula=y+z out=fp16"));
  EXPECT_EQ(bound.problem->text(),
            "elementwise n=128 dtype=bf16 z_dtype=fp32 out=fp16 formula=y+z");
  EXPECT_EQ(bound.made[0].dtype, DType::fp16);
}

TEST_F(BindTensorsTest, UnknownDtypesAndStridesAreNotCompared) {
  GivenTensor x = tensor("x", {8, 256});
  x.dtype = {};
  x.strides = {};
  GivenTensor weight = tensor("w", {256}, DType::fp32);
  weight.strides = {};
  const auto bound = must(bind("rmsnorm", {x, weight}));
  EXPECT_EQ(bound.problem->text(), "rmsnorm rows=8 columns=256 dtype=fp32");
  weight.dtype = {};
  EXPECT_TRUE(bind("rmsnorm", {x, weight}));
  weight.extent = {255};
  EXPECT_EQ(refusal("rmsnorm", {x, weight}), "w has the shape [255], and [256] expected");
  x.strides = {1};
  EXPECT_EQ(refusal("rmsnorm", {x}), "x has 2 sizes and 1 strides");
}

TEST_F(BindTensorsTest, SizesThatNoMemoryHasAreRefused) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t size : {most, most / 2, std::int64_t{1} << 32}) {
    for (const auto& bound :
         {bind("rmsnorm", {tensor("x", {size, size, 256}, DType::bf16, {most, 256, 1})}),
          bind("matmul", {tensor("a", {size, size, size}, DType::bf16, {size, size, 1}),
                          tensor("b", {size, size}, DType::bf16, {size, 1})})}) {
      EXPECT_TRUE(!bound || !bound->refusal.empty()) << size;
    }
  }
}

TEST_F(BindTensorsTest, ARuleMayRefuseWhatFitsTogether) {
  const auto bound = must(
      bind("matmul", {tensor("a", {16, 128}, DType::fp32), tensor("b", {64, 128}, DType::fp32)}));
  EXPECT_EQ(bound.problem->text().rfind("matmul m=16 n=64 k=128", 0), 0U);
  EXPECT_THAT(bound.refusal, HasSubstr("tensor cores take fp32 as tf32"));
  EXPECT_EQ(bound.made[0].extent, (std::vector<std::int64_t>{16, 64}));
}

TEST_F(BindTensorsTest, NothingIsComputedOfNothing) {
  const auto bound = must(bind("matmul", {tensor("a", {0, 128}), tensor("b", {64, 128})}));
  EXPECT_FALSE(bound.problem);
  EXPECT_EQ(bound.made[0].extent, (std::vector<std::int64_t>{0, 64}));
}

TEST_F(BindTensorsTest, RefusalsNameTheArgumentAndBothValues) {
  const GivenTensor x = tensor("x", {8, 256});
  GivenTensor w = tensor("w", {255});
  w.argument = "weight";
  EXPECT_EQ(refusal("rmsnorm", {x, w}), "weight has the shape [255], and [256] expected");
  EXPECT_EQ(refusal("rmsnorm", {tensor("x", {8, 256}, DType::bf16, {512, 1}), tensor("w", {256})}),
            "x has the strides [512, 1], and [256, 1] expected: this operation takes it without "
            "gaps");
  EXPECT_EQ(refusal("rmsnorm", {x, tensor("w", {256}, DType::fp16)}),
            "w is fp16, and x is bf16: one dtype expected");
  EXPECT_EQ(refusal("rmsnorm", {x, tensor("w", {256}), tensor("y", {2, 4, 256})}),
            "y has the shape [2, 4, 256], and [8, 256] expected");
  EXPECT_EQ(refusal("rmsnorm", {tensor("w", {256})}), "x is missing");
  EXPECT_EQ(refusal("gated_activation", {tensor("x", {8, 511})}),
            "x has the shape [8, 511], and an even number expected in place of 511");
  EXPECT_EQ(refusal("matmul", {tensor("a", {16, 128}), tensor("b", {64, 128, 1})}),
            "b has 3 dimensions, and 2 expected");
  EXPECT_EQ(refusal("matmul",
                    {tensor("a", {2, 3, 128}, DType::bf16, {999, 128, 1}), tensor("b", {64, 128})}),
            "a has the strides [999, 128, 1] and the shape [2, 3, 128]: its rows are not equally "
            "far apart");
  GivenTensor turned = tensor("x", {256, 8});
  turned.order = {1, 0};
  EXPECT_EQ(refusal("softmax", {turned}), "x has the strides [8, 1], and [1, 256] expected");
  EXPECT_EQ(refusal("embedding", {tensor("tokens", {4}, DType::int64), tensor("table", {10, 8})}),
            "tokens is int64, and int32 expected");
  const std::vector<GivenTensor> append = {
      tensor("k", {1, 16, 8, 64}), tensor("v", {1, 16, 8, 64}), tensor("k_cache", {1, 64, 8, 64}),
      tensor("v_cache", {1, 64, 8, 64}), tensor("cosine", {64, 32}, DType::fp32)};
  EXPECT_EQ(refusal("kv_append", append), "sin is missing");
}

}  // namespace
}  // namespace kernwright
