#include "tools/common/flags/QuantizeFlags.h"

#include "ir/Error.h"
#include "tools/common/flags/CommandLine.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Regex.h"

#include <array>

namespace gpt2c {

namespace cl = llvm::cl;

static cl::opt<QuantizeScheme> scheme(
    "quantize", cl::desc("Products with weights in int8, fp8 or int4"),
    cl::values(
        clEnumValN(QuantizeScheme::W8A16, "w8a16", "weights only"),
        clEnumValN(QuantizeScheme::W8A8, "w8a8", "a scale for each output channel and each token"),
        clEnumValN(QuantizeScheme::W8A8Tensor, "w8a8-tensor",
                   "a scale for each tensor, that of activations calibrated"),
        clEnumValN(QuantizeScheme::W8A8Smooth, "w8a8-smooth",
                   "w8a8 with outliers of activations moved into the weights, calibrated"),
        clEnumValN(QuantizeScheme::Fp8, "fp8",
                   "w8a8 in fp8 (E4M3); weights only where a GPU has no products of it"),
        clEnumValN(QuantizeScheme::Fp8Tensor, "fp8-tensor",
                   "the same, with one calibrated scale for each input"),
        clEnumValN(QuantizeScheme::Fp8Weights, "fp8-weights", "weights only, in fp8"),
        clEnumValN(QuantizeScheme::Fp8Block, "fp8-block",
                   "weights only, in fp8 with a scale for each block of 128 x 128"),
        clEnumValN(QuantizeScheme::W4A16, "w4a16",
                   "weights only, in int4 with a scale for each group of a row"),
        clEnumValN(QuantizeScheme::Auto, "auto",
                   "each product in the fastest of w8a8, w8a16, fp8 and w4a16, or none, with "
                   "which the limits hold (--eval, --max-ppl-increase, --max-kl)")),
    cl::init(QuantizeScheme::None), category());
enum class KvType : uint8_t { Plan, Int8, Fp8 };
static cl::opt<KvType>
    kvType("kv-type", cl::desc("Element type of the KV state"),
           cl::values(clEnumValN(KvType::Plan, "plan", "that of the plan (default)"),
                      clEnumValN(KvType::Int8, "int8", "int8 with a scale for each head and token"),
                      clEnumValN(KvType::Fp8, "fp8",
                                 "the same in fp8 (E4M3): the bytes of int8, and it loses more")),
           cl::init(KvType::Plan), category());
static cl::opt<ImportedActivations> imported(
    "imported-activations",
    cl::desc("Activations that the model quantises itself, and that stay quantised"),
    cl::values(clEnumValN(ImportedActivations::Products, "products",
                          "those that products with weights read (default)"),
               clEnumValN(ImportedActivations::All, "all", "each; nothing is fused across one"),
               clEnumValN(ImportedActivations::None, "none", "none; int8 weights stay")),
    cl::init(ImportedActivations::Products), category());
static cl::opt<int64_t> weightGroup(
    "weight-group",
    cl::desc("Elements of a weight's row that share a scale, 0 for the whole row (w8a16, where "
             "that is not estimated to be slower: default 64; w8a8: default 0; w4a16: 128, 64, 32 "
             "or 16, default 128)"),
    cl::value_desc("N"), cl::init(0), category());
enum class WidenWeights : uint8_t { Auto, Never };
static cl::opt<WidenWeights>
    widenWeights("widen-weights",
                 cl::desc("Quantised weights are in the plan as floats, too (two bytes more each), "
                          "for calls in which those are faster"),
                 cl::values(clEnumValN(WidenWeights::Auto, "auto",
                                       "where there are such calls, on GPUs (default)"),
                            clEnumValN(WidenWeights::Never, "never", "they are quantised alone")),
                 cl::init(WidenWeights::Auto), category());
static cl::list<std::string> exclude(
    "quantize-exclude",
    cl::desc("Keep the precision of products whose weight or ONNX node matches (repeatable)"),
    cl::value_desc("REGEX"), category());
static cl::list<std::string>
    include("quantize-include",
            cl::desc("Quantise products that match like all others, the vocabulary projection too"),
            cl::value_desc("REGEX"), category());
static cl::list<std::string> ofLayers(
    "quantize-layer",
    cl::desc(
        "With --quantize=auto: this layer, by the name of its weight, is in this scheme, or in "
        "none (repeatable)"),
    cl::value_desc("NAME=SCHEME"), category());
static cl::opt<std::string> strength(
    "smooth-strength",
    cl::desc("How much of the outliers moves into the weights, 0 to 1 (default: searched)"),
    cl::value_desc("A"), category());
static cl::opt<Observer::Kind>
    observer("observer", cl::desc("How w8a8-tensor chooses the range of activations"),
             cl::values(clEnumValN(Observer::MinMax, "minmax", "the largest magnitude (default)"),
                        clEnumValN(Observer::Percentile, "percentile", "see --percentile"),
                        clEnumValN(Observer::Mse, "mse", "the least squared error")),
             cl::init(Observer::MinMax), category());
static cl::opt<double> percentile("percentile",
                                  cl::desc("Share of elements inside the range (default 99.99)"),
                                  cl::value_desc("P"), cl::init(Observer().percentile), category());
static cl::opt<std::string> loadCalibration("load-calibration",
                                            cl::desc("Take statistics that were saved"),
                                            cl::value_desc("FILE"), category());

static llvm::Error checkExpressions(llvm::StringRef flag, llvm::ArrayRef<std::string> list) {
  for (const std::string &expression : list)
    if (std::string why; !llvm::Regex(expression).isValid(why))
      return makeError(ExitCode::Usage,
                       flag + "=" + expression + " is no regular expression: " + why);
  return llvm::Error::success();
}

/// Those of --quantize-layer.
static llvm::Error chooseLayers(QuantizeOptions &o) {
  if (!ofLayers.empty() && scheme != QuantizeScheme::Auto)
    return makeError(ExitCode::Usage, "--quantize-layer is for --quantize=auto");
  for (llvm::StringRef text : ofLayers) {
    auto [name, of] = text.rsplit('=');
    std::optional<QuantizeScheme> chosen;
    for (QuantizeScheme s : {QuantizeScheme::None, QuantizeScheme::W8A16, QuantizeScheme::W8A8,
                             QuantizeScheme::Fp8, QuantizeScheme::W4A16})
      if (of == schemeName(s))
        chosen = s;
    if (name.empty() || !chosen)
      return makeError(ExitCode::Usage, "--quantize-layer=" + text +
                                            " is not NAME=SCHEME, with one of none, w8a16, w8a8, "
                                            "fp8 and w4a16");
    o.chosen[name] = *chosen;
  }
  return llvm::Error::success();
}

bool mayWidenWeights() {
  return scheme != QuantizeScheme::None && widenWeights == WidenWeights::Auto;
}

llvm::Expected<QuantizeOptions> quantizeFlags() {
  QuantizeOptions o;
  o.scheme = scheme;
  if (kvType != KvType::Plan)
    o.kvType = kvType == KvType::Int8 ? DType::I8 : DType::F8E4M3;
  o.imported = imported;
  if (weightGroup.getNumOccurrences())
    o.weightGroup = weightGroup;
  o.widenWeights = widenWeights.getNumOccurrences() && mayWidenWeights();
  if (weightGroup < 0)
    return makeError(ExitCode::Usage, "--weight-group is at least 1, or 0 for the whole row");
  if ((observer.getNumOccurrences() || percentile.getNumOccurrences()) &&
      !hasCalibratedScales(scheme))
    return makeError(ExitCode::Usage,
                     "--observer and --percentile are for --quantize=w8a8-tensor and fp8-tensor");
  if (!strength.empty() && scheme != QuantizeScheme::W8A8Smooth)
    return makeError(ExitCode::Usage, "--smooth-strength is for --quantize=w8a8-smooth");
  if (weightGroup && (scheme == QuantizeScheme::None || scheme == QuantizeScheme::W8A8Tensor ||
                      scheme == QuantizeScheme::Auto || isFp8(scheme)))
    return makeError(ExitCode::Usage, "--weight-group is for w8a16, w8a8, w8a8-smooth and w4a16");
  if (scheme == QuantizeScheme::W4A16 && o.weightGroup && weightGroup != 16 && weightGroup != 32 &&
      weightGroup != 64 && weightGroup != 128)
    return makeError(ExitCode::Usage, "--weight-group of w4a16 is 128, 64, 32 or 16");
  if (llvm::Error e = chooseLayers(o))
    return e;
  o.exclude = {exclude.begin(), exclude.end()};
  o.include = {include.begin(), include.end()};
  if (llvm::Error e = checkExpressions("--quantize-exclude", o.exclude))
    return e;
  if (llvm::Error e = checkExpressions("--quantize-include", o.include))
    return e;
  if (scheme == QuantizeScheme::None && (!o.exclude.empty() || !o.include.empty()))
    return makeError(ExitCode::Usage,
                     "--quantize-exclude and --quantize-include need --quantize=SCHEME");
  if (!strength.empty()) {
    double value = 0;
    if (llvm::StringRef(strength).getAsDouble(value) || !(value >= 0 && value <= 1))
      return makeError(ExitCode::Usage, "--smooth-strength is a number from 0 to 1");
    o.smoothStrength = value;
  }
  if (!(percentile > 0 && percentile <= 100))
    return makeError(ExitCode::Usage, "--percentile is above 0 and at most 100");
  o.observer = {observer, percentile};
  if (!loadCalibration.empty()) {
    auto buffer = readInput(loadCalibration);
    if (!buffer)
      return buffer.takeError();
    auto calibration = Calibration::fromJson((*buffer)->getBuffer());
    if (!calibration)
      return inContext(loadCalibration, calibration.takeError());
    o.calibration = std::make_shared<Calibration>(std::move(*calibration));
  }
  return o;
}

std::vector<std::string> quantizeFlagTexts() {
  std::vector<std::string> out;
  auto add = [&](const cl::Option &option, const std::string &value) {
    if (option.getNumOccurrences())
      out.push_back("--" + option.ArgStr.str() + "=" + value);
  };
  add(scheme, schemeName(scheme).str());
  add(kvType, std::array{"plan", "int8", "fp8"}[size_t(kvType.getValue())]);
  add(imported, std::array{"all", "products", "none"}[size_t(imported.getValue())]);
  add(weightGroup, std::to_string(weightGroup));
  add(widenWeights, widenWeights == WidenWeights::Auto ? "auto" : "never");
  for (const std::string &e : ofLayers)
    add(ofLayers, e);
  for (const std::string &e : exclude)
    add(exclude, e);
  for (const std::string &e : include)
    add(include, e);
  add(strength, strength);
  add(observer, std::array{"minmax", "percentile", "mse"}[observer]);
  add(percentile, llvm::formatv("{0}", double(percentile)));
  return out;
}

} // namespace gpt2c
