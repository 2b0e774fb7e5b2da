// Gets the tuned kernel of a matrix product, launches it on buffers of its own and checks the
// result:
//
//   get_best_kernel [M N K]                on GPU 0, tuned for 10 seconds in the first run
//   get_best_kernel [M N K] --sku h200     without a GPU: describes what would be launched there
//
// A second run takes the kernel from the cache and compiles nothing, which the line "compiler
// libraries loaded" shows. Exits 0 if the result is right, 1 if it is not, 77 if there is no GPU.

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "device_memory.h"
#include <kernwright/kernwright.h>

namespace kw = kernwright;

namespace {

// The part that every program has: a shape, a service, the best kernel, a launch.
kw::Result<kw::Kernel> best_kernel(const kw::Problem& shape, const std::string& sku) {
  kw::ServiceOptions options;
  options.sku = sku;
  options.on_miss = sku.empty() ? kw::MissPolicy::tune_now : kw::MissPolicy::predict;
  options.tune_seconds = 10;
  kw::Result<kw::Service> service = kw::Service::open(options);
  if (!service) return service.error();
  return service->get_best_kernel(shape);
}

// d[m, n] = a[m, k] * b[n, k]^T, enqueued on the default stream.
kw::Result<void> multiply(const kw::Kernel& best, Gpu::Address a, Gpu::Address b, Gpu::Address d) {
  return best.launch(nullptr, {a, b, d});
}

// A bf16 is the upper half of a float.
float to_float(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Uniform in [-1, 1), cut to bf16.
std::vector<std::uint16_t> random_bf16(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    seed = seed * 1664525U + 1013904223U;
    const float drawn = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &drawn, sizeof bits);
    value = static_cast<std::uint16_t>(bits >> 16);
  }
  return values;
}

// Elements of 16 rows of `d` that differ from the host's product by more than rounding explains.
std::size_t mismatches(const kw::MatmulSize& size, const std::vector<std::uint16_t>& a,
                       const std::vector<std::uint16_t>& b, const std::vector<std::uint16_t>& d) {
  constexpr std::int64_t kRows = 16;
  std::size_t wrong = 0;
  for (std::int64_t sample = 0; sample < kRows && sample < size.m; ++sample) {
    const std::int64_t i = size.m <= kRows ? sample : sample * (size.m - 1) / (kRows - 1);
    for (std::int64_t j = 0; j < size.n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t l = 0; l < size.k; ++l) {
        const double term =
            static_cast<double>(to_float(a[static_cast<std::size_t>(i * size.k + l)])) *
            to_float(b[static_cast<std::size_t>(j * size.k + l)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double got = to_float(d[static_cast<std::size_t>(i * size.n + j)]);
      // Half a unit in the last of 8 bits, and the loss of fp32 accumulation.
      if (!(std::fabs(got - sum) <= std::fabs(sum) / 256 + magnitude * 1e-5)) ++wrong;
    }
  }
  return wrong;
}

// The names of NVIDIA's compiler libraries that this process has mapped.
std::string compiler_libraries() {
  std::ifstream maps("/proc/self/maps");
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    for (const char* name : {"libnvrtc", "libnvJitLink"}) {
      if (line.find(name) != std::string::npos && found.find(name) == std::string::npos) {
        found += std::string(" ") + name;
      }
    }
  }
  return found.empty() ? " none" : found;
}

void describe(const kw::KernelSummary& summary) {
  std::printf("problem: %s\nmatch: %s\nkernel: %s %s\n", summary.problem.c_str(),
              std::string(kw::to_string(summary.match)).c_str(), summary.kernel_template.c_str(),
              summary.configuration.c_str());
  std::printf("time when tuned: %.2f us, predicted %.2f us, roofline %.2f us\n",
              summary.measured_us, summary.predicted_us, summary.roofline_us);
  std::printf("compiler libraries loaded:%s\n", compiler_libraries().c_str());
}

// Mean time of launches one after another, in microseconds; the caches stay warm.
double time_launches(Gpu& gpu, const kw::Kernel& best, Gpu::Address a, Gpu::Address b,
                     Gpu::Address d) {
  constexpr int kLaunches = 50;
  gpu.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) {
    if (!multiply(best, a, b, d)) return 0;
  }
  gpu.synchronize();
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count() / kLaunches;
}

int fail(const kw::Error& error) {
  std::fprintf(stderr, "get_best_kernel: %s\n", kw::visible(error.message).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> dims;
  std::string sku;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--sku") == 0 && i + 1 < argc) {
      sku = argv[++i];
    } else {
      const std::string_view text = argv[i];
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
      if (error != std::errc() || end != text.data() + text.size()) {
        std::fprintf(stderr, "get_best_kernel: '%s' is not a whole number\n",
                     kw::visible(argv[i]).c_str());
        return 2;
      }
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims = {4096, 6144, 4096};
  if (dims.size() != 3) {
    std::fprintf(stderr, "usage: get_best_kernel [M N K] [--sku NAME]\n");
    return 2;
  }
  kw::MatmulSize size;
  size.m = dims[0];
  size.n = dims[1];
  size.k = dims[2];
  const kw::Problem shape = kw::matmul(size, kw::DType::bf16);

  Gpu gpu;
  if (sku.empty()) {
    if (const std::string missing = gpu.open(); !missing.empty()) {
      std::printf("no GPU: %s; --sku h200 works without one\n", missing.c_str());
      return 77;
    }
  }
  kw::Result<kw::Kernel> best = best_kernel(shape, sku);
  if (!best) return fail(best.error());
  describe(best->summary());
  if (!sku.empty()) return 0;

  const auto count = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  const std::vector<std::uint16_t> a = random_bf16(count(size.m, size.k), 1);
  const std::vector<std::uint16_t> b = random_bf16(count(size.n, size.k), 2);
  const Gpu::Address device_a = gpu.upload(a);
  const Gpu::Address device_b = gpu.upload(b);
  const Gpu::Address device_d = gpu.allocate(count(size.m, size.n) * sizeof(std::uint16_t));

  kw::Result<void> launched = multiply(*best, device_a, device_b, device_d);
  if (!launched) return fail(launched.error());
  const std::size_t wrong =
      mismatches(size, a, b, gpu.download<std::uint16_t>(device_d, count(size.m, size.n)));
  std::printf("time now: %.2f us\n", time_launches(gpu, *best, device_a, device_b, device_d));
  std::printf("result: %s, %zu elements of the sampled rows are wrong\n",
              wrong == 0 ? "right" : "WRONG", wrong);
  return wrong == 0 ? 0 : 1;
}
