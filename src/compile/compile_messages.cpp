#include "compile/compile_messages.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "support/bytes.h"
#include "support/text.h"
#include "support/version.h"

namespace kernwright::detail {
namespace {

using Count = std::uint32_t;
using Code = std::uint8_t;
constexpr Code kNoError = 0xff;

void write(ByteWriter& out, const std::vector<std::string>& texts) {
  out.integer(static_cast<Count>(texts.size()));
  for (const std::string& text : texts) out.text(text);
}

/// Reads a count, then calls `read` that many times or until the bytes end.
template <typename Read>
void read_each(ByteReader& in, const Read& read) {
  for (Count left = in.integer<Count>(); left > 0 && in.ok(); --left) read();
}

std::vector<std::string> read_texts(ByteReader& in) {
  std::vector<std::string> texts;
  read_each(in, [&] { texts.emplace_back(in.text()); });
  return texts;
}

OutputKind read_output(ByteReader& in) {
  return in.integer<Code>() == 0 ? OutputKind::cubin : OutputKind::lto_ir;
}

bool is_whole(const ByteReader& in) { return in.ok() && in.left() == 0; }

Error cut_off(std::string_view what) {
  return {ErrorCode::corrupt, concat(what, " of a compile process is cut off or too long")};
}

void write(ByteWriter& out, const Resources& resources) {
  for (const int value :
       {resources.registers, resources.spill_store_bytes, resources.spill_load_bytes,
        resources.stack_bytes, resources.static_smem_bytes, resources.barriers}) {
    out.integer(static_cast<Count>(value));
  }
}

Resources read_resources(ByteReader& in) {
  Resources resources;
  for (int* value :
       {&resources.registers, &resources.spill_store_bytes, &resources.spill_load_bytes,
        &resources.stack_bytes, &resources.static_smem_bytes, &resources.barriers}) {
    *value = static_cast<int>(in.integer<Count>());
  }
  return resources;
}

}  // namespace

std::string compile_greeting() {
  return concat("kernwright ", kernwright_version(), ' ', kernwright_commit());
}

std::string encode(const CompileOrder& order) {
  std::string bytes;
  ByteWriter out(bytes);
  const CompileRequest& request = order.request;
  out.text(order.files.nvrtc);
  out.text(order.files.nvjitlink);
  out.text(request.name);
  out.text(request.source);
  out.integer(static_cast<Count>(request.headers.size()));
  for (const auto& [name, text] : request.headers) {
    out.text(name);
    out.text(text);
  }
  write(out, request.options);
  out.text(request.target);
  out.integer(static_cast<Code>(request.output));
  out.integer(static_cast<Count>(request.linked.size()));
  for (const LinkedInput& input : request.linked) {
    out.text(input.name);
    out.text(input.lto_ir);
  }
  return bytes;
}

Result<CompileOrder> decode_order(std::string_view bytes) {
  ByteReader in(bytes);
  CompileOrder order;
  CompileRequest& request = order.request;
  order.files.nvrtc = in.text();
  order.files.nvjitlink = in.text();
  request.name = in.text();
  request.source = in.text();
  read_each(in, [&] {
    auto& [name, text] = request.headers.emplace_back();
    name = in.text();
    text = in.text();
  });
  request.options = read_texts(in);
  request.target = in.text();
  request.output = read_output(in);
  read_each(in, [&] {
    LinkedInput& input = request.linked.emplace_back();
    input.name = in.text();
    input.lto_ir = in.text();
  });
  if (!is_whole(in)) return cut_off("an order");
  return order;
}

std::string encode(const Result<CompiledKernel>& answer) {
  std::string bytes;
  ByteWriter out(bytes);
  if (!answer) {
    out.integer(static_cast<Code>(answer.error().code));
    out.text(answer.error().message);
    return bytes;
  }
  const CompiledKernel& kernel = *answer;
  out.integer(kNoError);
  out.text(kernel.bits);
  out.integer(static_cast<Code>(kernel.output));
  out.text(kernel.target);
  out.integer(static_cast<Count>(kernel.entries.size()));
  for (const KernelEntry& entry : kernel.entries) {
    out.text(entry.name);
    write(out, entry.resources);
  }
  write(out, kernel.warnings);
  out.text(kernel.log);
  out.number(kernel.seconds);
  return bytes;
}

Result<CompiledKernel> decode_answer(std::string_view bytes) {
  ByteReader in(bytes);
  const Code code = in.integer<Code>();
  if (code != kNoError) {
    std::string message(in.text());
    if (!is_whole(in) || code > static_cast<Code>(ErrorCode::internal)) return cut_off("an answer");
    return Error{static_cast<ErrorCode>(code), std::move(message)};
  }
  CompiledKernel kernel;
  kernel.bits = in.text();
  kernel.output = read_output(in);
  kernel.target = in.text();
  read_each(in, [&] {
    KernelEntry& entry = kernel.entries.emplace_back();
    entry.name = in.text();
    entry.resources = read_resources(in);
  });
  kernel.warnings = read_texts(in);
  kernel.log = in.text();
  kernel.seconds = in.number();
  if (!is_whole(in)) return cut_off("an answer");
  return kernel;
}

}  // namespace kernwright::detail
