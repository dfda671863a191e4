#include "tools/runtime-common/Table.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <span>

#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <locale.h>

namespace gpt2c {

Table::Table(std::vector<std::string> titles) {
  for (std::string &title : titles) {
    right_.push_back(title.starts_with(">"));
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
static size_t widthOf(const std::string &text) {
  if (std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; }))
    return text.size();
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!utf8)
    return text.size();
  const locale_t before = uselocale(utf8);
  std::wstring wide(text.size(), L'\0');
  const size_t characters = std::mbstowcs(wide.data(), text.c_str(), wide.size());
  const int width =
      characters == size_t(-1) ? -1 : wcswidth(wide.data(), std::min(characters, wide.size()));
  uselocale(before);
  return width < 0 ? text.size() : size_t(width);
}

std::string Table::text(unsigned indent) const {
  std::string out;
  std::vector<size_t> widths(right_.size());
  for (const std::vector<std::string> &row : rows_)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], widthOf(row[i]));
  for (const std::vector<std::string> &row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - widthOf(row[i]), ' ');
      line += (i ? "  " : "") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[400];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

static std::string scaled(uint64_t value, double base, std::span<const char *const> units) {
  double number = double(value);
  size_t unit = 0;
  while (number >= base && unit + 1 < units.size()) {
    number /= base;
    ++unit;
  }
  const std::string text = unit == 0 ? std::to_string(value) : fixed(number, 1);
  return text + (*units[unit] ? " " : "") + units[unit];
}

std::string formatBytes(uint64_t bytes) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, units);
}

std::string formatCount(uint64_t count) {
  constexpr const char *units[] = {"", "K", "M", "G", "T", "P"};
  return scaled(count, 1000, units);
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return out;
}

} // namespace gpt2c
