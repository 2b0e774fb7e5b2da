#include "bench/common/cublaslt.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "support/libraries/dynamic_library.h"
#include "support/text.h"

namespace kernwright {
namespace {

// The library's ABI: opaque objects, a status of 0 for success, enumerations as int.
using Object = void*;
using Status = int;
constexpr int kFp32 = 0;
constexpr int kFp16 = 2;
constexpr int kBf16 = 14;
constexpr int kFp8E4m3 = 28;
constexpr int kComputeFp32 = 68;
constexpr int kComputeFp32ByTf32 = 77;
constexpr int kTransposed = 1;
constexpr int kTransposeA = 3;  // attributes of a product
constexpr int kFastAccumulate = 25;
constexpr int kScaleOfA = 17, kScaleOfB = 18;  // of the library's a and b, which are ours in turn
constexpr int kScalesOfA = 31, kScalesOfB = 32;
constexpr int kScaleEach128 = 4, kScaleEachBlock = 5;
constexpr int kMaxWorkspaceBytes = 1;  // attribute of a preference
constexpr int kRequested = 32;
/// Attributes of an algorithm, and their bytes.
struct Attribute {
  const char* name;
  int code;
  std::size_t bytes;
};
constexpr Attribute kOfAlgorithm[] = {{"id", 0, 4},      {"tile", 1, 4},    {"stages", 6, 4},
                                      {"cluster", 8, 2}, {"split_k", 2, 4}, {"reduction", 3, 4},
                                      {"swizzle", 4, 4}, {"custom", 5, 4}};

struct Algorithm {
  std::uint64_t words[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

struct Functions {
  std::size_t (*version)() = nullptr;
  Status (*create)(Object*) = nullptr;
  Status (*destroy)(Object) = nullptr;
  Status (*product_create)(Object*, int compute, int scale) = nullptr;
  Status (*product_destroy)(Object) = nullptr;
  Status (*product_set)(Object, int attribute, const void*, std::size_t) = nullptr;
  Status (*layout_create)(Object*, int dtype, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t pitch) = nullptr;
  Status (*layout_destroy)(Object) = nullptr;
  Status (*preference_create)(Object*) = nullptr;
  Status (*preference_destroy)(Object) = nullptr;
  Status (*preference_set)(Object, int attribute, const void*, std::size_t) = nullptr;
  Status (*heuristic)(Object, Object product, Object a, Object b, Object c, Object d,
                      Object preference, int requested, HeuristicResult*, int* returned) = nullptr;
  Status (*algorithm_get)(const Algorithm*, int attribute, void*, std::size_t,
                          std::size_t* written) = nullptr;
  Status (*matmul)(Object, Object product, const void* alpha, const void* a, Object a_layout,
                   const void* b, Object b_layout, const void* beta, const void* c, Object c_layout,
                   void* d, Object d_layout, const Algorithm*, void* workspace,
                   std::size_t workspace_bytes, void* stream) = nullptr;
};

class Library final : public CublasLt {
 public:
  ~Library() override {
    if (handle) functions.destroy(handle);
  }
  std::size_t version() const override { return functions.version(); }

  Functions functions;
  Object handle = nullptr;
};

Result<void> check(Status status, const char* function) {
  if (status == 0) return {};
  return Error{ErrorCode::device, concat(function, " returned status ", status)};
}

int code_of(DType dtype) {
  if (dtype == DType::fp8_e4m3) return kFp8E4m3;
  if (dtype == DType::fp32) return kFp32;
  return dtype == DType::fp16 ? kFp16 : kBf16;
}

/// An object of the library and what destroys it.
struct Owned {
  Object object = nullptr;
  Status (*destroy)(Object) = nullptr;

  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (object) destroy(object);
  }
};

/// To the library, which thinks in columns, the operands are [k, n] transposed and [k, m], the
/// result is [n, m].
class Matmul final : public CublasLtMatmul {
 public:
  explicit Matmul(std::shared_ptr<const CublasLt> library)
      : library_(std::move(library)), lt_(static_cast<const Library&>(*library_)) {}

