#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// Counts of some machine instructions of a kernel, which show how it was compiled. They are
/// recognised by the low 12 bits of each 16-byte instruction (sm_70 and newer).
struct InstructionCounts {
  std::string kernel;
  int total = 0;
  std::map<std::string, int> by_name;   ///< "HGMMA", "HMMA", "LDL", "STL", "UTMALDG", ...
  std::map<std::string, int> first;     ///< place of the first of each name
  std::vector<std::string_view> order;  ///< names of all instructions that have one; static storage

  int count(std::string_view name) const;
};

/// Counts the instructions in each `.text.*` section of a cubin. Errors: `corrupt` if it is not an
/// ELF file.
Result<std::vector<InstructionCounts>> count_instructions(std::string_view cubin);

/// The launch interface of a kernel, as its cubin declares it.
struct KernelInterface {
  std::string kernel;
  std::vector<std::size_t> parameter_bytes;  ///< of each parameter, in order
  std::int64_t max_threads = 0;              ///< per block, by its launch bounds; 0: not bounded
};

/// Reads the `.nv.info.*` section of each kernel of a cubin. Errors: `corrupt` if it is not an ELF
/// file, or if a section is cut off or does not have all parameters.
Result<std::vector<KernelInterface>> kernel_interfaces(std::string_view cubin);

}  // namespace kernwright
