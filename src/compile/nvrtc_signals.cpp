#include "compile/nvrtc_signals.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace kernwright {
namespace {

using Handler = void (*)(int);

Handler say_ignored(int /*signal*/, Handler /*handler*/) { return SIG_IGN; }

/// The tables by which the loader binds a library's calls.
struct Bindings {
  const ElfW(Rela) * calls = nullptr;
  std::size_t bytes = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;

  explicit Bindings(const link_map& library) {
    for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;  // the loader has made them addresses
      if (entry->d_tag == DT_JMPREL) calls = reinterpret_cast<const ElfW(Rela)*>(value);
      if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(value);
      if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(value);
    }
  }
  bool complete() const { return calls != nullptr && symbols != nullptr && names != nullptr; }
};

/// Makes the page of `place` writable; a library may be bound at once and then closed.
bool open_page(void* place) {
  const auto size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(place) / size * size;
  return ::mprotect(reinterpret_cast<void*>(page), size, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

void keep_signals_from_nvrtc(const void* function) {
  Dl_info info{};
  link_map* library = nullptr;
  if (::dladdr1(function, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 ||
      library == nullptr) {
    return;
  }
  const Bindings bindings(*library);
  if (!bindings.complete()) return;
  for (std::size_t i = 0; i < bindings.bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& call = bindings.calls[i];
    const ElfW(Sym)& symbol = bindings.symbols[ELF64_R_SYM(call.r_info)];
    if (std::string_view(bindings.names + symbol.st_name) != "signal") continue;
    auto* place = reinterpret_cast<Handler (**)(int, Handler)>(library->l_addr + call.r_offset);
    if (open_page(static_cast<void*>(place))) std::atomic_ref(*place).store(say_ignored);
  }
}

}  // namespace kernwright
