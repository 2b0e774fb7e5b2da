#include "cache/tiered_cache.h"
#include "cli/command.h"
#include "cli/output.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

class Cache : public Command {
 public:
  Cache()
      : Command("cache", "list or verify the records and artifacts of a cache directory"),
        action_(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("list|verify"),
                llvm::cl::sub(sub)),
        root_("cache", llvm::cl::desc("Directory of the cache"), llvm::cl::value_desc("DIR"),
              llvm::cl::sub(sub)) {}

  Status run() override {
    if (action_ != "list" && action_ != "verify") {
      return report({ErrorCode::invalid_argument, concat("unknown action \"", action_.getValue(),
                                                         "\"; cache takes list or verify")});
    }
    const TieredCache cache(root_.empty() ? default_cache_root()
                                          : std::filesystem::path(root_.getValue()));
    return action_ == "list" ? list(cache) : verify(cache);
  }

 private:
  Status list(const TieredCache& cache) const {
    Json rows = Json::array();
    for (const RecordStore::Listed& listed : cache.records().list()) {
      if (!listed.record) {
        report_warning(concat(listed.path.string(), ": ", listed.record.detail));
        continue;
      }
      if (json) {
        rows.push_back(record_json(*listed.record.value));
      } else {
        print(concat(winner_line(*listed.record.value), "  ", listed.record.value->key.sku, " ",
                     listed.record.value->created));
      }
    }
    const std::size_t artifacts = cache.artifacts().list().size();
    if (json) {
      print_json(
          Json{{"root", cache.root().string()}, {"records", rows}, {"artifacts", artifacts}});
    } else {
      print(concat(artifacts, " artifacts in ", cache.root().string()));
    }
    return Status::ok;
  }

  // Reads everything: a record that does not decode or lacks its winner's bits, and an artifact
  // that does not decode, is a defect.
  Status verify(const TieredCache& cache) const {
    Json defects = Json::array();
    const auto note = [&](const std::string& path, std::string_view what) {
      defects.push_back({{"path", path}, {"defect", what}});
      if (!json) print(concat(path, ": ", what));
    };
    const std::vector<RecordStore::Listed> records = cache.records().list();
    for (const RecordStore::Listed& listed : records) {
      if (!listed.record) {
        note(listed.path.string(),
             concat(to_string(listed.record.reason), ": ", listed.record.detail));
        continue;
      }
      const std::string& artifact = listed.record.value->winner.artifact;
      if (Lookup<CompiledKernel> bits = cache.artifact(artifact); !bits) {
        note(listed.path.string(), concat("its winner's artifact ", artifact, ": ",
                                          to_string(bits.reason), " ", bits.detail));
      }
    }
    const std::vector<std::string> artifacts = cache.artifacts().list();
    for (const std::string& digest : artifacts) {
      if (Lookup<CompiledKernel> bits = cache.artifacts().get(digest); !bits) {
        note(cache.artifacts().path(digest).string(),
             concat(to_string(bits.reason), ": ", bits.detail));
      }
    }
    if (json) {
      print_json(Json{{"root", cache.root().string()},
                      {"records", records.size()},
                      {"artifacts", artifacts.size()},
                      {"defects", defects}});
    } else {
      print(concat(records.size(), " records, ", artifacts.size(), " artifacts, ", defects.size(),
                   " defects"));
    }
    return defects.empty() ? Status::ok : Status::failed;
  }

  llvm::cl::opt<std::string> action_;
  llvm::cl::opt<std::string> root_;
};

}  // namespace

std::unique_ptr<Command> make_cache() { return std::make_unique<Cache>(); }

}  // namespace kernwright::cli
