#include <atomic>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <thread>

#include "compile/compiler.h"
#include "compile/cubin.h"
#include "support/files.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAdd = R"(
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  __shared__ float tile[256];
  tile[threadIdx.x] = a[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) c[threadIdx.x] = tile[255 - threadIdx.x] + b[threadIdx.x];
}
)";

// Holds 64 values over a barrier.
constexpr const char* kHungry = R"(
extern "C" __global__ void hungry(const float* a, float* c, int n) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = a[i * n];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += x[i] * x[(i * 7) % 64];
  c[threadIdx.x] = sum;
}
)";

// The smallest wgmma, with something between its commit and its wait.
std::string wgmma_around(const std::string& between) {
  return R"(
extern "C" __global__ void __launch_bounds__(128) multiply(float* out, unsigned long long a,
                                                           unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
)" + between +
         R"(
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
)";
}

CompileRequest request(std::string source, std::string target = "sm_90a") {
  CompileRequest request;
  request.name = "test/kernel.cu";
  request.source = std::move(source);
  request.target = std::move(target);
  return request;
}

/// Skips, with the reason, if no NVRTC can be loaded.
class ToolkitCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::string> identity = compiler_->identity();
    if (!identity) GTEST_SKIP() << identity.error().message;
  }

  CompiledKernel compile(const CompileRequest& request) {
    Result<CompiledKernel> kernel = compiler_->compile(request);
    EXPECT_TRUE(kernel) << kernel.error().message;
    return kernel ? std::move(kernel).value() : CompiledKernel{};
  }

  const std::unique_ptr<Compiler> compiler_ = make_toolkit_compiler();
};

TEST_F(ToolkitCompilerTest, IdentityNamesVersionAndFile) {
  const std::string identity = *compiler_->identity();
  EXPECT_TRUE(identity.starts_with("nvrtc 1")) << identity;
  EXPECT_EQ(identity.size() - identity.rfind(' ') - 1, 64U) << identity;
  EXPECT_EQ(*make_toolkit_compiler()->identity(), identity);
}

TEST_F(ToolkitCompilerTest, CompilesForEveryArchitecture) {
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100"}) {
    const CompiledKernel kernel = compile(request(kAdd, target));
    ASSERT_EQ(kernel.entries.size(), 1U) << target;
    EXPECT_EQ(kernel.entries[0].name, "add");
    EXPECT_EQ(kernel.target, target);
    EXPECT_GT(kernel.resources().registers, 0);
    EXPECT_EQ(kernel.resources().static_smem_bytes, 1024);
    EXPECT_EQ(kernel.resources().barriers, 1);
    EXPECT_EQ(kernel.resources().spill_bytes(), 0);
    EXPECT_TRUE(kernel.warnings.empty());
    EXPECT_GT(kernel.seconds, 0);
    const auto counts = must(count_instructions(kernel.bits));
    ASSERT_EQ(counts.size(), 1U);
    EXPECT_EQ(counts.front().kernel, "add");
    EXPECT_GT(counts.front().total, 10);
  }
}

TEST_F(ToolkitCompilerTest, TheSecondCompileOfTheSameSourceHasTheReportToo) {
  const CompiledKernel first = compile(request(kAdd));
  const CompiledKernel second = compile(request(kAdd));
  EXPECT_EQ(first.bits, second.bits);
  EXPECT_EQ(first.resources(), second.resources());
}

TEST_F(ToolkitCompilerTest, ReportsSpills) {
  EXPECT_EQ(compile(request(kHungry)).resources().spill_bytes(), 0);
  CompileRequest squeezed = request(kHungry);
  squeezed.options = {"--maxrregcount=24"};
  const CompiledKernel kernel = compile(squeezed);
  EXPECT_EQ(kernel.resources().registers, 24);
  EXPECT_GT(kernel.resources().spill_store_bytes, 0);
  EXPECT_GT(kernel.resources().spill_load_bytes, 0);
  EXPECT_GT(kernel.resources().stack_bytes, 0);
  const auto counts = must(count_instructions(kernel.bits));
  EXPECT_GT(counts.front().count("LDL"), 0);
  EXPECT_GT(counts.front().count("STL"), 0);
}

