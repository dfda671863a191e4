// What each fusion buys: one model compiled with more and more of them, and measured.
#pragma once

#include "ir/DType.h"
#include "tools/gpt2c-bench/Measure.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

enum class Format { Markdown, Csv, Json };

/// One prefill or one decode step as the plan does it.
struct AblatedStep {
  int64_t launches = 0;    ///< 1 for one kernel that does many steps
  double bytes = 0;        ///< the fewest its launches read and write
  double milliseconds = 0; ///< median; the device's clock where it has one
};

struct Ablation {
  std::string what; ///< "-O0", then "+ fuse-kv": all before and this one
  AblatedStep prefill, decode;
  /// Without a KV state a decode step runs the whole graph over all tokens so far.
  bool hasKvState = false;
};

struct AblationResult {
  std::vector<Ablation> rows;
  /// Fusions that change nothing in this model or on this device.
  std::vector<std::string> withoutEffect;
};

struct AblateOptions {
  std::string model;
  DType precision = DType::F16;
  int prompt = 512, depth = 512, decodeTokens = 64, repetitions = 10;
  std::function<void(const std::string &)> progress;
  std::function<void(const Ablation &)> measured; ///< called with each row as it is known
};

llvm::Expected<AblationResult> ablate(const AblateOptions &options);

/// A row of the table or of the CSV file, with the titles above the first.
void printRow(const Ablation &row, bool first, Format format, llvm::raw_ostream &os);
/// What belongs below the rows; as JSON all of it.
void printRest(const AblationResult &result, const AblateOptions &options, Format format,
               llvm::raw_ostream &os);
/// The times as bars.
void writeSvg(llvm::ArrayRef<Ablation> rows, const AblateOptions &options, llvm::raw_ostream &os);

} // namespace gpt2c
