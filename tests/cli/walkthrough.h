#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/files/embedded_files.h"
#include "tests/cli/run_program.h"

namespace kernwright {

/// Every README.md below templates/, by its path there; embedded when this program is built.
std::span<const EmbeddedFile> embedded_readmes();

/// The page that walks through a template of one's own, in the same way.
std::span<const EmbeddedFile> embedded_pages();

/// The parts of that page that a reader copies: files by their path as written, and the lines for a
/// shell.
struct Walkthrough {
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> commands;
};

/// Takes fenced blocks: one whose last line of text before it is a path in backquotes is that file,
/// the first of language console holds the commands for the template as it stands. A later one
/// breaks it to show a defect; tests/build/snippets_test.py runs that too.
inline Walkthrough read_walkthrough() {
  EXPECT_EQ(embedded_pages().size(), 1U);
  std::string_view text = embedded_pages()[0].content;
  constexpr std::string_view kFence = "```";
  constexpr std::string_view kPrompt = "$ ";
  Walkthrough found;
  std::string before;
  std::string block;
  std::string language;
  bool inside = false;
  int consoles = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!line.starts_with(kFence)) {
      if (inside) {
        block += std::string(line) + "\n";
        if (consoles == 1 && language == "console" && line.starts_with(kPrompt)) {
          found.commands.emplace_back(line.substr(kPrompt.size()));
        }
      } else if (!line.empty()) {
        before = line;
      }
    } else if (inside) {
      if (before.starts_with("`~/") && before.ends_with('`')) {
        found.files.emplace_back(before.substr(1, before.size() - 2), block);
      }
      inside = false;
      before.clear();
    } else {
      inside = true;
      language = line.substr(kFence.size());
      if (language == "console") ++consoles;
      block.clear();
    }
  }
  return found;
}

/// Writes the walk-through's files, whose `~` is the home of the programs that the test starts.
template <typename Base>
class WalkthroughFixture : public Base {
 protected:
  void SetUp() override {
    Base::SetUp();
    if (this->IsSkipped()) return;
    ASSERT_EQ(walkthrough_.files.size(), 4U);
    for (const auto& [path, text] : walkthrough_.files) this->write("home" + path.substr(1), text);
  }

  std::string templates() const { return (this->home() / "my_templates").string(); }

  /// Replaces `from`, which must be there, in a file of the walk-through.
  void edit(const std::string& file, std::string_view from, std::string_view to) {
    const std::string path = "home/my_templates/scaled_add/" + file;
    std::string text = this->content(this->dir_ / path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    this->write(path, text.replace(at, from.size(), to));
  }

  Walkthrough walkthrough_ = read_walkthrough();
};

}  // namespace kernwright
