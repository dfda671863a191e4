// Statistics of activations over a calibration text, and the scales they give.
#pragma once

#include "ir/Tensor.h"
#include "passes/quantize/InputProducts.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpt2c {

/// How a static range is chosen.
struct Observer {
  enum Kind : uint8_t {
    MinMax,     // the largest magnitude
    Percentile, // a magnitude that the given share of elements does not exceed
    Mse,        // the range with the least mean squared error after quantisation
  } kind = MinMax;
  double percentile = 99.99;
};

/// The input of one product with weights.
///
/// The first token of a window attracts attention and has magnitudes of its own, often a hundred
/// times those of the others. Its rows count for `largest` and `channelMax`, but not for squares
/// and the histogram: percentile and MSE ranges are made for the rest, and the first token is
/// clipped. They count for `products`: all other tokens see what weights make of the first.
class ActivationStats {
public:
  int64_t rows = 0, channels = 0;
  float largest = 0;             // max |x|
  std::vector<float> channelMax; // max |x_j| for each column
  /// The sum of x_j^2 for each column, but of the first token of a window; empty where statistics
  /// were saved without.
  std::vector<double> channelSquares;
  /// The sums of x_i x_j over all rows, which layers with the same input share; null: they were
  /// not asked for. Files hold none.
  std::shared_ptr<InputProducts> products;
  /// Since then each column was divided by its factor; empty: none was.
  std::vector<float> divisors;
  std::vector<float> sample; // some rows, one after the other

  /// Takes in `count` rows, but for their products. Every `sampleEvery`th row over all calls is
  /// kept; 0: none.
  void add(const float *x, int64_t count, bool firstOfWindow, int64_t sampleEvery);

  /// The range [-r, r] that the observer chooses.
  float range(const Observer &observer) const;

  llvm::json::Object toJson() const;
  static llvm::Expected<ActivationStats> fromJson(const llvm::json::Object &o);

private:
  void count(float magnitude);

  static constexpr size_t bins = 2048;
  float binWidth_ = 0; // of the magnitudes' histogram; doubles as larger ones come
  std::vector<uint64_t> histogram_;
};

/// The statistics of all layers, by layer name.
struct Calibration {
  int64_t tokens = 0;
  /// XXH3 of the token ids, and of the window's length.
  std::string hash;
  std::map<std::string, ActivationStats> layers;

  /// Null when there is none.
  const ActivationStats *find(llvm::StringRef layer) const;

  std::string toJson() const;
  /// An error with the code Io when the text is not what toJson() writes.
  static llvm::Expected<Calibration> fromJson(llvm::StringRef text);
};

} // namespace gpt2c
