#include "tools/common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Unicode.h"

#include <cassert>

namespace gpt2c {

Table::Table(std::vector<std::string> titles) {
  for (std::string &title : titles) {
    right_.push_back(llvm::StringRef(title).starts_with(">"));
    if (right_.back())
      title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::addRow(std::vector<std::string> cells) {
  assert(cells.size() == right_.size() && "one cell for each column");
  rows_.push_back(std::move(cells));
}

/// Columns `text` takes on a terminal; its bytes when that cannot be said.
static size_t widthOf(llvm::StringRef text) {
  int width = llvm::sys::unicode::columnWidthUTF8(text);
  return width < 0 ? text.size() : size_t(width);
}

void Table::print(llvm::raw_ostream &os, unsigned indent) const {
  std::vector<size_t> widths(right_.size());
  for (const std::vector<std::string> &row : rows_)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], widthOf(row[i]));
  for (const std::vector<std::string> &row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      std::string padding(widths[i] - widthOf(row[i]), ' ');
      line += (i ? "  " : "") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    os << llvm::StringRef(line).rtrim() << '\n';
  }
}

static std::string scaled(uint64_t value, double base, llvm::ArrayRef<const char *> units) {
  double number = double(value);
  size_t unit = 0;
  while (number >= base && unit + 1 < units.size()) {
    number /= base;
    ++unit;
  }
  std::string out;
  llvm::raw_string_ostream os(out);
  if (unit == 0)
    os << value;
  else
    os << llvm::format("%.1f", number);
  if (*units[unit])
    os << ' ' << units[unit];
  return out;
}

std::string formatBytes(uint64_t bytes) {
  return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string formatCount(uint64_t count) {
  return scaled(count, 1000, {"", "K", "M", "G", "T", "P"});
}

std::string printable(llvm::StringRef text) {
  std::string out = text.str();
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return out;
}

} // namespace gpt2c
