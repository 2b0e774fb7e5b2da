#include "model/result/match_names.h"

namespace kernwright {

std::string_view to_string(Match match) { return to_string<Match>(match); }

std::string_view to_string(MissReason reason) { return to_string<MissReason>(reason); }

}  // namespace kernwright
