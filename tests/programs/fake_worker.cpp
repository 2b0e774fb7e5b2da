// A worker without a GPU, for tests. It speaks the real protocol, and misbehaves as its arguments
// say:
//
//   PLACE[:A]=BEHAVIOUR[@N]
//       At PLACE (hello, open, prepare, check, sample, after, gap, audit, drop, reference); with A
//       only for candidates with that value of parameter A; with N only in the N-th process.
//   fill=work
//       Filler takes its time on the clock of the samples, instead of none.
//   state=FILE
//       The processes count themselves in FILE, a line each.
//   parent=FILE
//       It is no worker: it starts one, writes its process id to FILE, makes a request that hangs,
//       and waits.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/processes/subprocess.h"
#include "support/text.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/serve.h"

namespace kernwright {
namespace {

constexpr int kSocket = 3;

void write_raw(std::string_view bytes) {
  if (::write(kSocket, bytes.data(), bytes.size()) < 0) ::_exit(9);
}

/// Sleeps where nothing but a signal ends it.
void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

class Behaviour {
 public:
  explicit Behaviour(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      const std::size_t equals = argument.find('=');
      if (equals == std::string::npos) continue;
      rules_[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    const auto state = rules_.find("state");
    if (state == rules_.end()) return;
    if (!append_line(state->second, "process")) ::_exit(8);
    const std::string lines = read_file(state->second).value();
    process_ = static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
  }

  std::string at(std::string_view place, std::int64_t a = 0) const {
    for (const std::string& key : {concat(place, ':', a), std::string(place)}) {
      const auto rule = rules_.find(key);
      if (rule == rules_.end()) continue;
      const std::size_t only = rule->second.find('@');
      if (only == std::string::npos) return rule->second;
      if (std::stoi(rule->second.substr(only + 1)) == process_) return rule->second.substr(0, only);
    }
    return {};
  }

  /// Counts from 1.
  int process() const { return process_; }

  /// Does what ends or confuses the process; gives the step that the runner shall report.
  Runner::Step act(std::string_view place, std::int64_t a, bool& lost) const {
    const std::string behaviour = at(place, a);
    if (behaviour == "abort") {
      if (::write(STDERR_FILENO, "assertion failed\n", 17) < 0) ::_exit(9);
      std::abort();
    }
    if (behaviour == "segv") std::raise(SIGSEGV);
    if (behaviour == "exit") ::_exit(7);
    if (behaviour == "hang") hang();
    if (behaviour == "stop") std::raise(SIGSTOP);
    if (behaviour == "throw") throw std::runtime_error("thrown by the runner");
    if (behaviour == "garbage") write_raw("This is no message of any protocol.");
    if (behaviour == "text") write_raw(std::string("\x05\0\0\0hello", 9));
    if (behaviour == "cut") {
      write_raw(std::string("\x64\0\0\0cut", 7));
      ::_exit(0);
    }
    if (behaviour == "huge") return {Outcome::wrong_result, std::string().append(20'000'000, 'x')};
    if (behaviour == "out_of_memory") return {Outcome::out_of_memory, "no 1 TB here"};
    if (behaviour == "illegal_address" || behaviour == "launch_failed") {
      lost = true;
      return {*parse_as<Outcome>(behaviour), "sticky"};
    }
    return {};
  }

 private:
  std::map<std::string, std::string, std::less<>> rules_;
  int process_ = 1;
};

class FakeRunner final : public Runner {
 public:
  explicit FakeRunner(const Behaviour& behaviour)
      : behaviour_(behaviour), clock_(behaviour.process()) {}

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override {
    const std::int64_t a = candidate.configuration.at("A");
    const Step step = act("prepare", a);
    if (step.outcome != Outcome::ok) return Prepared{-1, step};
    if (kernel.bits != "bits\n\xff" || kernel.resources().registers != 32) {
      return Error{ErrorCode::internal, "the kernel came over damaged"};
    }
    candidates_[next_] = a;
    return Prepared{next_++, {}};
  }
  Result<Checked> check(Id id, CheckDepth depth) override {
    Checked checked{act("check", candidates_.at(id)), {}};
    checked.report.max_error = 0.25;
    checked.report.elements = 10;
    checked.report.exact = true;
    checked.report.unmapped = depth == CheckDepth::finalist;
    return checked;
  }
  Result<Checked> check_after_timing(Id id) override {
    Checked checked{act("after", candidates_.at(id)), {}};
    checked.report.after_timing = true;
    return checked;
  }
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
    std::vector<Sampled> result;
    for (const Id id : order) {
      // Another 10 ms after the one before, on a clock that goes on in the next process.
      use_.append({clock_ + 0.01, clock_ + 0.02, 0.01, 0});
      clock_ += 0.02;
      if (id < 0) {
        const Step step = act("reference", 0);
        const bool slow = behaviour_.at("reference") == "slow";
        result.push_back({step, {slow ? 13.0 : 10.0, 1980, 0.5}});
      } else {
        const std::int64_t a = candidates_.at(id);
        result.push_back({act("sample", a), {10.0 * static_cast<double>(a), 1980, 0.5}});
      }
    }
    return result;
  }
  Result<double> launch_gap_us(Id id) override {
    act("gap", candidates_.at(id));
    return 1.5;
  }
  Result<LaunchTimes> launch_paths(Id id) override {
    const Step step = act("paths", candidates_.at(id));
    if (step.outcome != Outcome::ok) return Error{ErrorCode::device, step.detail};
    return LaunchTimes{{{KernelPath::stream, 3.25, 4}, {KernelPath::rebind, 1.25, 4}},
                       KernelPath::rebind};
  }
  Result<CounterSet> count(Id id, L2State cache) override {
    const Step step = act("count", candidates_.at(id));
    if (step.outcome != Outcome::ok) return Error{ErrorCode::device, step.detail};
    CounterSet counted;
    counted.version = "13.0";
    counted.cache = cache;
    counted.passes = 3;
    counted.kernels = {{"toy",
                        {2, 1, 1},
                        {{"gpu__time_duration.sum", 5216, ""},
                         {"lts__t_sector_hit_rate.pct", std::nullopt, "NaN"}}}};
    return counted;
  }
  Result<Audit> audit() override {
    act("audit", 0);
    return Audit{{{"power_cap", Trust::b, "700 of 700 W"}}};
  }
  void fill(double seconds) override {
    if (behaviour_.at("fill") != "work") return;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    use_.append({clock_, clock_ + seconds, seconds, 0});
    clock_ += seconds;
  }
  void drop(Id id) override {
    act("drop", candidates_.at(id));
    candidates_.erase(id);
  }
  DeviceUse take_use() override { return std::exchange(use_, {}); }
  bool lost() const override { return lost_; }