  Result<void> prepare(const MatmulSize& size, const CublasLtTypes& types,
                       std::int64_t workspace_bytes) {
    const Functions& f = lt_.functions;
    const auto m = static_cast<std::uint64_t>(size.m), n = static_cast<std::uint64_t>(size.n);
    const auto k = static_cast<std::uint64_t>(size.k);
    const int operands = code_of(types.operands), result = code_of(types.result);
    const int compute = types.tf32 ? kComputeFp32ByTf32 : kComputeFp32;
    const auto fast = static_cast<std::int8_t>(types.fast);
    workspace_bytes_ = static_cast<std::size_t>(workspace_bytes);
    Owned preference;
    product_.destroy = f.product_destroy;
    left_.destroy = right_.destroy = result_.destroy = f.layout_destroy;
    preference.destroy = f.preference_destroy;
    std::array<HeuristicResult, kRequested> results{};
    int returned = 0;
    const auto all = [&]() -> Result<void> {
      if (auto ok =
              check(f.product_create(&product_.object, compute, kFp32), "cublasLtMatmulDescCreate");
          !ok) {
        return ok;
      }
      if (auto ok =
              check(f.product_set(product_.object, kTransposeA, &kTransposed, sizeof(kTransposed)),
                    "cublasLtMatmulDescSetAttribute");
          !ok) {
        return ok;
      }
      if (auto ok = check(f.product_set(product_.object, kFastAccumulate, &fast, sizeof(fast)),
                          "cublasLtMatmulDescSetAttribute");
          !ok) {
        return ok;
      }
      if (types.block_scales) {
        // The heuristic asks whether there are scales, and reads none.
        constexpr DevicePointer kSomewhere = 256;
        for (auto [attribute, mode] :
             {std::pair{kScalesOfA, kScaleEachBlock}, std::pair{kScalesOfB, kScaleEach128}}) {
          if (auto ok = check(f.product_set(product_.object, attribute, &mode, sizeof(mode)),
                              "cublasLtMatmulDescSetAttribute");
              !ok) {
            return ok;
          }
        }
        if (auto ok = set_scales({kSomewhere, kSomewhere}); !ok) return ok;
      }
      for (auto [layout, element, rows, columns] :
           {std::tuple{&left_, operands, k, n}, std::tuple{&right_, operands, k, m},
            std::tuple{&result_, result, n, m}}) {
        if (auto ok = check(f.layout_create(&layout->object, element, rows, columns,
                                            static_cast<std::int64_t>(rows)),
                            "cublasLtMatrixLayoutCreate");
            !ok) {
          return ok;
        }
      }
      if (auto ok =
              check(f.preference_create(&preference.object), "cublasLtMatmulPreferenceCreate");
          !ok) {
        return ok;
      }
      if (auto ok = check(f.preference_set(preference.object, kMaxWorkspaceBytes, &workspace_bytes_,
                                           sizeof(workspace_bytes_)),
                          "cublasLtMatmulPreferenceSetAttribute");
          !ok) {
        return ok;
      }
      return check(
          f.heuristic(lt_.handle, product_.object, left_.object, right_.object, result_.object,
                      result_.object, preference.object, kRequested, results.data(), &returned),
          "cublasLtMatmulAlgoGetHeuristic");
    };
    if (auto ok = all(); !ok) return ok;
    for (int i = 0; i < returned; ++i) {
      const HeuristicResult& found = results[static_cast<std::size_t>(i)];
      if (found.status == 0) algorithms_.push_back(found.algorithm);
    }
    if (algorithms_.empty()) {
      return Error{ErrorCode::unavailable,
                   concat("cuBLASLt has no algorithm for ", m, " ", n, " ", k)};
    }
    return {};
  }

  int algorithms() const override { return static_cast<int>(algorithms_.size()); }

