// A table as Markdown and as CSV.
#pragma once

#include "tools/runtime-common/Table.h"

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt2c {

/// Rows of cells under titles; a title that starts with '>' gives a right-aligned column.
struct Sheet {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;

  void markdown(std::ostream &os) const {
    auto line = [&](auto &&cells, auto &&show) {
      os << "|";
      for (const std::string &cell : cells)
        os << " " << show(cell) << " |";
      os << "\n";
    };
    line(titles, plain);
    line(titles, [](std::string_view title) { return title.starts_with(">") ? "---:" : "---"; });
    for (const auto &row : rows)
      line(row, [](std::string_view cell) { return cell; });
  }

  void csv(std::ostream &os) const {
    auto line = [&](auto &&cells) {
      const char *before = "";
      for (const std::string &cell : cells)
        os << std::exchange(before, ",") << quoted(plain(cell));
      os << "\n";
    };
    line(titles);
    for (const auto &row : rows)
      line(row);
  }

private:
  /// A title without the mark of its side.
  static std::string_view plain(std::string_view cell) {
    return cell.substr(cell.starts_with('>'));
  }
  static std::string quoted(std::string_view cell) {
    if (cell.find_first_of(",\"\n") == std::string_view::npos)
      return std::string(cell);
    std::string out = "\"";
    for (char c : cell)
      out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
  }
};

/// A cell that may have no value.
inline std::string unless(bool absent, const std::string &text) { return absent ? "-" : text; }
inline std::string percent(double part, double whole) {
  return unless(whole <= 0, fixed(100 * part / whole, 1));
}

} // namespace gpt2c
