#include "tools/gpt2c/QualityGate.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "tools/gpt2c/QualityEvaluations.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

namespace gpt2c {

namespace {

class Gate {
public:
  Gate(const Module &module, const PassOptions &options, const PipelineOptions &pipeline,
       const rt::Tokens &tokens, const GateOptions &gate)
      : module_(module), options_(options), gate_(gate),
        evaluations_(module, options, pipeline, tokens, gate) {}

  llvm::Expected<GateResult> run() {
    if (llvm::Error e = evaluations_.open())
      return e;
    evaluations_.plan(1, gate_.maxTokens);
    auto first = measure({}, gate_.maxTokens, "int8 in all layers");
    if (!first)
      return first.takeError();
    GateResult result = std::move(*first);
    const std::vector<std::string> broken = limitsExceeded(result.quantised, gate_.limits);
    if (broken.empty())
      return result;
    tellHowLong();
    auto ranked = sensitivities();
    if (!ranked)
      return ranked.takeError();
    return keepWorst(*ranked, llvm::join(broken, "\n"));
  }

private:
  /// The least number of layers, the most sensitive ones, whose precision lets the limits hold.
  llvm::Expected<GateResult> keepWorst(llvm::ArrayRef<LayerSensitivity> ranked,
                                       const std::string &reason) {
    std::optional<GateResult> best;
    size_t fails = 0, holds = ranked.size(); // with so many layers kept; all is not worth trying
    while (holds - fails > 1) {
      size_t kept = fails + (holds - fails) / 2;
      llvm::StringSet<> names;
      for (const LayerSensitivity &s : ranked.take_front(kept))
        names.insert(s.name);
      auto result = measure(names, gate_.maxTokens,
                            llvm::Twine(kept) + " of " + llvm::Twine(ranked.size()) +
                                " layers keep their precision");
      if (!result)
        return result.takeError();
      if (!limitsExceeded(result->quantised, gate_.limits).empty()) {
        fails = kept;
        continue;
      }
      holds = kept;
      best = std::move(*result);
      best->kept = ranked.take_front(kept).vec();
    }
    if (best)
      return std::move(*best);
    return makeError(ExitCode::Quality,
                     "no choice of layers for int8 stays within the limits: with all of them " +
                         reason + ". Choose another scheme (--quantize), or wider limits");
  }

  llvm::StringSet<> layersInInt8() const {
    llvm::StringSet<> all;
    for (auto &op : module_.function(functions::forward)->ops())
      if (treatmentOf(*op, options_.quantize).first != Treatment::Keep)
        all.insert(layerName(*op));
    return all;
  }

  /// Each layer is an evaluation, and so is each step of the search over how many are kept; by the
  /// time that the first evaluation took.
  void tellHowLong() {
    const size_t layers = layersInInt8().size();
    evaluations_.plan(layers, gate_.rankTokens);
    evaluations_.plan(llvm::Log2_64_Ceil(layers + 1), gate_.maxTokens);
    if (gate_.estimate)
      gate_.estimate("int8 in all layers is beyond a limit: " + llvm::Twine(layers) +
                     " layers are ranked by an evaluation each, about " +
                     evaluations_.secondsLeft());
  }

  llvm::Expected<std::vector<LayerSensitivity>> sensitivities() {
    const llvm::StringSet<> all = layersInInt8();
    std::vector<LayerSensitivity> out;
    for (auto &layer : all) {
      llvm::StringSet<> others = all;
      others.erase(layer.first());
      auto result = measure(others, gate_.rankTokens, "int8 in " + layer.first() + " alone");
      if (!result)
        return result.takeError();
      out.push_back({layer.first().str(), result->quantised.baseline->klMean});
    }
    llvm::sort(out, [](const LayerSensitivity &a, const LayerSensitivity &b) {
      return a.kl != b.kl ? a.kl > b.kl : a.name < b.name;
    });
    return out;
  }

  llvm::Expected<GateResult> measure(const llvm::StringSet<> &keep, int64_t maxTokens,
                                     const llvm::Twine &what) {
    QuantizeOptions quantize = options_.quantize;
    for (auto &name : keep)
      quantize.keep.insert(name.first());
    return evaluations_.measure(quantize, maxTokens, what);
  }

  const Module &module_;
  const PassOptions &options_;
  const GateOptions &gate_;
  QualityEvaluations evaluations_;
};

} // namespace

llvm::Expected<GateResult> holdQuality(const Module &module, const PassOptions &options,
                                       const PipelineOptions &pipeline, const rt::Tokens &tokens,
                                       const GateOptions &gate) {
  return Gate(module, options, pipeline, tokens, gate).run();
}

} // namespace gpt2c
