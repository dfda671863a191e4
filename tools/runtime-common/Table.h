// Plain text tables and sizes for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c {

/// Columns as wide as their widest cell, two spaces apart, no trailing blanks.
class Table {
public:
  /// A title that starts with '>' gives a right-aligned column; the '>' is not printed.
  explicit Table(std::vector<std::string> titles);

  /// One cell for each title.
  void addRow(std::vector<std::string> cells);
  std::string text(unsigned indent = 2) const;
  /// To a stream of the standard library or of LLVM.
  template <typename Stream> void print(Stream &os, unsigned indent = 2) const {
    os << text(indent);
  }

private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_; ///< the titles first
};

/// "768 B", "1.5 KiB", "2.3 GiB".
std::string formatBytes(uint64_t bytes);
/// "48", "1.2 K", "3.4 G": powers of 1000.
std::string formatCount(uint64_t count);
/// `value` with so many digits behind the point.
std::string fixed(double value, int digits);
/// `text` without control characters, which a file may hold to confuse a terminal.
std::string printable(std::string_view text);

} // namespace gpt2c
