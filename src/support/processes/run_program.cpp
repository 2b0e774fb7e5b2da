#include "support/processes/run_program.h"

#include <cerrno>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

extern char** environ;

namespace kernwright {

Result<ProgramOutput> run_program(const std::string& name, std::vector<std::string> arguments,
                                  std::string_view input) {
  const auto failed = [&](std::string_view what, int code) {
    return Error{ErrorCode::io,
                 concat("cannot ", what, " ", name, ": ", std::generic_category().message(code))};
  };
  // Files in memory: neither side waits for the other to read.
  KW_ASSIGN(const FileDescriptor in, memory_file("stdin", input));
  KW_ASSIGN(const FileDescriptor out, memory_file("stdout", {}));
  // Above the numbers that they get in the program, which would close them.
  const FileDescriptor child_in(::fcntl(in.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const FileDescriptor child_out(::fcntl(out.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!child_in.valid() || !child_out.valid() || ::lseek(child_in.get(), 0, SEEK_SET) != 0) {
    return failed("make descriptors for", errno);
  }
  std::vector<char*> words;
  arguments.insert(arguments.begin(), name);
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t files{};
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, child_in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, child_out.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int code = ::posix_spawnp(&pid, name.c_str(), &files, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (code != 0) return failed("start", code);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return failed("wait for", errno);
  }
  ProgramOutput output;
  output.status =
      WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
  KW_ASSIGN(output.out, read_all(out));
  return output;
}

}  // namespace kernwright