TEST_F(ToolkitCompilerTest, ARefusedSourceIsAnErrorWithTheLog) {
  EXPECT_THAT(compiler_->compile(request("__global__ void f(int* p) { *p = nonsense; }")),
              Fails(ErrorCode::compile, ::testing::AllOf(HasSubstr("test/kernel.cu(1): error"),
                                                         HasSubstr("\"nonsense\""))));
}

TEST_F(ToolkitCompilerTest, AnUnknownTargetIsAnErrorThatNamesIt) {
  EXPECT_THAT(compiler_->compile(request(kAdd, "sm_1")),
              Fails(ErrorCode::compile, HasSubstr("sm_1")));
}

TEST_F(ToolkitCompilerTest, HeadersAreFoundByTheirNames) {
  CompileRequest with_header = request(
      "#include <kernwright/config.cuh>\n"
      "extern \"C\" __global__ void f(int* p) { *p = kValue; }");
  EXPECT_FALSE(compiler_->compile(with_header));
  with_header.headers = {{"kernwright/config.cuh", "constexpr int kValue = 7;"}};
  compile(with_header);
}

TEST_F(ToolkitCompilerTest, TheToolkitsOwnHeadersAreFoundWhereItHasThem) {
  const auto kernel = compiler_->compile(
      request("#include <cuda_fp16.h>\n"
              "extern \"C\" __global__ void f(__half* p) { p[0] = __hadd(p[0], p[1]); }"));
  if (!kernel && kernel.error().message.find("could not open source file") != std::string::npos) {
    GTEST_SKIP() << "NVRTC lies without the toolkit's headers beside it";
  }
  EXPECT_TRUE(kernel) << kernel.error().message;
}

/// Leads the working directory to another place while it lives.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() { std::filesystem::current_path(before_); }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(ToolkitCompilerTest, NoOtherFileIsReadHoweverItIsAskedFor) {
  const ScopedTempDir dir;
  constexpr const char* kSecret = "the_secret_line";
  ASSERT_TRUE(publish_file(dir / "secret.h", kSecret));
  // Beside the source as it is named, and in the working folder of the process.
  ASSERT_TRUE(publish_file(dir / "test/secret.h", kSecret));
  const WorkingDirectory there(dir.path());
  const std::string path = (dir / "secret.h").string();
  const std::string asked = "(\"" + path + "\")\n#error the_secret_line\n#endif\n";
  for (const std::string& source :
       {"#include \"" + path + "\"\n",
        "#include <" + path + ">\n",
        "%:include \"" + path + "\"\n",
        "?\?=include \"" + path + "\"\n",
        "#include_next \"" + path + "\"\n",
        "#inc\\\nlude \"" + path + "\"\n",
        "int x; /*\n*/ # /*\n*/ include \"" + path + "\"\n",
        "#if 0\ndon't /*\n#endif\n#include \"" + path + "\"\n",
        "#line 1 \"" + path + "\"\n#include \"secret.h\"\n",
        "#define F \"" + path + "\"\n#include F\n",
        "#define Q(x) #x\n#define F(x) Q(x)\n#include F(" + path + ")\n",
        "#embed \"" + path + "\"\n",
        "import \"" + path + "\";\n",
        "#if __has_include" + asked,
        "#if __has_include_next" + asked,
        "#define H __has_include\n#if H" + asked,
        "#define P(a, b) a##b\n#if P(__has_, include)" + asked,
        "#include <cuda/std/__cccl/preprocessor.h>\n#if _CCCL_HAS_INCLUDE" + asked,
        std::string("#include \"secret.h\"\n"),
        std::string("#include \"./secret.h\"\n"),
        std::string("#include <secret.h>\n"),
        std::string("#include \"test/secret.h\"\n"),
        std::string("#include \"../secret.h\"\n"),
        std::string("#if __has_include(\"secret.h\")\n#error the_secret_line\n#endif\n")}) {
    const auto kernel =
        compiler_->compile(request(source + "extern \"C\" __global__ void f() {}\n"));
    if (kernel) {
      EXPECT_THAT(source, HasSubstr("__has_include(\"secret.h"));
      continue;
    }
    EXPECT_EQ(kernel.error().code, ErrorCode::compile);
    // A message may show the line of the source, never a line of the file.
    EXPECT_THAT(kernel.error().message, ::testing::Not(HasSubstr(kSecret))) << source;
  }
}

