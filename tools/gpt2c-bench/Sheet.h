// A table as Markdown and as CSV.
#pragma once

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Rows of cells under titles; a title that starts with '>' gives a right-aligned column.
struct Sheet {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;

  void markdown(llvm::raw_ostream &os) const {
    auto line = [&](auto &&cells, auto &&show) {
      os << "|";
      for (const std::string &cell : cells)
        os << " " << show(cell) << " |";
      os << "\n";
    };
    line(titles, [](llvm::StringRef title) { return title.ltrim('>'); });
    line(titles, [](llvm::StringRef title) { return title.starts_with(">") ? "---:" : "---"; });
    for (const auto &row : rows)
      line(row, [](llvm::StringRef cell) { return cell; });
  }

  void csv(llvm::raw_ostream &os) const {
    auto line = [&](auto &&cells) {
      for (auto [i, cell] : llvm::enumerate(cells))
        os << (i ? "," : "") << quoted(llvm::StringRef(cell).ltrim('>'));
      os << "\n";
    };
    line(titles);
    for (const auto &row : rows)
      line(row);
  }

private:
  static std::string quoted(llvm::StringRef cell) {
    if (cell.find_first_of(",\"\n") == llvm::StringRef::npos)
      return cell.str();
    std::string out = "\"";
    for (char c : cell)
      out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
  }
};

/// `style` as llvm::formatv takes it: "{0:f4}".
inline std::string number(double v, const char *style) { return llvm::formatv(style, v).str(); }
/// A cell that may have no value.
inline std::string unless(bool absent, const std::string &text) { return absent ? "-" : text; }
inline std::string percent(double part, double whole) {
  return unless(whole <= 0, number(100 * part / whole, "{0:f1}"));
}

} // namespace gpt2c
