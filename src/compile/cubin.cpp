#include "compile/cubin.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kInstructionBytes = 16;

// The opcodes as seen in cubins of ptxas 13.0. An instruction may have two encodings, for different
// kinds of operands.
struct Opcode {
  std::uint16_t code;
  std::string_view name;
};
constexpr Opcode kOpcodes[] = {
    {0x9f0, "HGMMA"},   {0xdf0, "HGMMA"},      {0x9f3, "QGMMA"},   {0x23c, "HMMA"},
    {0x9c5, "DEPBAR"},  {0x9c8, "USETMAXREG"}, {0x5b4, "UTMALDG"}, {0x3b4, "UTMALDG.MULTICAST"},
    {0x3b5, "UTMASTG"}, {0x3b6, "UTMAREDG"},   {0x3ba, "UBLKCP"},  {0x844, "STSM"},
    {0x83b, "LDSM"},    {0xfae, "LDGSTS"},     {0x983, "LDL"},     {0x387, "STL"},
    {0x2ca, "R2UR"},    {0x944, "CALL"},       {0x943, "CALL"},    {0x981, "LDG"},
    {0x986, "STG"},     {0x82d, "PREEXIT"},    {0x82e, "ACQBULK"}, {0x98f, "CCTL"},
    {0x308, "MUFU"},    {0x9f1, "IGMMA"},      {0x237, "IMMA"},
};

std::string_view opcode_name(std::uint16_t code) {
  for (const Opcode& opcode : kOpcodes) {
    if (opcode.code == code) return opcode.name;
  }
  return {};
}

