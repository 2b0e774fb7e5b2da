#include <vector>

#include "service/serve/guarded.h"
#include "service/sweep/worklist.h"
#include "support/try.h"
#include <kernwright/service.h>

namespace kernwright {

Result<void> Service::prewarm_worklist(const std::string& file) {
  return guarded([&]() -> Result<void> {
    KW_ASSIGN(const std::vector<WorklistEntry> entries, read_worklist(file));
    std::vector<Problem> problems;
    for (const WorklistEntry& entry : entries) problems.push_back(entry.problem);
    return prewarm(problems);
  });
}

}  // namespace kernwright
