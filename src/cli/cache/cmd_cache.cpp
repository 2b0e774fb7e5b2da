#include <filesystem>
#include <system_error>

#include "cache/entries/default_root.h"
#include "cli/cache/cache_actions.h"
#include "cli/output.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

struct Action {
  const char* name;
  Status (*run)(const CacheFlags& flags);
  bool takes_words = true;  ///< after its name
  bool fills = true;        ///< it may create the cache
};

constexpr Action kActions[] = {
    {"list", list_cache, false, false},
    {"verify", verify_cache, false, false},
    {"compact", compact_cache, false, false},
    {"prune", prune_cache, false, false},
    {"merge", merge_caches},
    {"pin", decide},
    {"ban", decide},
    {"lift", decide},
    {"misses", show_misses, false, false},
    {"export", export_cache, true, false},
    {"install", install_cache},
    {"keygen", make_keys},
};

std::string known_actions() {
  std::string names;
  for (const Action& action : kActions) names += concat(names.empty() ? "" : ", ", action.name);
  return names;
}

/// Returns true if a cache that is named exists. The default one may not have been written to yet.
bool is_there(const std::filesystem::path& root) {
  std::error_code error;
  return std::filesystem::exists(root, error);
}

class Cache : public Command {
 public:
  Cache() : Command("cache", "List, check, merge and tidy a cache directory"), flags_(sub, json) {}

  Status run() override {
    const std::string name = flags_.words.empty() ? "" : flags_.words.front();
    for (const Action& action : kActions) {
      if (name != action.name) continue;
      if (!action.fills && !flags_.service.cache.empty() && !is_there(flags_.root())) {
        return report({ErrorCode::not_found, concat("there is no cache ", flags_.root().string())});
      }
      if (action.takes_words || flags_.words.size() == 1) return action.run(flags_);
      return report(
          {ErrorCode::invalid_argument, concat("cache ", name, " takes no \"", flags_.words[1],
                                               "\"; --cache names a directory")});
    }
    if (name.empty()) {
      return report(
          {ErrorCode::invalid_argument, concat("no action given: cache takes ", known_actions())});
    }
    return report({ErrorCode::invalid_argument,
                   concat("unknown action \"", name, "\"; cache takes ", known_actions())});
  }

 private:
  CacheFlags flags_;
};

}  // namespace

CacheFlags::CacheFlags(llvm::cl::SubCommand& sub, const llvm::cl::opt<bool>& as_json)
    : service(sub),
      words(llvm::cl::Positional, llvm::cl::ZeroOrMore,
            llvm::cl::desc("ACTION, one of:\n\n"
                           "  list               the records of problems and families\n"
                           "  verify             check every file\n"
                           "  compact            remove records that no lookup would serve\n"
                           "  prune              remove artifacts of no winner, the oldest first\n"
                           "  merge DIR...       take over what other caches have\n"
                           "  misses             what was asked for and not there\n"
                           "  pin|ban|lift OPERATION dim=value ...\n"
                           "                     serve one candidate, never serve it, or decide\n"
                           "                     nothing any more\n"
                           "  export FILE        pack records and winners as a bundle\n"
                           "  install FILE       unpack a bundle and serve from it\n"
                           "  keygen NAME        make NAME.key and NAME.pub, to sign bundles"),
            llvm::cl::sub(sub)),
      recompile("recompile", llvm::cl::desc("verify: compile every winner again, compare bytes"),
                llvm::cl::sub(sub)),
      max_gib("max-gib", llvm::cl::desc("prune: of all artifacts, default 5"),
              llvm::cl::value_desc("N"), llvm::cl::init(5), llvm::cl::sub(sub)),
      max_days("max-days", llvm::cl::desc("prune: age of artifacts, default any"),
               llvm::cl::value_desc("N"), llvm::cl::init(0), llvm::cl::sub(sub)),
      kernel_template("template",
                      llvm::cl::desc("pin, ban: default: what is served now;\n"
                                     "lift: default: all that was decided"),
                      llvm::cl::value_desc("NAME"), llvm::cl::sub(sub)),
      configuration("configuration",
                    llvm::cl::desc("Parameters of --template, \"A=1 B=2\"; default: own"),
                    llvm::cl::value_desc("TEXT"), llvm::cl::sub(sub)),
      why("why", llvm::cl::desc("pin, ban, lift: the reason, kept with it"),
          llvm::cl::value_desc("TEXT"), llvm::cl::sub(sub)),
      worklist("worklist", llvm::cl::desc("misses: print a worklist of them"), llvm::cl::sub(sub)),
      key("key", llvm::cl::desc("export: sign with this secret key"), llvm::cl::value_desc("FILE"),
          llvm::cl::sub(sub)),
      serial("serial",
             llvm::cl::desc("export: says which bundle is newer;\n"
                            "default: the time in UTC seconds"),
             llvm::cl::value_desc("N"), llvm::cl::init(0), llvm::cl::sub(sub)),
      trusted_keys("trusted-keys", llvm::cl::desc("install: public keys, one a line"),
                   llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)),
      allow_unsigned("allow-unsigned",
                     llvm::cl::desc("install: also what none of the trusted keys signed"),
                     llvm::cl::sub(sub)),
      allow_older("allow-older",
                  llvm::cl::desc("install: also a lower serial than that\n"
                                 "of the bundle in use"),
                  llvm::cl::sub(sub)),
      json(as_json) {}

std::filesystem::path CacheFlags::root() const {
  if (service.cache.empty()) return default_cache_root();
  return std::filesystem::path(service.cache.getValue());
}

std::unique_ptr<Command> make_cache() { return std::make_unique<Cache>(); }

}  // namespace kernwright::cli
