#include "runtime/text/tokenizer/Charsmap.h"

#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <cstring>

namespace gpt2c::rt {
namespace {

// A unit of the double array: 8 bits of label, whether a value follows, the offset to its children.
// A value's unit has its highest bit set.
constexpr std::uint32_t kValueBit = 1u << 31;
bool hasValue(std::uint32_t unit) { return unit >> 8 & 1; }
std::uint32_t label(std::uint32_t unit) { return unit & (kValueBit | 0xFF); }
std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

constexpr std::size_t kLongestCluster = 5; // bytes that are looked up together

} // namespace

Result<Charsmap> Charsmap::parse(std::string_view table) {
  std::uint32_t bytes = 0;
  if (table.size() >= sizeof(bytes))
    std::memcpy(&bytes, table.data(), sizeof(bytes));
  if (bytes == 0 || bytes % 4 || bytes > table.size() - sizeof(bytes))
    return {Code::Unsupported, "the table of normalised characters is damaged"};
  Charsmap map;
  map.units_.resize(bytes / 4);
  std::memcpy(map.units_.data(), table.data() + sizeof(bytes), bytes);
  map.texts_ = table.substr(sizeof(bytes) + bytes);
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view chunk, bool longest) const {
  std::optional<Match> best;
  std::size_t node = offset(units_[0]);
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    node ^= std::uint8_t(chunk[i]);
    if (chunk[i] == 0 || node >= units_.size() || label(units_[node]) != std::uint8_t(chunk[i]))
      return best;
    const std::uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!hasValue(unit))
      continue;
    const std::size_t text = node < units_.size() ? units_[node] & ~kValueBit : texts_.size();
    if (text >= texts_.size())
      return best;
    best = {i + 1, std::string_view(texts_).substr(text, std::strlen(texts_.c_str() + text))};
    if (!longest)
      return best;
  }
  return best;
}

std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view cluster = text.substr(at, graphemeLength(text.substr(at)));
    at += cluster.size();
    if (cluster.size() <= kLongestCluster)
      if (auto match = find(cluster, false)) {
        out += match->text;
        continue;
      }
    for (std::size_t i = 0; i < cluster.size();) {
      const std::string_view character = cluster.substr(i, codePointAt(cluster, i).length);
      auto match = find(character, false);
      out += match ? match->text : character;
      i += character.size();
    }
  }
  return out;
}

std::string Charsmap::applyLongest(std::string_view text) const {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    auto match = find(text.substr(at), true);
    const std::size_t length = match ? match->length : codePointAt(text, at).length;
    out += match ? match->text : text.substr(at, length);
    at += length;
  }
  return out;
}

} // namespace gpt2c::rt