TEST_F(ToolkitCompilerTest, WhatIsNotFoundIsNamedWithWhatThereIs) {
  EXPECT_THAT(
      compiler_->compile(request("#include \"nowhere.cuh\"\n")),
      Fails(::testing::AllOf(HasSubstr("\"nowhere.cuh\""),
                             HasSubstr("kernels may include kernwright's headers, files beside "
                                       "them and what is in /"))));
}

TEST_F(ToolkitCompilerTest, TheToolkitsHeadersCountWhereTheyAreIncluded) {
  EXPECT_EQ(compiler_->headers_identity(request(kAdd)), "");
  const std::string half = compiler_->headers_identity(request("#include <cuda_fp16.h>\n"));
  if (half.empty()) GTEST_SKIP() << "NVRTC lies without the toolkit's headers beside it";
  EXPECT_EQ(half, compiler_->headers_identity(request("#if 1\n#include \"cuda_fp16.h\"\n#endif")));
  EXPECT_NE(half, compiler_->headers_identity(request("#include <cuda_bf16.h>\n")));
  CompileRequest through = request("#include \"mine.cuh\"\n");
  through.headers = {{"mine.cuh", "#include <cuda_fp16.h>\n"}};
  EXPECT_EQ(half, compiler_->headers_identity(through));
}

TEST_F(ToolkitCompilerTest, TheWorkingDirectoryIsNotInTheBits) {
  const CompiledKernel here = compile(request(kAdd));
  const ScopedTempDir dir;
  const WorkingDirectory there(dir.path());
  EXPECT_EQ(compile(request(kAdd)).bits, here.bits);
}

TEST_F(ToolkitCompilerTest, FlagsOfTheEnvironmentAreInTheIdentity) {
  const std::string plain = *compiler_->identity();
  ASSERT_EQ(::setenv("NVRTC_APPEND_FLAGS", "--use_fast_math", 1), 0);
  const std::string with_flags = *make_toolkit_compiler()->identity();
  ASSERT_EQ(::unsetenv("NVRTC_APPEND_FLAGS"), 0);
  EXPECT_THAT(with_flags, HasSubstr("--use_fast_math"));
  EXPECT_NE(plain, with_flags);
}

TEST_F(ToolkitCompilerTest, TheLinkerIsNamedByTheDigestOfItsFile) {
  const std::string linker = compiler_->linker_identity();
  EXPECT_EQ(linker.size(), std::string("nvjitlink ").size() + 64) << linker;
  EXPECT_EQ(compiler_->linker_identity(), linker);
}

TEST_F(ToolkitCompilerTest, LinkedLtoIrHasTheSameReport) {
  const CompiledKernel direct = compile(request(kAdd));
  CompileRequest for_link = request(kAdd);
  for_link.output = OutputKind::lto_ir;
  const CompiledKernel ir = compile(for_link);
  EXPECT_EQ(ir.output, OutputKind::lto_ir);
  EXPECT_TRUE(ir.entries.empty());
  EXPECT_FALSE(ir.bits.empty());

  const auto linked = must(compiler_->link({ir.bits}, "sm_90a"));
  ASSERT_EQ(linked.entries.size(), 1U);
  EXPECT_EQ(linked.output, OutputKind::cubin);
  EXPECT_EQ(linked.entries[0].name, "add");
  EXPECT_EQ(linked.resources(), direct.resources());
  EXPECT_TRUE(count_instructions(linked.bits));
}

