#include "model/result/evidence.h"

#include <algorithm>

namespace kernwright {

std::string_view to_string(KernelPath path) { return to_string<KernelPath>(path); }

Trust Audit::trust() const {
  Trust worst = Trust::a;
  for (const AuditRow& row : rows) worst = std::max(worst, row.trust);
  return worst;
}

void Audit::merge(const Audit& other) {
  for (const AuditRow& row : other.rows) {
    const auto known = std::find_if(rows.begin(), rows.end(),
                                    [&](const AuditRow& r) { return r.check == row.check; });
    if (known == rows.end()) {
      rows.push_back(row);
    } else if (row.trust > known->trust) {
      *known = row;
    }
  }
}

}  // namespace kernwright
