// Compares the device headers without an operation with the host's arithmetic.

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "model/catalog/catalog.h"
#include "tests/compile/tile_kernels.h"
#include "tests/device/gpu_fixture.h"
#include "tests/results.h"

namespace kernwright {
namespace {

class TileHeadersGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (device_->profile().sm_arch != 90) {
      GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
    }
  }

  void run_kernel(const ExecutionPlan& plan, const LaunchArguments& arguments) {
    const auto catalog = must(Catalog::load({}));
    CompileRequest request;
    request.name = "tile_kernels.cu";
    request.source = kTileKernels;
    request.target = "sm_90a";
    for (const DeviceHeader& header : catalog->headers()) {
      request.headers.emplace_back(header.name, header.text);
    }
    const CompiledKernel kernel = must(compiler_->compile(request));
    const auto program = must(device_->load(kernel.bits, plan));
    const Result<void> ran = device_->run(*program, arguments);
    EXPECT_TRUE(ran) << ran.error().message;
  }

  /// Returns the map of a dense tensor, innermost dimension first.
  static TensorMapPlan map_of(std::size_t tensor, DType dtype, std::vector<std::uint64_t> dims,
                              std::vector<std::uint32_t> box, std::int64_t swizzle) {
    TensorMapPlan map;
    map.name = "map";
    map.tensor = tensor;
    map.dtype = dtype;
    map.box = std::move(box);
    map.swizzle = swizzle;
    auto stride = static_cast<std::uint64_t>(bytes_of(1, dtype));
    for (std::size_t i = 0; i + 1 < dims.size(); ++i) {
      stride *= dims[i];
      map.strides_bytes.push_back(stride);
    }
    map.dims = std::move(dims);
    return map;
  }
};

std::uint16_t bf16_of(int x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
}

/// Small integers without a pattern.
std::vector<int> draw(std::size_t count, int seed, int most) {
  std::vector<int> values;
  auto state = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(static_cast<int>((state >> 16) % static_cast<unsigned>(2 * most + 1)) - most);
  }
  return values;
}

TEST_F(TileHeadersGpuTest, BoxesOfThreeToFiveDimensionsGoWhereTheirCoordinatesSay) {
  for (std::size_t rank = 3; rank <= 5; ++rank) {
    // The box begins within the tensor in every dimension and reaches past it in the outermost.
    const std::vector<std::uint64_t> all_dims{12, 5, 4, 3, 3};
    const std::vector<std::uint32_t> all_box{8, 3, 2, 2, 2};
    const std::vector<int> all_at{4, 1, 2, 1, 1};
    const auto first = [rank](const auto& values) {
      return std::decay_t<decltype(values)>(values.begin(),
                                            values.begin() + static_cast<std::ptrdiff_t>(rank));
    };
    const auto dims = first(all_dims);
    const auto box = first(all_box);
    auto at = first(all_at);
    at.back() = static_cast<int>(dims.back()) - 1;
    std::int64_t elements = 1;
    std::int64_t box_elements = 1;
    ExecutionPlan plan;
    std::vector<std::int64_t> extent(dims.rbegin(), dims.rend());
    std::vector<std::int64_t> box_extent(box.rbegin(), box.rend());
    for (const std::int64_t size : extent) elements *= size;
    for (const std::int64_t size : box_extent) box_elements *= size;
    plan.tensors = {tensor("from", TensorRole::in, DType::int32, extent),
                    tensor("to", TensorRole::out, DType::int32, box_extent)};
    plan.tensor_maps = {
        map_of(0, DType::int32, dims, box, 0),
        map_of(1, DType::int32, std::vector<std::uint64_t>(box.begin(), box.end()), box, 0)};
    LaunchPlan copy =
        launch(concat("copy_", rank), {1, 1, 1}, {32, 1, 1},
               {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor_map, 1)});
    for (const int coordinate : at) {
      copy.arguments.push_back(number(ArgumentKind::int32, coordinate));
    }
    copy.arguments.push_back(number(ArgumentKind::int32, box_elements * 4));
    copy.dynamic_smem = static_cast<std::uint32_t>(box_elements) * 4 + 8 + 1024;
    plan.launches = {copy};

    std::vector<int> from(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i) + 1;
    LaunchArguments arguments;
    arguments.tensors = {allocate(elements * 4), allocate(box_elements * 4)};
    upload(arguments.tensors[0], from);
    ASSERT_NO_FATAL_FAILURE(run_kernel(plan, arguments));

    std::vector<int> expected;
    for (std::size_t i = 0; i < static_cast<std::size_t>(box_elements); ++i) {
      std::size_t rest = i;
      std::size_t place = 0;
      std::size_t stride = 1;
      bool inside = true;
      for (std::size_t d = 0; d < rank; ++d) {
        const std::size_t coordinate = rest % box[d] + static_cast<std::size_t>(at[d]);
        rest /= box[d];
        inside = inside && coordinate < dims[d];
        place += coordinate * stride;
        stride *= dims[d];
      }
      expected.push_back(inside ? from[place] : 0);
    }
    EXPECT_EQ(download<int>(arguments.tensors[1], expected.size()), expected) << rank;
  }
}

