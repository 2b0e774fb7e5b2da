#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/files/embedded_files.h"
#include <kernwright/result.h>

namespace kernwright {

/// src/service/report/page/: the parts of the page, sorted by path.
std::span<const EmbeddedFile> embedded_report_page();

/// Returns one HTML file that needs no other and no network, and allows no requests: its policy
/// allows its own script and style alone, by their digests. `json` is the data that it shows, made
/// by `report_json`; nothing in it can end the element that it is in.
std::string report_page(std::string_view title, std::string_view json);

/// Returns the data of a page that `report_page` made, as the page has it. Errors: `corrupt`.
Result<std::string> report_data_of(std::string_view page);

}  // namespace kernwright
