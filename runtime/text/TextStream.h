// The text of an answer as it grows: whole characters, ended by stop strings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// Takes the bytes of token after token and hands out what can be shown. Bytes that may still
/// become part of a stop string or complete a character are held back, so no stop string is ever
/// shown in part. All pieces together are the bytes given, cut where the first stop string begins.
class TextStream {
public:
  /// Empty stop strings are left out.
  explicit TextStream(std::vector<std::string> stops = {});

  /// What can be shown after these bytes, possibly nothing. Nothing more comes once stopped()
  /// holds. Without `mayStop` no stop string has a part in them.
  std::string push(std::string_view bytes, bool mayStop = true);

  /// The bytes held back, for an answer that ended without a stop string.
  std::string finish();

  bool stopped() const { return stop_ >= 0; }
  /// Which of the constructor's strings ended the answer, -1: none did.
  int stopIndex() const { return stop_; }

private:
  /// Bytes at the end of `held_` that could be the beginning of a stop string.
  std::size_t possibleStop() const;

  std::vector<std::string> stops_;
  std::string held_;
  int stop_ = -1;
};

} // namespace gpt2c::rt