TEST_F(TileHeadersGpuTest, ARoundedProductIsMultipliedFromRegisters) {
  constexpr std::uint32_t kHeads = 2;
  constexpr std::size_t kTile = 64;
  constexpr std::size_t kTiles = 5;  // more than twice the stages of the ring
  constexpr std::size_t kKeys = kTile * kTiles;
  // Products of such values are integers that bf16 holds, sums of these such that fp32 does.
  const std::vector<int> q = draw(kHeads * kTile * kTile, 1, 1);
  const std::vector<int> k = draw(kHeads * kKeys * kTile, 2, 1);
  const std::vector<int> v = draw(kHeads * kKeys * kTile, 3, 4);
  std::vector<float> expected(kHeads * kTile * kTile);
  for (std::size_t head = 0; head < kHeads; ++head) {
    for (std::size_t row = 0; row < kTile; ++row) {
      for (std::size_t key = 0; key < kKeys; ++key) {
        int score = 0;
        for (std::size_t i = 0; i < kTile; ++i) {
          score += q[(head * kTile + row) * kTile + i] * k[(head * kKeys + key) * kTile + i];
        }
        for (std::size_t i = 0; i < kTile; ++i) {
          expected[(head * kTile + row) * kTile + i] +=
              static_cast<float>(score * v[(head * kKeys + key) * kTile + i]);
        }
      }
    }
  }

  ExecutionPlan plan;
  const auto heads = static_cast<std::int64_t>(kHeads);
  const auto tile = static_cast<std::int64_t>(kTile);
  const auto keys = static_cast<std::int64_t>(kKeys);
  plan.tensors = {tensor("q", TensorRole::in, DType::bf16, {heads, tile, tile}),
                  tensor("k", TensorRole::in, DType::bf16, {heads, keys, tile}),
                  tensor("v", TensorRole::in, DType::bf16, {heads, keys, tile}),
                  tensor("stored", TensorRole::out, DType::fp32, {heads, tile, tile}),
                  tensor("placed", TensorRole::out, DType::fp32, {heads, tile, tile})};
  plan.tensor_maps = {map_of(0, DType::bf16, {kTile, kTile, kHeads}, {64, 64, 1}, 128),
                      map_of(1, DType::bf16, {kTile, kKeys, kHeads}, {64, 64, 1}, 128),
                      map_of(2, DType::bf16, {kTile, kKeys, kHeads}, {64, 64, 1}, 128),
                      map_of(3, DType::fp32, {kTile, kTile, kHeads}, {32, 16, 1}, 128)};
  LaunchPlan products =
      launch("two_products", {kHeads, 1, 1}, {160, 1, 1},
             {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor_map, 1),
              refer(ArgumentKind::tensor_map, 2), refer(ArgumentKind::tensor_map, 3),
              refer(ArgumentKind::tensor, 4), number(ArgumentKind::int32, kTiles)});
  products.dynamic_smem = 64 * 1024;
  plan.launches = {products};

  LaunchArguments arguments;
  for (const std::vector<int>* values : {&q, &k, &v}) {
    std::vector<std::uint16_t> bits;
    for (const int value : *values) bits.push_back(bf16_of(value));
    arguments.tensors.push_back(allocate(static_cast<std::int64_t>(bits.size()) * 2));
    upload(arguments.tensors.back(), bits);
  }
  const auto result_bytes = static_cast<std::int64_t>(expected.size() * sizeof(float));
  arguments.tensors.push_back(allocate(result_bytes));
  arguments.tensors.push_back(allocate(result_bytes));
  ASSERT_NO_FATAL_FAILURE(run_kernel(plan, arguments));
  EXPECT_EQ(download<float>(arguments.tensors[3], expected.size()), expected);
  EXPECT_EQ(download<float>(arguments.tensors[4], expected.size()), expected);
}

}  // namespace
}  // namespace kernwright
