#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <sys/mman.h>
#include <system_error>

#include "compile/compiler.h"
#include "compile/ptxas_log.h"
#include "compile/toolkit.h"
#include "compile/toolkit_headers.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/processes/process_exit.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

/// A value that is made once, on first use, by the thread that comes first. An error is kept too.
template <typename T>
class Lazy {
 public:
  template <typename Make>
  const Result<T>& get(const Make& make) {
    const std::lock_guard lock(mutex_);
    if (!value_) value_.emplace(make());
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::optional<Result<T>> value_;
};

Error exits(std::string_view what) {
  return {ErrorCode::unavailable, concat(what, ": nothing is compiled while the process exits")};
}

/// Owns an NVRTC program.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~Program() {
    if (program_ != nullptr) nvrtc_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram* address() { return &program_; }
  nvrtcProgram get() const { return program_; }

  std::string log() const {
    std::size_t size = 0;
    if (nvrtc_.log_size(program_, &size) != NVRTC_SUCCESS || size <= 1) return {};
    std::string text(size, '\0');
    if (nvrtc_.log(program_, text.data()) != NVRTC_SUCCESS) return {};
    return joined_log(std::move(text));
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

/// Owns a handle of nvJitLink.
class LinkHandle {
 public:
  explicit LinkHandle(const NvJitLink& api) : api_(api) {}
  ~LinkHandle() {
    if (handle_ != nullptr) api_.destroy(&handle_);
  }
  LinkHandle(const LinkHandle&) = delete;
  LinkHandle& operator=(const LinkHandle&) = delete;
  nvJitLinkHandle* address() { return &handle_; }
  nvJitLinkHandle get() const { return handle_; }

  std::string error_log() const { return log(api_.error_log_size, api_.error_log); }
  std::string info_log() const { return log(api_.info_log_size, api_.info_log); }

 private:
  template <typename Size, typename Text>
  std::string log(Size size_of, Text text_of) const {
    std::size_t size = 0;
    if (handle_ == nullptr || size_of(handle_, &size) != NVJITLINK_SUCCESS || size == 0) return {};
    std::string text(size, '\0');
    if (text_of(handle_, text.data()) != NVJITLINK_SUCCESS) return {};
    return joined_log(std::move(text));
  }

  const NvJitLink& api_;
  nvJitLinkHandle handle_ = nullptr;
};

/// Returns whether NVRTC has a disk cache. It has one since 12.9 if there is a driver. The caches
/// of NVRTC and nvJitLink are switched off. They return no ptxas log, so spills would go unseen;
/// they hide the cost of a compile; and our artifact store holds the code already.
bool has_disk_cache(const Nvrtc& nvrtc) {
  return nvrtc.major > 12 || (nvrtc.major == 12 && nvrtc.minor >= 9);
}

/// Returns the folders of the toolkit's headers, for user sources; our own sources need none. Since
/// CUDA 13 `cuda/std` and CUB have a folder of their own.
std::vector<std::filesystem::path> header_folders(const Nvrtc& nvrtc) {
  const std::filesystem::path folder =
      std::filesystem::path(nvrtc.file).parent_path().parent_path() / "include";
  return {folder, folder / "cccl"};
}

/// Returns the digest of a file that is loaded anyway, and so may be mapped: reading 100 MB would
/// take longer than hashing them, and the first answer of a process waits for it.
Result<Digest> digest_of_library(const std::string& path) {
  KW_ASSIGN(const InputFile file, InputFile::open(path));
  void* const bytes = ::mmap(nullptr, file.bytes(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (bytes == MAP_FAILED) {
    return Error{ErrorCode::io,
                 concat("cannot map ", path, ": ", std::generic_category().message(errno))};
  }
  const Digest digest = digest_of({static_cast<const char*>(bytes), file.bytes()});
  ::munmap(bytes, file.bytes());
  return digest;
}

/// Returns the flags from environment variables that NVRTC adds to its arguments, by its
/// documentation.
std::string flags_of_environment() {
  const char* flags = std::getenv("NVRTC_APPEND_FLAGS");
  return flags == nullptr ? std::string() : flags;
}

std::vector<std::string> compile_options(const Nvrtc& nvrtc, const CompileRequest& request) {
  // Without search folders NVRTC reads only the texts that are passed to it, and absolute paths,
  // which `foreign_includes` refuses.
  std::vector<std::string> options{"--std=c++20", concat("--gpu-architecture=", request.target),
                                   "--no-source-include"};
  if (request.output == OutputKind::cubin) {
    options.emplace_back("--ptxas-options=-v");
  } else {
    options.emplace_back("--dlink-time-opt");
  }
  if (has_disk_cache(nvrtc)) options.emplace_back("--no-cache");
  options.insert(options.end(), request.options.begin(), request.options.end());
  return options;
}

std::vector<const char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  pointers.reserve(strings.size());
  for (const std::string& string : strings) pointers.push_back(string.c_str());
  return pointers;
}

/// Returns a log as the further lines of a message. Quoted source has tabs, which become spaces.
std::string further_lines(std::string_view log) {
  std::string lines(log.empty() ? "" : "\n");
  lines += log;
  std::replace(lines.begin(), lines.end(), '\t', ' ');
  return lines;
}

/// Fills in the resources and warnings from the log of a compile to a cubin.
void read_log(CompiledKernel& kernel, std::string log) {
  PtxasReport report = parse_ptxas_log(log);
  kernel.entries = std::move(report.entries);
  kernel.warnings = std::move(report.warnings);
  kernel.log = std::move(log);
}

/// The toolkit's compiler. Everything is loaded on first use, and the tables never change
/// afterwards. The functions of NVRTC and nvJitLink may be called from many threads.
class ToolkitCompiler final : public Compiler {
 public:
  ToolkitCompiler(ToolkitFiles files, bool may_exit)
      : given_(std::move(files)), may_exit_(may_exit) {}

  Result<std::string> identity() override {
    return identity_.get([this]() -> Result<std::string> {
      const Result<Nvrtc>& nvrtc = this->nvrtc();
      if (!nvrtc) return nvrtc.error();
      // Two builds of one version may differ, so the digest is of the file.
      KW_ASSIGN(const Digest digest, digest_of_library(nvrtc->file));
      const std::string flags = flags_of_environment();
      return concat("nvrtc ", nvrtc->major, ".", nvrtc->minor, " ",
                    flags.empty() ? "" : concat("with ", flags, ' '), digest.hex());
    });
  }

  std::string headers_identity(const CompileRequest& request) override {
    const Result<ToolkitHeaders::Reached> reached = reached_by(request);
    if (!reached || reached->empty()) return {};
    Hasher hasher;
    for (const auto& [name, file] : *reached) hasher.add(name, file->digest.hex());
    return hasher.finish().hex();
  }

  std::string linker_identity() override {
    const Result<std::string>& known = linker_identity_.get([this]() -> Result<std::string> {
      const Result<NvJitLink>& linker = this->linker();
      if (!linker) return linker.error();
      KW_ASSIGN(const Digest digest, digest_of_library(linker->file));
      return concat("nvjitlink ", digest.hex());
    });
    return known ? *known : std::string();
  }

  ToolkitFiles files(const CompileRequest& request) override {
    ToolkitFiles files;
    if (const Result<Nvrtc>& loaded = nvrtc()) files.nvrtc = loaded->file;
    if (!request.linked.empty()) {
      if (const Result<NvJitLink>& loaded = linker()) files.nvjitlink = loaded->file;
    }
    return files;
  }

  Result<CompiledKernel> compile(const CompileRequest& request) override {
    const BeforeExit compiles(BeforeExit::Late::ends);
    if (!compiles) return exits(request.name);
    if (!request.linked.empty()) return compile_and_link(request);
    [[maybe_unused]] static const bool registered =
        register_exit_handlers(OutputKind::cubin, request.target);
    return compile_now(request);
  }

  Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                              const std::string& target) override {
    const BeforeExit links(BeforeExit::Late::ends);
    if (!links) return exits("link");
    [[maybe_unused]] static const bool registered =
        register_exit_handlers(OutputKind::lto_ir, target);
    return link_now(lto_ir, target);
  }

 private:
  const Result<Nvrtc>& nvrtc() {
    return nvrtc_.get([this] { return Nvrtc::load(given_.nvrtc); });
  }
  const Result<NvJitLink>& linker() {
    return linker_.get([this]() -> Result<NvJitLink> {
      const Result<Nvrtc>& nvrtc = this->nvrtc();
      if (!nvrtc) return nvrtc.error();
      return NvJitLink::load(given_.nvjitlink, nvrtc->major);
    });
  }
  ToolkitHeaders* headers() {
    const Result<Nvrtc>& nvrtc = this->nvrtc();
    if (!nvrtc) return nullptr;
    std::call_once(headers_made_, [&] { headers_.emplace(header_folders(*nvrtc)); });
    return &*headers_;
  }
  /// Returns the toolkit's headers that the request may include.
  Result<ToolkitHeaders::Reached> reached_by(const CompileRequest& request) {
    KW_ASSIGN(const std::vector<Include> includes, foreign_includes(request));
    if (includes.empty() || headers() == nullptr) return ToolkitHeaders::Reached{};
    return headers()->reached_by(includes);
  }
  bool register_exit_handlers(OutputKind output, const std::string& target);
  Result<CompiledKernel> compile_now(const CompileRequest& request);
  Result<CompiledKernel> link_now(const std::vector<std::string>& lto_ir,
                                  const std::string& target);
  Result<CompiledKernel> compile_and_link(const CompileRequest& request);

  const ToolkitFiles given_;
  const bool may_exit_;
  Lazy<Nvrtc> nvrtc_;
  Lazy<NvJitLink> linker_;
  Lazy<std::string> identity_;
  Lazy<std::string> linker_identity_;
  std::once_flag headers_made_;
  std::optional<ToolkitHeaders> headers_;
};

/// Compiles an empty kernel, and links it if it is LTO-IR. The toolkit registers exit handlers in
/// the first compile to a cubin and the first link, and they would run before the exit waits.
bool ToolkitCompiler::register_exit_handlers(OutputKind output, const std::string& target) {
  const BeforeExit loads(BeforeExit::Late::loads);
  if (!may_exit_ || !loads) return false;
  CompileRequest request;
  request.name = "empty";
  request.source = "__global__ void empty() {}";
  request.target = target;
  request.output = output;
  const Result<CompiledKernel> compiled = compile_now(request);
  if (compiled && output == OutputKind::lto_ir) {
    static_cast<void>(link_now({compiled->bits}, target));
  }
  return heed_exit();
}

Result<CompiledKernel> ToolkitCompiler::compile_now(const CompileRequest& request) {
  const Result<Nvrtc>& loaded = nvrtc();
  if (!loaded) return loaded.error();
  const Nvrtc& nvrtc = *loaded;
  const Clock::time_point start = Clock::now();
  const auto failure = [&](std::string_view step, nvrtcResult status, std::string_view log) {
    return Error{ErrorCode::compile, concat(request.name, ": ", step, " for ", request.target,
                                            " failed: ", nvrtc.error_string(status),
                                            further_lines(without_infos(log)))};
  };

  KW_ASSIGN(const ToolkitHeaders::Reached reached, reached_by(request));
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : request.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  for (const auto& [name, file] : reached) {
    names.push_back(name.c_str());
    texts.push_back(file->text.c_str());
  }
  Program program(nvrtc);
  if (const nvrtcResult status =
          nvrtc.create_program(program.address(), request.source.c_str(), request.name.c_str(),
                               static_cast<int>(names.size()), texts.data(), names.data());
      status != NVRTC_SUCCESS) {
    return failure("reading the source", status, {});
  }
  const std::vector<std::string> options = compile_options(nvrtc, request);
  const std::vector<const char*> arguments = c_strings(options);
  const nvrtcResult status =
      nvrtc.compile_program(program.get(), static_cast<int>(arguments.size()), arguments.data());
  std::string log = program.log();
  if (status != NVRTC_SUCCESS) {
    if (log.find("could not open source file") != std::string::npos) {
      log += concat("kernels may include kernwright's headers, files beside them and what is in ",
                    headers()->folders().front().native(), '\n');
    }
    return failure("compile", status, log);
  }

  CompiledKernel kernel;
  kernel.output = request.output;
  kernel.target = request.target;
  const bool is_cubin = request.output == OutputKind::cubin;
  const auto bits_size = is_cubin ? nvrtc.cubin_size : nvrtc.lto_ir_size;
  const auto bits = is_cubin ? nvrtc.cubin : nvrtc.lto_ir;
  std::size_t size = 0;
  if (const nvrtcResult got = bits_size(program.get(), &size); got != NVRTC_SUCCESS) {
    return failure("reading the result", got, {});
  }
  kernel.bits.resize(size);
  if (const nvrtcResult got = bits(program.get(), kernel.bits.data()); got != NVRTC_SUCCESS) {
    return failure("reading the result", got, {});
  }
  if (is_cubin) {
    read_log(kernel, std::move(log));
  } else {
    kernel.log = std::move(log);
  }
  kernel.seconds = seconds_since(start);
  return kernel;
}

Result<CompiledKernel> ToolkitCompiler::compile_and_link(const CompileRequest& request) {
  CompileRequest own = request;
  own.linked.clear();
  own.output = OutputKind::lto_ir;
  Result<CompiledKernel> compiled = compile(own);
  if (!compiled) return compiled;
  std::vector<std::string> inputs{std::move(compiled->bits)};
  std::string names;
  for (const LinkedInput& input : request.linked) {
    inputs.push_back(input.lto_ir);
    names += concat(names.empty() ? "" : ", ", input.name);
  }
  Result<CompiledKernel> linked = link(inputs, request.target);
  if (!linked) {
    return Error{linked.error().code,
                 concat(request.name, " with ", names, ": ", linked.error().message)};
  }
  linked->seconds += compiled->seconds;
  return linked;
}

Result<CompiledKernel> ToolkitCompiler::link_now(const std::vector<std::string>& lto_ir,
                                                 const std::string& target) {
  const Result<Nvrtc>& loaded = nvrtc();
  if (!loaded) return loaded.error();
  const Result<NvJitLink>& linker = this->linker();
  if (!linker) return linker.error();
  const NvJitLink& api = *linker;
  const Clock::time_point start = Clock::now();

  std::vector<std::string> options{concat("-arch=", target), "-lto", "-Xptxas=-v"};
  if (has_disk_cache(*loaded)) options.emplace_back("-no-cache");
  std::vector<const char*> arguments = c_strings(options);
  LinkHandle handle(api);
  const auto failure = [&](std::string_view step, nvJitLinkResult status) {
    const std::string log = handle.error_log();
    return Error{ErrorCode::compile,
                 concat("link for ", target, ": ", step, " failed with nvJitLink error ",
                        static_cast<int>(status), further_lines(without_infos(log)))};
  };

  if (const nvJitLinkResult status =
          api.create(handle.address(), static_cast<unsigned>(arguments.size()), arguments.data());
      status != NVJITLINK_SUCCESS) {
    return failure("starting", status);
  }
  for (std::size_t i = 0; i < lto_ir.size(); ++i) {
    const std::string name = concat("input ", i);
    if (const nvJitLinkResult status = api.add_data(
            handle.get(), NVJITLINK_INPUT_LTOIR, lto_ir[i].data(), lto_ir[i].size(), name.c_str());
        status != NVJITLINK_SUCCESS) {
      return failure(concat("adding ", name), status);
    }
  }
  if (const nvJitLinkResult status = api.complete(handle.get()); status != NVJITLINK_SUCCESS) {
    return failure("linking", status);
  }
  CompiledKernel kernel;
  kernel.target = target;
  std::size_t size = 0;
  if (const nvJitLinkResult status = api.cubin_size(handle.get(), &size);
      status != NVJITLINK_SUCCESS) {
    return failure("reading the result", status);
  }
  kernel.bits.resize(size);
  if (const nvJitLinkResult status = api.cubin(handle.get(), kernel.bits.data());
      status != NVJITLINK_SUCCESS) {
    return failure("reading the result", status);
  }
  read_log(kernel, handle.info_log());
  kernel.seconds = seconds_since(start);
  return kernel;
}

}  // namespace

std::unique_ptr<Compiler> make_toolkit_compiler(ToolkitFiles files, bool may_exit) {
  return std::make_unique<ToolkitCompiler>(std::move(files), may_exit);
}

}  // namespace kernwright
