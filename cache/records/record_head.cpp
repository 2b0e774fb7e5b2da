#include "cache/records/record_head.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "cache/records/record_view.h"
#include "support/bytes.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The enumerator of a byte; nothing for a byte above the last.
template <typename Enum>
std::optional<Enum> enumerator(std::uint8_t byte, Enum last) {
  if (byte > static_cast<std::uint8_t>(last)) return std::nullopt;
  return static_cast<Enum>(byte);
}

/// The only ways in which kernels are measured; the key has a byte for each.
constexpr std::uint8_t kGraphLaunch = 0;
constexpr std::uint8_t kSustainedPower = 0;

}  // namespace

HeadWinner winner_of(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  const Measurement in_turn = final_times(ranked, rounds).in_turn;
  return {.choice = ranked.choice,
          .artifact = ranked.artifact,
          .measured_us = in_turn.samples_us.empty() ? 0 : in_turn.median_us(),
          .predicted_us = ranked.predicted_us};
}

RecordHead head_of(const TuningRecord& record) {
  RecordHead head{.key = record.key,
                  .environment = record.environment,
                  .grade = record.grade,
                  .trust = record.trust,
                  .winner = winner_of(record.winner, record.rounds),
                  .roofline_us = record.roofline_us,
                  .created = record.created,
                  .artifacts = {}};
  head.winner.best_path = record.launch_paths.best;
  const auto add = [&head](const RankedConfiguration& ranked) {
    const std::string& digest = ranked.artifact;
    if (digest.empty() || digest == head.winner.artifact) return;
    if (std::find(head.artifacts.begin(), head.artifacts.end(), digest) != head.artifacts.end()) {
      return;
    }
    head.artifacts.push_back(digest);
  };
  for (const RankedConfiguration& ranked : record.runners_up) add(ranked);
  if (record.baseline) add(*record.baseline);
  return head;
}

std::optional<HeadWinner> stand_in(const TuningRecord& record,
                                   const std::function<bool(const Choice&)>& fits) {
  for (const RankedConfiguration& ranked : record.runners_up) {
    if (!fits(ranked.choice)) continue;
    HeadWinner winner = winner_of(ranked, record.rounds);
    if (winner.choice.kernel_template != record.winner.choice.kernel_template) {
      winner.artifact.clear();
    }
    return winner;
  }
  return std::nullopt;
}

std::string encode_head(const RecordHead& head) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.integer(static_cast<std::uint8_t>(head.grade));
  writer.integer(static_cast<std::uint8_t>(head.trust));
  writer.text(head.key.problem);
  writer.text(head.key.target);
  writer.text(head.key.sku);
  writer.integer(static_cast<std::uint8_t>(head.key.policy.l2));
  writer.integer(kGraphLaunch);
  writer.integer(kSustainedPower);
  writer.text(head.environment.template_digest);
  writer.text(head.environment.compiler);
  writer.text(head.environment.driver);
  writer.text(head.environment.kernwright);
  writer.text(head.winner.choice.kernel_template);
  writer.integer(static_cast<std::uint32_t>(head.winner.choice.configuration.values().size()));
  for (const auto& [name, value] : head.winner.choice.configuration.values()) {
    writer.text(name);
    writer.integer(static_cast<std::uint64_t>(value));
  }
  writer.text(head.winner.artifact);
  writer.number(head.winner.measured_us);
  writer.number(head.winner.predicted_us);
  writer.number(head.roofline_us);
  writer.text(head.created);
  writer.integer(static_cast<std::uint32_t>(head.artifacts.size()));
  for (const std::string& digest : head.artifacts) writer.text(digest);
  writer.text(head.winner.best_path ? to_string(*head.winner.best_path) : "");
  return bytes;
}

Result<RecordHead> decode_head(std::string_view bytes) {
  RecordHead head;
  ByteReader reader(bytes);
  const auto grade = enumerator(reader.integer<std::uint8_t>(), RecordGrade::predicted);
  const auto trust = enumerator(reader.integer<std::uint8_t>(), Trust::c);
  head.key.problem = reader.text();
  head.key.target = reader.text();
  head.key.sku = reader.text();
  const auto l2 = enumerator(reader.integer<std::uint8_t>(), L2State::mixed);
  const bool launch = reader.integer<std::uint8_t>() == kGraphLaunch;
  const bool power = reader.integer<std::uint8_t>() == kSustainedPower;
  head.environment.template_digest = reader.text();
  head.environment.compiler = reader.text();
  head.environment.driver = reader.text();
  head.environment.kernwright = reader.text();
  head.winner.choice.kernel_template = reader.text();
  std::vector<std::pair<std::string, std::int64_t>> values;
  // The count comes from the file, so nothing is reserved for it before it is read.
  for (auto left = reader.integer<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    std::string name(reader.text());
    values.emplace_back(std::move(name),
                        static_cast<std::int64_t>(reader.integer<std::uint64_t>()));
  }
  head.winner.choice.configuration = Configuration(std::move(values));
  head.winner.artifact = reader.text();
  head.winner.measured_us = reader.number();
  head.winner.predicted_us = reader.number();
  head.roofline_us = reader.number();
  head.created = reader.text();
  for (auto left = reader.integer<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    head.artifacts.emplace_back(reader.text());
  }
  // Heads without a best path end here.
  if (reader.left() > 0) head.winner.best_path = parse_as<KernelPath>(reader.text());
  if (!reader.ok()) return Error{ErrorCode::corrupt, "record head: it ends before its fields do"};
  if (!grade || !trust) return Error{ErrorCode::corrupt, "record head: no such grade or trust"};
  if (!l2 || !launch || !power) {
    return Error{ErrorCode::corrupt, "record head: no such measure policy"};
  }
  head.grade = *grade;
  head.trust = *trust;
  head.key.policy = {*l2};
  return head;
}

}  // namespace kernwright
