#include "model/operation/draw.h"

namespace kernwright {

std::string_view to_string(DrawKind kind) {
  switch (kind) {
    case DrawKind::normal:
      return "normal";
    case DrawKind::small_integers:
      return "small_integers";
    case DrawKind::signs:
      return "signs";
    case DrawKind::uniform:
      return "uniform";
    case DrawKind::permutation:
      return "permutation";
    case DrawKind::offsets:
      return "offsets";
    case DrawKind::constant:
      return "constant";
    case DrawKind::kernel:
      return "kernel";
  }
  return "";
}

}  // namespace kernwright
