// Calls over rows of several sequences, measured one by one.
#pragma once

#include "tools/gpt2c-bench/Output.h"

namespace gpt2c {

/// New tokens of `sequences`, `tokens` of each, behind `past` others.
struct RowsGroup {
  int sequences = 1, tokens = 1, past = 0;
};

/// What one call of @extend is over.
struct RowsCase {
  std::string text; ///< as it was given
  std::vector<RowsGroup> groups;
  int sequences() const;
  int rows() const;
  /// Tokens that its sequences have behind them, together.
  int64_t past() const;
  /// Whether @decode computes the same: a token of each sequence, all behind as many others.
  bool isDecode() const;
};

/// "3x128": three sequences of 128 new tokens; "32x1@512": 32 of one token, with 512 in their
/// pages; groups joined by '+' are in one call.
rt::Result<RowsCase> parseRowsCase(std::string_view text);

/// Times in milliseconds.
struct RowsRow {
  RowsCase what;
  Quantiles wall;    ///< of a call that is waited for, by the host's clock
  double behind = 0; ///< of a call in a row of them, each begun before the one before is read
  double device = 0; ///< median by the device's own clock; 0 where it has none
  /// Of the same step of @decode, whose state has a place for each sequence, medians; 0: no such.
  double decode = 0;      ///< a step that is waited for
  double decodeSteps = 0; ///< one of RowsResults::steps, which the device has at once
};

struct RowsResults {
  static constexpr int steps = 32;
  std::string plan, precision, device;
  int repetitions = 0;
  std::vector<RowsRow> rows;
  Peak peak;                     ///< measured for profiles alone
  std::vector<Profile> profiles; ///< empty unless asked for
};

struct RowsOptions {
  int repetitions = 10;
  rt::SamplingParams sampling;
  bool profile = false; ///< also time the steps of each call
};

/// Usage, where the device does not make choices that are not greedy; Unsupported, where it does
/// not time steps and shall.
rt::Result<RowsResults> measureRows(rt::Session &session, std::span<const RowsCase> cases,
                                    const RowsOptions &options);
void writeMarkdown(const RowsResults &results, std::ostream &os);
void writeCsv(const RowsResults &results, std::ostream &os);
Json jsonOf(const RowsResults &results);

} // namespace gpt2c
