// Events that a server sends, out of pieces as they come.
#pragma once

#include <string>
#include <string_view>

namespace gpt2c {

class EventReader {
public:
  /// Calls `take` with the data of each event that is whole by now.
  template <typename Take> void push(std::string_view piece, Take &&take) {
    if (!kept_.empty()) {
      kept_ += piece;
      piece = kept_;
    }
    for (size_t end; (end = piece.find("\n\n")) != piece.npos; piece.remove_prefix(end + 2)) {
      constexpr std::string_view data = "data: ";
      std::string_view event = piece.substr(0, end);
      if (event.starts_with(data))
        take(event.substr(data.size()));
    }
    kept_ = std::string(piece);
  }

private:
  std::string kept_;
};

} // namespace gpt2c
