#include "support/processes/subprocess.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/processes/process_exit.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"

extern char** environ;

namespace kernwright {
namespace {

constexpr int kChannelDescriptor = 3;
/// Tells the child its parent's process id; the child ends when that process ends.
constexpr std::string_view kParentVariable = "KERNWRIGHT_PARENT_PROCESS";
/// The time for which a killed process is waited for. Only the kernel can delay its end, when it
/// frees a GPU.
constexpr double kReapSeconds = 0.5;

Error spawn_error(std::string_view what, const std::filesystem::path& program, int code) {
  return {ErrorCode::io,
          concat("cannot ", what, ' ', program.native(), ": ",
                 std::generic_category().message(code), code == EAGAIN ? limit_of_threads() : "")};
}

std::vector<std::string> child_environment(const std::vector<std::string>& removed) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    const bool drop =
        name == kParentVariable || std::find(removed.begin(), removed.end(), name) != removed.end();
    if (!drop) variables.emplace_back(variable);
  }
  variables.push_back(concat(kParentVariable, '=', ::getpid()));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// Owns the file actions and attributes of posix_spawn.
struct SpawnSettings {
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};

  SpawnSettings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
  }

  /// Returns 0, or the error number.
  int fill(int channel, int errors) {
    sigset_t all;
    sigset_t none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    constexpr auto kFlags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    const std::array results = {
        ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0),
        ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0),
        ::posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO),
        ::posix_spawn_file_actions_adddup2(&files, channel, kChannelDescriptor),
        ::posix_spawn_file_actions_addclosefrom_np(&files, kChannelDescriptor + 1),
        ::posix_spawnattr_setflags(&attributes, static_cast<short>(kFlags)),
        ::posix_spawnattr_setpgroup(&attributes, 0),
        ::posix_spawnattr_setsigdefault(&attributes, &all),
        ::posix_spawnattr_setsigmask(&attributes, &none)};
    const auto* failed = std::find_if(results.begin(), results.end(), [](int r) { return r != 0; });
    return failed == results.end() ? 0 : *failed;
  }
};

/// Reaps the processes that had not ended when they were killed, and keeps one more for later.
void reap_later(std::optional<pid_t> killed) {
  static std::mutex mutex;
  static auto& left = *new std::vector<pid_t>;
  const std::lock_guard lock(mutex);
  std::erase_if(left, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
  if (killed) left.push_back(*killed);
}

/// Makes a copy of `file` with a number above the spawn's own descriptors (0 to 3), which would
/// overwrite it.
FileDescriptor out_of_the_way(int file) {
  return FileDescriptor(::fcntl(file, F_DUPFD_CLOEXEC, kChannelDescriptor + 1));
}

// Static, because a signal handler reads it.
volatile pid_t parent_of_this_process = 0;

/// Handles the signal of the parent's death. It also comes when only the *thread* that spawned us
/// ends, so the handler looks whether the process has ended.
void on_parent_death(int) {
  if (::getppid() != parent_of_this_process) ::_exit(0);
}

/// Ends the process when the other end of `socket` is closed, even while it waits for a GPU.
void watch(int socket) {
  pollfd polled{socket, POLLRDHUP, 0};
  while (::poll(&polled, 1, -1) <= 0) {
  }
  ::_exit(0);
}

}  // namespace

std::string ExitStatus::text() const {
  if (signal == 0) return concat("exit status ", code);
  const char* name = ::sigabbrev_np(signal);
  return concat("signal ", signal, " (SIG", name != nullptr ? name : "?", ')');
}

Subprocess::Subprocess(pid_t pid, Channel channel, FileDescriptor errors)
    : owner_(::getpid()), pid_(pid), channel_(std::move(channel)), errors_(std::move(errors)) {}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : owner_(other.owner_),
      pid_(std::exchange(other.pid_, -1)),
      ended_(other.ended_),
      channel_(std::move(other.channel_)),
      errors_(std::move(other.errors_)) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(pid_, other.pid_);
  std::swap(ended_, other.ended_);
  std::swap(channel_, other.channel_);
  std::swap(errors_, other.errors_);
  return *this;
}

Subprocess::~Subprocess() {
  if (::getpid() != owner_) return;  // a copy in a forked process
  kill();
  if (pid_ > 0 && !wait(deadline_in(kReapSeconds))) reap_later(pid_);
}

Result<Subprocess> Subprocess::spawn(const SpawnOptions& options) {
  const BeforeExit starts;
  if (!starts) return Error{ErrorCode::unavailable, "nothing is started while the process exits"};
  reap_later(std::nullopt);
  KW_ASSIGN(auto ends, Channel::make_pair());
  KW_ASSIGN(FileDescriptor errors, memory_file("stderr", {}));
  const FileDescriptor child_end = out_of_the_way(ends.second.socket());
  const FileDescriptor child_errors = out_of_the_way(errors.get());
  if (!child_end.valid() || !child_errors.valid()) {
    return spawn_error("make descriptors for", options.program, errno);
  }
  SpawnSettings settings;
  if (const int code = settings.fill(child_end.get(), child_errors.get()); code != 0) {
    return spawn_error("prepare the start of", options.program, code);
  }
  std::vector<std::string> words = options.arguments;
  words.insert(words.begin(), options.program.native());
  std::vector<std::string> variables = child_environment(options.removed_variables);
  pid_t pid = -1;
  const int code =
      ::posix_spawn(&pid, options.program.c_str(), &settings.files, &settings.attributes,
                    pointers(words).data(), pointers(variables).data());
  if (code != 0) return spawn_error("start", options.program, code);
  return Subprocess(pid, std::move(ends.first), std::move(errors));
}

void Subprocess::kill() {
  if (pid_ > 0 && !ended_) ::kill(-pid_, SIGKILL);
}

std::optional<ExitStatus> Subprocess::wait(Deadline deadline) {
  while (pid_ > 0 && !ended_) {
    int status = 0;
    const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
    if (reaped == pid_) {
      ended_ = WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)}
                                   : ExitStatus{WEXITSTATUS(status), 0};
    } else if (reaped < 0 && errno == ECHILD) {
      ended_ = ExitStatus{-1, 0};  // the host program ignores SIGCHLD, or reaped it
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return ended_;
}

std::string Subprocess::last_words() const {
  constexpr std::size_t kMaxLength = 500;
  const Result<std::string> text = read_all(errors_);
  if (!text) return {};
  std::string words(trim(*text));
  if (words.size() > kMaxLength) words.erase(0, words.size() - kMaxLength);
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

Result<Channel> inherited_channel() {
  const Error error{ErrorCode::unavailable,
                    "not started by kernwright: there is no channel to the tuning process"};
  const char* parent = std::getenv(std::string(kParentVariable).c_str());
  struct stat status{};
  if (parent == nullptr || ::fstat(kChannelDescriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    return error;
  }
  parent_of_this_process = static_cast<pid_t>(std::strtol(parent, nullptr, 10));
  ::fcntl(kChannelDescriptor, F_SETFD, FD_CLOEXEC);
  struct sigaction action{};
  action.sa_handler = on_parent_death;
  if (::sigaction(SIGHUP, &action, nullptr) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGHUP) != 0) {
    return Error{ErrorCode::io, concat("cannot follow the parent process: ",
                                       std::generic_category().message(errno))};
  }
  // The parent may have ended before the signal was requested.
  if (::getppid() != parent_of_this_process) return error;
  KW_ASSIGN(Thread watcher, Thread::start([] { watch(kChannelDescriptor); }));
  watcher.detach();
  return Channel(FileDescriptor(kChannelDescriptor));
}

}  // namespace kernwright
