#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include "model/candidate/choice.h"
#include "model/candidate/dispatch_table.h"
#include "model/result/evidence.h"
#include <kernwright/result.h>

namespace kernwright {

/// A kernel that answers for some sizes of a family.
struct FamilyKernel {
  Choice choice;
  std::string template_digest;
  std::string artifact;  ///< digest of its cubin's request, hex

  friend bool operator==(const FamilyKernel&, const FamilyKernel&) = default;
};

void describe(auto& visitor, MaybeConst<FamilyKernel> auto& kernel) {
  describe(visitor, kernel.choice);
  visitor.field("template_digest", kernel.template_digest);
  visitor.field("artifact", kernel.artifact);
}

/// How much slower a family's kernels are than the best that was found, at sizes that the table was
/// not made from: 0.06 is 6 %.
struct FamilyRegret {
  int sizes = 0;
  double median = 0;
  double p95 = 0;  ///< not below the regret of 95 % of the sizes
  double worst = 0;

  friend bool operator==(const FamilyRegret&, const FamilyRegret&) = default;
};

void describe(auto& visitor, MaybeConst<FamilyRegret> auto& regret) {
  visitor.field("sizes", regret.sizes);
  visitor.field("median", regret.median);
  visitor.field("p95", regret.p95);
  visitor.field("worst", regret.worst);
}

/// The part of a family's record that lookups read.
struct FamilyHead {
  RecordKey key;                  ///< of a problem with ranges
  RecordEnvironment environment;  ///< each kernel has the digest of its template
  Trust trust = Trust::c;
  std::vector<FamilyKernel> kernels;
  DispatchTable::Form table;  ///< of `kernels`, over the ranges in the problem's order
  FamilyRegret regret;
  std::string created;  ///< UTC, ISO 8601

  friend bool operator==(const FamilyHead&, const FamilyHead&) = default;
};

void describe(auto& visitor, MaybeConst<FamilyHead> auto& head) {
  visitor.field("key", head.key);
  visitor.field("environment", head.environment);
  visitor.field("trust", head.trust);
  visitor.field("kernels", head.kernels);
  visitor.field("table", head.table);
  visitor.field("regret", head.regret);
  visitor.field("created", head.created);
}

/// Returns the table of `kernels`. Errors: `corrupt` if a part of it is wrong; never for a head
/// that was read.
Result<DispatchTable> table_of(const FamilyHead& head);

/// The times at one size, in microseconds.
struct FamilyRow {
  std::vector<std::int64_t> sizes;
  /// The medians of the samples of the choices in `FamilyRecord::tried`; 0 if one was not measured
  /// here.
  std::vector<double> times_us;
  double spread = 0;    ///< of the fastest: median absolute deviation over median
  bool anchor = false;  ///< the size was tuned alone

  friend bool operator==(const FamilyRow&, const FamilyRow&) = default;
};

void describe(auto& visitor, MaybeConst<FamilyRow> auto& row) {
  visitor.field("sizes", row.sizes);
  visitor.field("times_us", row.times_us);
  visitor.field("spread", row.spread);
  visitor.field_unless("anchor", row.anchor, false);
}

/// The kernels of a range of sizes, with the evidence for them.
struct FamilyRecord {
  FamilyHead head;
  std::vector<Choice> tried;          ///< the family's kernels come first, in their order
  std::vector<FamilyRow> matrix;      ///< the table was made from these
  std::vector<FamilyRow> validation;  ///< sizes that were drawn, and on which nothing depends
  std::uint64_t random_seed = 0;
  Audit audit;
  std::string device_name;
  std::string device_uuid;
  double wall_seconds = 0;

  friend bool operator==(const FamilyRecord&, const FamilyRecord&) = default;
};

void describe(auto& visitor, MaybeConst<FamilyRecord> auto& record) {
  describe(visitor, record.head);
  visitor.field("tried", record.tried);
  visitor.field("matrix", record.matrix);
  visitor.field("validation", record.validation);
  visitor.field("seed", record.random_seed);
  visitor.field("audit", record.audit.rows);
  visitor.field("device_name", record.device_name);
  visitor.field("device_uuid", record.device_uuid);
  visitor.field("wall_seconds", record.wall_seconds);
}

/// Returns true if the key is of a family, whose problem has ranges.
bool is_family(const RecordKey& key);

/// JSON text, one object on one line. `parse_family(to_json(r))` returns r.
std::string to_json(const FamilyHead& head);
std::string to_json(const FamilyRecord& record);

/// Errors: `corrupt`, which names the field, or the part of the table that is wrong.
Result<FamilyHead> parse_family_head(std::string_view json);
Result<FamilyRecord> parse_family(std::string_view json);

}  // namespace kernwright
