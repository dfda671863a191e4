#include "passes/quantize/Quantization.h"

#include "ir/Error.h"
#include "ir/ops/Quantize.h"
#include "passes/Rewrite.h"
#include "passes/quantize/WeightScales.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Regex.h"

namespace gpt2c {

llvm::StringRef schemeName(QuantizeScheme scheme) {
  switch (scheme) {
  case QuantizeScheme::None:
    return "none";
  case QuantizeScheme::W8A16:
    return "w8a16";
  case QuantizeScheme::W8A8:
    return "w8a8";
  case QuantizeScheme::W8A8Tensor:
    return "w8a8-tensor";
  case QuantizeScheme::W8A8Smooth:
    return "w8a8-smooth";
  case QuantizeScheme::Fp8:
    return "fp8";
  case QuantizeScheme::Fp8Tensor:
    return "fp8-tensor";
  case QuantizeScheme::Fp8Weights:
    return "fp8-weights";
  case QuantizeScheme::Fp8Block:
    return "fp8-block";
  case QuantizeScheme::W4A16:
    return "w4a16";
  case QuantizeScheme::Auto:
    return "auto";
  }
  return "";
}

llvm::SmallVector<llvm::StringRef, 4> layerNames(const Op &linear) {
  llvm::SmallVector<llvm::StringRef, 4> names;
  for (unsigned i : {ops::Linear::W, ops::Linear::Bias})
    if (const Value *v = linear.operand(i); v && !v->name.empty())
      names.push_back(v->name);
  llvm::append_range(names, linear.locations);
  return names;
}

std::string layerName(const Op &linear) {
  auto names = layerNames(linear);
  return names.empty() ? "linear" : names.front().str();
}

QuantizeScheme schemeOf(const Op &linear, const QuantizeOptions &options) {
  return options.scheme == QuantizeScheme::Auto ? options.chosen.lookup(layerName(linear))
                                                : options.scheme;
}

bool QuantizeOptions::isWeightsOnly() const {
  if (scheme != QuantizeScheme::Auto)
    return isWeightsOnly(scheme);
  return llvm::all_of(chosen, [&](const auto &layer) {
    return layer.second == QuantizeScheme::None || isWeightsOnly(layer.second);
  });
}

Op *importedWeights(const Op &linear) {
  Op *w = linear.is(OpCode::Linear) ? linear.operand(ops::Linear::W)->def() : nullptr;
  return w && w->is(OpCode::Dequantize) && constantOp(w->operand(ops::Dequantize::Q)) &&
                 constantOp(w->operand(ops::Dequantize::Scale)) &&
                 (!w->operand(ops::Dequantize::Zero) ||
                  constantOp(w->operand(ops::Dequantize::Zero)))
             ? w
             : nullptr;
}

bool isQuantisable(const Op &linear) {
  if (!linear.is(OpCode::Linear))
    return false;
  const Op *w = constantOp(linear.operand(ops::Linear::W));
  return w && w->constant.valid() && isFloat(w->constant.dtype()) && w->constant.count() > 0;
}

bool isVocabularyProjection(const Op &linear) {
  const Function &f = *linear.function();
  for (auto [i, name] : llvm::enumerate(f.resultNames)) {
    if (name != "logits")
      continue;
    const Value *v = f.returned()[i];
    while (v->def() && (v->def()->is(OpCode::Reshape) || v->def()->is(OpCode::Cast)))
      v = v->def()->operand(0);
    if (v->def() == &linear)
      return true;
  }
  return false;
}

static bool matchesAny(const Op &linear, llvm::ArrayRef<std::string> expressions) {
  for (const std::string &expression : expressions)
    for (llvm::StringRef name : layerNames(linear))
      if (llvm::Regex(expression).match(name))
        return true;
  return false;
}

std::pair<Treatment, std::string> treatmentOf(const Op &linear, const QuantizeOptions &options) {
  if (options.scheme == QuantizeScheme::None ||
      (!isQuantisable(linear) && !importedWeights(linear)))
    return {Treatment::Keep, ""};
  const QuantizeScheme scheme = schemeOf(linear, options);
  if (scheme == QuantizeScheme::None)
    return {Treatment::Keep, ""};
  if (options.keep.contains(layerName(linear)))
    return options.scheme == QuantizeScheme::W4A16 && !importedWeights(linear)
               ? std::pair(Treatment::WeightsOnly, std::string("eight bits, the quality gate"))
               : std::pair(Treatment::Keep, std::string("the quality gate"));
  if (const Op *w = importedWeights(linear))
    if (w->operand(ops::Dequantize::Q)->type.dtype != DType::I8)
      return {Treatment::WeightsOnly, ""};
  Treatment full = options.isWeightsOnly(scheme) ? Treatment::WeightsOnly : Treatment::Full;
  if (matchesAny(linear, options.include))
    return {full, ""};
  if (matchesAny(linear, options.exclude))
    return {Treatment::Keep, "--quantize-exclude"};
  if (full == Treatment::Full && options.wideInputs.contains(layerName(linear)))
    return {Treatment::WeightsOnly, "scores hang on few channels of its input, of which fp8 has "
                                    "four bits"};
  if (full == Treatment::Full && isVocabularyProjection(linear))
    return {Treatment::WeightsOnly,
            "it gives the logits, which errors of its input reach directly"};
  return {full, ""};
}

bool hasRowScales(const Op &linear, const QuantizeOptions &options) {
  return isVocabularyProjection(linear) && !matchesAny(linear, options.include);
}

WeightStorage storageOf(const Op &linear, const QuantizeOptions &options) {
  constexpr int64_t usual = 128;
  const QuantizeScheme scheme = schemeOf(linear, options);
  if (isFp8(scheme) && isVocabularyProjection(linear))
    return {};
  if (scheme == QuantizeScheme::Fp8Block)
    return {DType::F8E4M3, usual, usual};
  if (scheme != QuantizeScheme::W4A16)
    return {weightType(scheme),
            hasRowScales(linear, options) ? 0 : options.weightGroup.value_or(0)};
  const int64_t k = linear.operand(ops::Linear::W)->type.shape[1].constant().value_or(0),
                group = int4Group(k, options.weightGroup.value_or(usual));
  return isVocabularyProjection(linear) || group == 0 || options.keep.contains(layerName(linear))
             ? WeightStorage{}
             : WeightStorage{DType::I4, group};
}

std::vector<float> inputMoments(const Op &linear, const QuantizeOptions &options) {
  const Value &x = *linear.operand(ops::Linear::X);
  std::vector<float> moments(x.type.shape.back().constant().value_or(0));
  const bool calibrated = schemeOf(linear, options) == QuantizeScheme::W4A16 && options.calibration;
  const ActivationStats *stats =
      calibrated ? options.calibration->find(layerName(linear)) : nullptr;
  if (stats && stats->channelSquares.size() == moments.size()) {
    const double rows = double(std::max<int64_t>(stats->rows, 1));
    for (auto [m, squares] : llvm::zip_equal(moments, stats->channelSquares))
      m = float(double(float(squares)) / rows); // as a file has them
    return moments;
  }
  const Op *norm = x.def();
  if (!norm || !(norm->is(OpCode::LayerNorm) || norm->is(OpCode::RmsNorm)))
    return {};
  for (unsigned i : {ops::LayerNorm::Scale, ops::LayerNorm::Bias}) {
    const Op *c = norm->operand(i) ? constantOp(norm->operand(i)) : nullptr;
    if (!c && !norm->operand(i))
      continue;
    if (!c || !c->constant.valid() || c->constant.count() != int64_t(moments.size()))
      return {};
    for (auto [m, v] : llvm::zip_equal(moments, floatElements(c->constant)))
      m += v * v;
  }
  return moments;
}

llvm::Expected<const ActivationStats *> statsOf(const Op &linear, const QuantizeOptions &options) {
  if (!options.calibration)
    return makeError(ExitCode::Usage,
                     "this scheme takes its scales from statistics: give --calibration=TEXT or "
                     "--load-calibration=FILE");
  const ActivationStats *stats = options.calibration->find(layerName(linear));
  if (!stats || Dim(stats->channels) != linear.operand(ops::Linear::X)->type.shape.back())
    return makeError(ExitCode::Usage, "the calibration has no statistics for the input of " +
                                          layerName(linear) + ": it was made from another model");
  return stats;
}

} // namespace gpt2c
