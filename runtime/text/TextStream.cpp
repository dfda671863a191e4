#include "runtime/text/TextStream.h"

#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt {

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::size_t TextStream::possibleStop() const {
  std::size_t longest = 0;
  for (const std::string &stop : stops_) {
    std::size_t most = std::min(stop.size(), held_.size() + 1);
    for (std::size_t n = longest + 1; n < most; ++n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0)
        longest = n;
  }
  return longest;
}

std::string TextStream::push(std::string_view bytes, bool mayStop) {
  if (stopped())
    return {};
  held_ += bytes;
  std::size_t begin = std::string::npos;
  for (std::size_t i = 0; mayStop && i < stops_.size(); ++i) {
    std::size_t at = stops_[i].empty() ? std::string::npos : held_.find(stops_[i]);
    if (at < begin) {
      begin = at;
      stop_ = int(i);
    }
  }
  if (stopped()) {
    held_.resize(begin);
    return finish();
  }
  std::size_t ready = held_.size() - (mayStop ? possibleStop() : 0);
  ready -= utf8IncompleteTail(std::string_view(held_).substr(0, ready));
  std::string out = held_.substr(0, ready);
  held_.erase(0, ready);
  return out;
}

std::string TextStream::finish() { return std::exchange(held_, {}); }

} // namespace gpt2c::rt