 private:
  Step act(std::string_view place, std::int64_t a) { return behaviour_.act(place, a, lost_); }

  const Behaviour& behaviour_;
  std::map<Id, std::int64_t> candidates_;
  Id next_ = 0;
  DeviceUse use_;
  double clock_ = 0;  ///< begins at the number of the process
  bool lost_ = false;
};

class FakeFactory final : public RunnerFactory {
 public:
  explicit FakeFactory(const Behaviour& behaviour) : behaviour_(behaviour) {}

  Result<void> start(const detail::HelloRequest& hello,
                     std::shared_ptr<Compiler> compiler) override {
    compiler_ = std::move(compiler);
    bool lost = false;
    behaviour_.act("hello", 0, lost);
    if (hello.device != 0) {
      return Error{ErrorCode::unavailable, concat("there is no GPU ", hello.device)};
    }
    return {};
  }
  const DeviceProfile& profile() const override { return profile_; }
  Result<std::unique_ptr<Runner>> open(const Catalog&, const BoundProblem& problem,
                                       DeviceRunnerOptions) override {
    bool lost = false;
    behaviour_.act("open", 0, lost);
    CompileRequest request;
    request.name = "reference.cu";
    request.source = problem.text();
    const auto kernel = compiler_->compile(request);
    if (!kernel) return kernel.error();
    return std::unique_ptr<Runner>(std::make_unique<FakeRunner>(behaviour_));
  }

 private:
  const Behaviour& behaviour_;
  std::shared_ptr<Compiler> compiler_;
  DeviceProfile profile_ = find_profile("h200").value();
};

/// The process in the middle: dies by a signal while its worker hangs.
int run_parent(const std::string& file) {
  auto worker =
      Subprocess::spawn({std::filesystem::read_symlink("/proc/self/exe"), {"hello=hang"}, {}});
  if (!worker) return 1;
  if (!worker->channel().send(detail::encode(detail::Request{detail::HelloRequest{}}))) return 1;
  if (!publish_file(file, concat(worker->pid()))) return 1;
  hang();
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.starts_with("parent=")) return run_parent(argument.substr(7));
  }
  auto channel = inherited_channel();
  if (!channel) return 2;
  const Behaviour behaviour(arguments);
  if (behaviour.at("hello") == "other_protocol") {
    static_cast<void>(
        channel->send(detail::encode(detail::Reply{detail::HelloReply{99, 0}, false})));
    hang();
  }
  FakeFactory factory(behaviour);
  return serve_runner(*std::move(channel), factory) ? 0 : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run({argv + 1, argv + argc}); }