/// Returns the T at `offset` of `bytes`; nullopt if it is not within them.
template <typename T>
std::optional<T> load(std::string_view bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Offsets in a 64-bit little-endian ELF file; all cubins are such files.
constexpr std::uint64_t kSectionTableOffset = 0x28;
constexpr std::uint64_t kSectionCounts = 0x3a;  // entry size, entries, index of the name table
struct SectionHeader {
  std::uint32_t name;
  std::uint32_t type;
  std::uint64_t flags;
  std::uint64_t address;
  std::uint64_t offset;
  std::uint64_t size;
};

Error corrupt(std::string_view what) { return Error{ErrorCode::corrupt, concat("cubin: ", what)}; }

std::optional<std::string_view> section_bytes(std::string_view cubin,
                                              const SectionHeader& section) {
  if (section.offset > cubin.size() || section.size > cubin.size() - section.offset) {
    return std::nullopt;
  }
  return cubin.substr(section.offset, section.size);
}

InstructionCounts count(std::string kernel, std::string_view text) {
  InstructionCounts counts;
  counts.kernel = std::move(kernel);
  for (std::size_t at = 0; at + kInstructionBytes <= text.size(); at += kInstructionBytes) {
    const std::uint16_t code = *load<std::uint16_t>(text, at) & 0xfff;
    if (const std::string_view name = opcode_name(code); !name.empty()) {
      ++counts.by_name[std::string(name)];
      counts.first.emplace(name, counts.total);
      counts.order.push_back(name);
    }
    ++counts.total;
  }
  return counts;
}

/// Calls `visit` with the rest of the name and the bytes of each section whose name begins with
/// `prefix`; false from it means that they cannot be read.
template <typename Visit>
Result<void> visit_sections(std::string_view cubin, std::string_view prefix, const Visit& visit) {
  if (!cubin.starts_with(std::string_view("\x7f"
                                          "ELF\x02\x01",
                                          6))) {
    return corrupt("no 64-bit little-endian ELF file");
  }
  const auto table = load<std::uint64_t>(cubin, kSectionTableOffset);
  const auto numbers = load<std::array<std::uint16_t, 3>>(cubin, kSectionCounts);
  if (!table || !numbers) return corrupt("truncated ELF header");
  if (*table > cubin.size()) return corrupt("section table is beyond the end");
  const std::uint64_t entry_bytes = numbers->at(0);
  const std::uint16_t entries = numbers->at(1);
  const std::uint16_t names_index = numbers->at(2);
  const auto section = [&](std::uint64_t index) {
    return load<SectionHeader>(cubin, *table + index * entry_bytes);
  };

  const auto names_section = section(names_index);
  const auto names = names_section ? section_bytes(cubin, *names_section) : std::nullopt;
  if (!names) return corrupt("section names are beyond the end");
  for (std::uint16_t index = 0; index < entries; ++index) {
    const auto header = section(index);
    if (!header || header->name >= names->size()) {
      return corrupt(concat("section ", index, " is beyond the end"));
    }
    std::string_view name = names->substr(header->name);
    name = name.substr(0, name.find('\0'));
    if (!name.starts_with(prefix)) continue;
    const auto bytes = section_bytes(cubin, *header);
    if (!bytes) return corrupt(concat("section ", name, " is beyond the end"));
    if (!visit(name.substr(prefix.size()), *bytes)) {
      return corrupt(concat("section ", name, " cannot be read"));
    }
  }
  return {};
}

// Attributes of a `.nv.info.` section, as cubins of ptxas 11.8 to 13.0 have them. Each begins with
// its format and its code, in a byte each. In the format of sized values two bytes of their size
// and the value follow, in the others two bytes of value.
constexpr std::uint8_t kSizedValue = 4;
constexpr std::uint8_t kMaxThreads = 0x05;
constexpr std::uint8_t kRequiredThreads = 0x10;
constexpr std::uint8_t kParameter = 0x17;
constexpr std::uint8_t kParametersSize = 0x19;

struct ParameterInfo {
  std::uint32_t index;
  std::uint16_t ordinal;
  std::uint16_t offset;
  std::uint32_t flags;  ///< the bytes are above the low 18 bits
};

/// Returns nullopt if the section is cut off, or if parameters are missing.
std::optional<KernelInterface> read_interface(std::string_view kernel, std::string_view info) {
  KernelInterface read{.kernel = std::string(kernel), .parameter_bytes = {}};
  std::size_t parameters = 0;
  std::size_t end = 0;       // of the last parameter
  std::size_t declared = 0;  // bytes of all parameters
  for (std::size_t at = 0; at < info.size();) {
    const auto head = load<std::array<std::uint8_t, 2>>(info, at);
    const auto value = load<std::uint16_t>(info, at + 2);
    if (!head || !value) return std::nullopt;
    const auto [format, code] = *head;
    at += 4;
    if (format != kSizedValue) {
      if (code == kParametersSize) declared = *value;
      continue;
    }
    if (code == kParameter) {
      const auto parameter = load<ParameterInfo>(info, at);
      if (!parameter || *value != sizeof(ParameterInfo)) return std::nullopt;
      const std::size_t bytes = parameter->flags >> 18;
      if (read.parameter_bytes.size() <= parameter->ordinal) {
        read.parameter_bytes.resize(parameter->ordinal + std::size_t{1});
      }
      read.parameter_bytes[parameter->ordinal] = bytes;
      end = std::max(end, parameter->offset + bytes);
      ++parameters;
    } else if (code == kMaxThreads || code == kRequiredThreads) {
      const auto extent = load<std::array<std::uint32_t, 3>>(info, at);
      if (!extent) return std::nullopt;
      read.max_threads = std::int64_t{extent->at(0)} * extent->at(1) * extent->at(2);
    }
    at += *value;
  }
  if (parameters != read.parameter_bytes.size() || end != declared) return std::nullopt;
  return read;
}

}  // namespace

int InstructionCounts::count(std::string_view name) const {
  const auto found = by_name.find(std::string(name));
  return found == by_name.end() ? 0 : found->second;
}

Result<std::vector<InstructionCounts>> count_instructions(std::string_view cubin) {
  std::vector<InstructionCounts> result;
  KW_TRY(visit_sections(cubin, ".text.", [&](std::string_view kernel, std::string_view text) {
    result.push_back(kernwright::count(std::string(kernel), text));
    return true;
  }));
  return result;
}

Result<std::vector<KernelInterface>> kernel_interfaces(std::string_view cubin) {
  std::vector<KernelInterface> result;
  KW_TRY(visit_sections(cubin, ".nv.info.", [&](std::string_view kernel, std::string_view info) {
    std::optional<KernelInterface> read = read_interface(kernel, info);
    if (!read) return false;
    result.push_back(*std::move(read));
    return true;
  }));
  return result;
}

}  // namespace kernwright
