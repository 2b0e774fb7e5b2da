#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/files/embedded_files.h"
#include <kernwright/result.h>

namespace kernwright {

/// src/service/report/page/: the parts of the page, sorted by path.
std::span<const EmbeddedFile> embedded_report_page();

/// One HTML file that needs no other and no network, and lets none be asked for: its policy allows
/// its own script and style alone, by their digests. `json` is the data that it shows, which
/// `report_json` made; nothing in it can end the element that it stands in.
std::string report_page(std::string_view title, std::string_view json);

/// The data of a page that `report_page` made, as it stands there. Errors: `corrupt`.
Result<std::string> report_data_of(std::string_view page);

}  // namespace kernwright