  Result<std::string> describe(int algorithm) const override {
    std::string text;
    for (const Attribute& attribute : kOfAlgorithm) {
      std::uint32_t value = 0;  // its low bytes are written
      std::size_t written = 0;
      auto got =
          check(lt_.functions.algorithm_get(&algorithms_[static_cast<std::size_t>(algorithm)],
                                            attribute.code, &value, attribute.bytes, &written),
                "cublasLtMatmulAlgoConfigGetAttribute");
      if (!got) return got.error();
      text += concat(text.empty() ? "" : " ", attribute.name, "=", value);
    }
    return text;
  }

  Result<void> launch(void* stream, int algorithm, DevicePointer a, DevicePointer b,
                      DevicePointer d, DevicePointer workspace,
                      const CublasLtScales& scales) const override {
    if (scales.a != 0) {
      if (auto ok = set_scales(scales); !ok) return ok;
    }
    const float one = 1, zero = 0;
    const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
    return check(lt_.functions.matmul(lt_.handle, product_.object, &one, pointer(b), left_.object,
                                      pointer(a), right_.object, &zero, pointer(d), result_.object,
                                      pointer(d), result_.object,
                                      &algorithms_[static_cast<std::size_t>(algorithm)],
                                      pointer(workspace), workspace_bytes_, stream),
                 "cublasLtMatmul");
  }

 private:
  Result<void> set_scales(const CublasLtScales& scales) const {
    for (auto [attribute, address] :
         {std::pair{kScaleOfA, scales.b}, std::pair{kScaleOfB, scales.a}}) {
      if (auto ok = check(
              lt_.functions.product_set(product_.object, attribute, &address, sizeof(address)),
              "cublasLtMatmulDescSetAttribute");
          !ok) {
        return ok;
      }
    }
    return {};
  }

  std::shared_ptr<const CublasLt> library_;
  const Library& lt_;
  Owned product_, left_, right_, result_;
  std::size_t workspace_bytes_ = 0;
  std::vector<Algorithm> algorithms_;
};

}  // namespace

Result<std::shared_ptr<const CublasLt>> CublasLt::open() {
  Result<DynamicLibrary> library =
      DynamicLibrary::open(toolkit_library_names("libcublasLt.so", {"13", "12"}));
  if (!library) {
    return Error{ErrorCode::unavailable, concat("no cuBLASLt: ", library.error().message)};
  }
  auto opened = std::make_shared<Library>();
  Functions& f = opened->functions;
  const char* missing = nullptr;
  const auto bind = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library->symbol(name));
    if (!function) missing = name;
  };
  bind("cublasLtGetVersion", f.version);
  bind("cublasLtCreate", f.create);
  bind("cublasLtDestroy", f.destroy);
  bind("cublasLtMatmulDescCreate", f.product_create);
  bind("cublasLtMatmulDescDestroy", f.product_destroy);
  bind("cublasLtMatmulDescSetAttribute", f.product_set);
  bind("cublasLtMatrixLayoutCreate", f.layout_create);
  bind("cublasLtMatrixLayoutDestroy", f.layout_destroy);
  bind("cublasLtMatmulPreferenceCreate", f.preference_create);
  bind("cublasLtMatmulPreferenceDestroy", f.preference_destroy);
  bind("cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  bind("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  bind("cublasLtMatmulAlgoConfigGetAttribute", f.algorithm_get);
  bind("cublasLtMatmul", f.matmul);
  if (missing) {
    return Error{ErrorCode::unavailable, concat(library->name(), " has no ", missing)};
  }
  if (const Status status = f.create(&opened->handle); status != 0) {
    opened->handle = nullptr;
    return Error{ErrorCode::unavailable,
                 concat(library->name(), ": cublasLtCreate returned status ", status)};
  }
  return std::shared_ptr<const CublasLt>(std::move(opened));
}

Result<std::unique_ptr<const CublasLtMatmul>> CublasLtMatmul::make(
    std::shared_ptr<const CublasLt> library, const MatmulSize& size, const CublasLtTypes& types,
    std::int64_t workspace_bytes) {
  auto matmul = std::make_unique<Matmul>(std::move(library));
  if (auto ready = matmul->prepare(size, types, workspace_bytes); !ready) return ready.error();
  return std::unique_ptr<const CublasLtMatmul>(std::move(matmul));
}

}  // namespace kernwright
