#pragma once

#include <functional>
#include <llvm/Support/CommandLine.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/page.h"
#include "service/serve/core.h"
#include "service/sweep/worklist.h"

namespace kernwright::cli {

/// The result of a command, which is the exit status of the program. If Ctrl-C ends the program,
/// its status is 130 (see `end_on_interrupt`).
enum class Status { ok = 0, failed = 1, usage = 2 };

/// One command. While the object exists its options are registered with the parser.
class Command {
 public:
  Command(llvm::StringRef name, llvm::StringRef help)
      : sub(name, help),
        json("json", llvm::cl::desc("Print one JSON object instead of text"), llvm::cl::sub(sub)) {}
  virtual ~Command() = default;
  virtual Status run() = 0;
  /// Returns true if its positional words are a problem, OPERATION name=value.
  virtual bool takes_problem() const { return false; }

  llvm::cl::SubCommand sub;
  llvm::cl::opt<bool> json;
};

/// The option --verbose of commands whose text is laid out for a terminal.
struct VerboseFlag {
  explicit VerboseFlag(llvm::cl::SubCommand& sub)
      : given("verbose", llvm::cl::desc("Leave nothing out, and do not break lines"),
              llvm::cl::sub(sub)) {}

  Page page() const { return Page(given); }

  llvm::cl::opt<bool> given;
};

/// Options of the commands that open a service.
struct ServiceFlags {
  explicit ServiceFlags(llvm::cl::SubCommand& sub);

  ServiceOptions options() const;
  /// Returns the words of a command line with the same options, but for device `number`.
  std::vector<std::string> arguments(int number) const;
  Result<std::shared_ptr<ServiceCore>> open() const { return ServiceCore::open(options()); }

  llvm::cl::opt<std::string> cache;
  llvm::cl::list<std::string> read_only_caches;
  llvm::cl::list<std::string> templates;
  llvm::cl::list<std::string> epilogues;
  llvm::cl::opt<std::string> sku;
  llvm::cl::opt<int> device;
  llvm::cl::opt<L2State> l2;
};

/// The positional words `OPERATION dim=value ...`.
struct ProblemWords {
  explicit ProblemWords(llvm::cl::SubCommand& sub);
  /// Parses the words. If there is one --epilogue, and the problem names none, it is added to the
  /// problem. Errors: `invalid_argument` if there are no words, or one is not `name=value`.
  Result<Problem> parse(const ServiceFlags& service) const;

  llvm::cl::list<std::string> words;
};

/// The positional `WORKLIST.json`.
struct WorklistFile {
  explicit WorklistFile(llvm::cl::SubCommand& sub);
  /// Reads the file. Errors: `invalid_argument` if no file is given or it is not a worklist.
  Result<std::vector<WorklistEntry>> read() const;
  /// Returns the normalised problems, each once. Errors: the error of the first entry that no
  /// operation accepts, with its place.
  Result<std::vector<Problem>> normalize(const std::vector<WorklistEntry>& entries,
                                         const ServiceCore& service);
  /// Returns the place in the file, "list.json:3", of a problem that `normalize` returned.
  std::string place(const Problem& normalized) const;

  llvm::cl::opt<std::string> path;

 private:
  std::map<std::string, int, std::less<>> lines_;  ///< by normalised text
};

/// Checks a budget. Errors: `invalid_argument` unless `seconds` is above 0.
Result<void> check_budget(double seconds);

// One function for each file cmd_<name>.cpp; main.cpp has the table of them.
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_check();
std::unique_ptr<Command> make_tune();
std::unique_ptr<Command> make_sweep();
std::unique_ptr<Command> make_worklist();
std::unique_ptr<Command> make_prewarm();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_profile();
std::unique_ptr<Command> make_report();
std::unique_ptr<Command> make_cache();
std::unique_ptr<Command> make_dispatch();
std::unique_ptr<Command> make_operations();
std::unique_ptr<Command> make_compiler();
std::unique_ptr<Command> make_worker();
std::unique_ptr<Command> make_sweeper();

}  // namespace kernwright::cli