TEST_F(ToolkitCompilerTest, LinksAFunctionOfAnotherInput) {
  CompileRequest kernel = request(
      "extern __device__ float shape(float);\n"
      "extern \"C\" __global__ void apply(float* p) {\n"
      "  p[threadIdx.x] = shape(p[threadIdx.x]);\n}");
  CompileRequest function = request("__device__ float shape(float x) { return x * x; }");
  kernel.output = function.output = OutputKind::lto_ir;
  const auto linked =
      must(compiler_->link({compile(kernel).bits, compile(function).bits}, "sm_90a"));
  const auto counts = must(count_instructions(linked.bits));
  EXPECT_EQ(counts.front().count("CALL"), 0) << "the function was not inlined";

  EXPECT_THAT(compiler_->link({compile(kernel).bits}, "sm_90a"),
              Fails(ErrorCode::compile, HasSubstr("shape")));
}

TEST_F(ToolkitCompilerTest, WhatIsNoLtoIrIsNotLinked) {
  EXPECT_THAT(compiler_->link({"no LTO-IR at all"}, "sm_90a"), Fails(ErrorCode::compile));
}

TEST_F(ToolkitCompilerTest, APlainWgmmaHasNoWarning) {
  const CompiledKernel kernel = compile(request(wgmma_around("")));
  EXPECT_TRUE(kernel.warnings.empty()) << kernel.warnings.front();
  const auto counts = must(count_instructions(kernel.bits));
  EXPECT_EQ(counts.front().count("HGMMA"), 1);
}

TEST_F(ToolkitCompilerTest, ASerialisedWgmmaIsAWarning) {
  const CompiledKernel kernel = compile(request(wgmma_around("printf(\"%d\\n\", threadIdx.x);")));
  ASSERT_EQ(kernel.warnings.size(), 1U) << kernel.log;
  EXPECT_TRUE(kernel.warnings[0].starts_with("(C7510)")) << kernel.warnings[0];
}

TEST_F(ToolkitCompilerTest, AnIgnoredSetmaxnregIsAWarning) {
  const CompiledKernel kernel =
      compile(request("extern \"C\" __global__ void no_bounds(float* out) {\n"
                      "  asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n"
                      "  out[threadIdx.x] = 1;\n}"));
  ASSERT_EQ(kernel.warnings.size(), 1U) << kernel.log;
  EXPECT_TRUE(kernel.warnings[0].starts_with("(C7508)")) << kernel.warnings[0];
}

TEST_F(ToolkitCompilerTest, ManyThreadsMayCompile) {
  const CompiledKernel alone = compile(request(kAdd));
  std::vector<std::string> bits(4);
  std::vector<std::thread> threads;
  threads.reserve(bits.size());
  for (std::string& slot : bits) {
    threads.emplace_back([&] { slot = compile(request(kAdd)).bits; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& slot : bits) EXPECT_EQ(slot, alone.bits);
}

// NVRTC's front end would put handlers of its own there, which end the process.
TEST_F(ToolkitCompilerTest, SignalsStayTheProcessesOwn) {
  const auto handler_of = [](int signal) {
    struct sigaction found{};
    ::sigaction(signal, nullptr, &found);
    return found.sa_handler;
  };
  void (*const own)(int) = [](int) {};
  const auto before_interrupt = ::signal(SIGINT, own), before_terminate = ::signal(SIGTERM, own);
  std::atomic<bool> done = false;
  bool changed = false;
  std::thread watcher([&] {
    while (!done) {
      changed = changed || handler_of(SIGINT) != own || handler_of(SIGTERM) != own;
    }
  });
  const Result<CompiledKernel> kernel = compiler_->compile(request(kAdd));
  done = true;
  watcher.join();
  ::signal(SIGINT, before_interrupt);
  ::signal(SIGTERM, before_terminate);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_FALSE(changed);
}

}  // namespace
}  // namespace kernwright
