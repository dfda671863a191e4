// What to quantise, and how. docs/quantization.md has the formulas and their sources.
#pragma once

#include "ir/Op.h"
#include "passes/quantize/Calibration.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <memory>
#include <optional>

namespace gpt2c {

struct Module;

enum class QuantizeScheme : uint8_t {
  None,
  W8A16,      // weights only
  W8A8,       // weights for each output channel, activations for each token as it comes
  W8A8Tensor, // one scale for a weight, one calibrated scale for its input
  W8A8Smooth, // w8a8 after moving outliers of normalised activations into the weights
  Fp8,        // w8a8 in E4M3
  Fp8Tensor,  // the same, its input by one calibrated scale
  Fp8Weights, // weights only, in E4M3
  Fp8Block,   // in E4M3 with a scale for each block of a matrix
  W4A16,      // weights only, in four bits
  Auto,       // each product in the scheme that is chosen for it
};
constexpr bool isFp8(QuantizeScheme s) {
  return s == QuantizeScheme::Fp8 || s == QuantizeScheme::Fp8Tensor ||
         s == QuantizeScheme::Fp8Weights || s == QuantizeScheme::Fp8Block;
}
/// Each input has one scale, which comes from statistics.
constexpr bool hasCalibratedScales(QuantizeScheme s) {
  return s == QuantizeScheme::W8A8Tensor || s == QuantizeScheme::Fp8Tensor;
}
/// What most weights are stored in.
constexpr DType weightType(QuantizeScheme s) {
  return isFp8(s) ? DType::F8E4M3 : s == QuantizeScheme::W4A16 ? DType::I4 : DType::I8;
}

/// The spelling of --quantize; "none".
llvm::StringRef schemeName(QuantizeScheme scheme);

/// Which activations of a model that quantises them itself stay quantised.
enum class ImportedActivations : uint8_t {
  All,      // each; nothing is fused across one
  Products, // those that products with weights read
  None,
};

struct QuantizeOptions {
  QuantizeScheme scheme = QuantizeScheme::None;
  /// Of the KV state, I8 or F8E4M3; none: that of the plan.
  std::optional<DType> kvType;
  /// Auto: the schemes of layers by name; one that is not here keeps its precision.
  llvm::StringMap<QuantizeScheme> chosen;
  ImportedActivations imported = ImportedActivations::Products;
  /// Elements of a weight's row that share a scale; 0: the whole row. None: of w8a16 what
  /// settleWeightGroup() says, of w4a16 128, of others the whole row.
  std::optional<int64_t> weightGroup;
  /// Why weights of w8a16 in groups of so many would make the plan slower than with a scale for
  /// each row; empty: they do not. None: that is not asked.
  std::function<std::string(const Module &, int64_t group)> groupsAreSlower;
  /// Regular expressions over a layer's names, see layerNames(). A layer that `include` matches is
  /// quantised like the others, whatever else is said about it.
  std::vector<std::string> exclude, include;
  /// Also @prefill and @decode with floats in the place of int8 weights, for a schedule to choose.
  bool widenWeights = false;
  /// Names of layers that keep their precision, of w4a16 those that have eight bits.
  llvm::StringSet<> keep;
  /// Of fp8: names of layers whose inputs keep their precision, since scores would be off by much.
  llvm::StringSet<> wideInputs;
  /// How much of the outliers moves into the weights, 0 to 1; none: searched for each norm.
  std::optional<double> smoothStrength;
  Observer observer = {};
  /// What `W8A8Tensor`, `Fp8Tensor` and `W8A8Smooth` take scales from.
  std::shared_ptr<const Calibration> calibration;
  /// Whether all that runs the plan multiplies fp8; else weights alone are in it.
  bool fp8Products = true;

  /// Whether anything is quantised.
  bool any() const { return scheme != QuantizeScheme::None || kvType; }
  /// Activations stay in the plan's precision in products of that scheme.
  bool isWeightsOnly(QuantizeScheme s) const {
    return s == QuantizeScheme::W8A16 || s == QuantizeScheme::Fp8Weights ||
           s == QuantizeScheme::W4A16 || s == QuantizeScheme::Fp8Block ||
           (isFp8(s) && !fp8Products);
  }
  /// In all products that are quantised.
  bool isWeightsOnly() const;
};

/// The name by which people and statistics know a product with weights: that of its weight in the
/// model, else of its bias, else of the first ONNX node it came from.
std::string layerName(const Op &linear);
/// All names that a regular expression may match: of weight, bias and ONNX nodes.
llvm::SmallVector<llvm::StringRef, 4> layerNames(const Op &linear);

/// That of one layer: what is chosen for it, where the scheme is auto.
QuantizeScheme schemeOf(const Op &linear, const QuantizeOptions &options);

/// The dequantize that a product's weights come from, where the model has them in int8; null
/// otherwise.
Op *importedWeights(const Op &linear);
/// Whether `linear` is a product with a constant weight that can become int8.
bool isQuantisable(const Op &linear);
/// Whether `linear` gives the function's logits.
bool isVocabularyProjection(const Op &linear);

enum class Treatment : uint8_t { Keep, WeightsOnly, Full };
/// What the options mean for one layer; the reason, where it is not the scheme's usual treatment.
std::pair<Treatment, std::string> treatmentOf(const Op &linear, const QuantizeOptions &options);

/// Whether weights of `linear` have a scale for each row in every scheme: those of the logits'
/// product, which is the table of tokens, too, unless --quantize-include names it.
bool hasRowScales(const Op &linear, const QuantizeOptions &options);

/// What weights of `linear` are stored in, and elements of a row and rows that share a scale, of a
/// row 0: all. The logits' product has bytes in every scheme, and so have rows that four bits do
/// not divide.
struct WeightStorage {
  DType type = DType::I8;
  int64_t group = 0, rows = 1;
};
WeightStorage storageOf(const Op &linear, const QuantizeOptions &options);
/// About the mean square of each column of the product's input, but for one factor: of the
/// calibration, else behind a norm of gain g and bias b g^2 + b^2, since normalised elements have a
/// mean square of 1, those of a layer norm a mean of 0. Empty where that is not known.
std::vector<float> inputMoments(const Op &linear, const QuantizeOptions &options);

/// The statistics of the layer's input; an error of usage when there are none.
llvm::Expected<const ActivationStats *> statsOf(const Op &linear, const QuantizeOptions &options);

} // namespace gpt2c
