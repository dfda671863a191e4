#include "tools/gpt2c/AutoSchemes.h"

#include "ir/Error.h"
#include "tools/gpt2c/QualityEvaluations.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

#include <map>

namespace gpt2c {

namespace {

/// Layers of one shape that are asked together, and the schemes that are left for them.
struct LayerGroup {
  std::vector<size_t> layers;
  std::vector<SchemePrice> ladder; ///< fastest first; behind the last they are unquantised
  double kl = 0;                   ///< of the first
};

/// A group takes its next scheme.
struct StepBack {
  size_t group = 0, from = 0;
  double worth = 0; ///< divergence that it saves for the time that it costs
};

class AutoChoice {
public:
  AutoChoice(const Module &module, const PassOptions &options, const PipelineOptions &pipeline,
             const rt::Tokens &tokens, const GateOptions &gate, llvm::ArrayRef<LayerPrices> layers)
      : options_(options), gate_(gate), layers_(layers),
        evaluations_(module, options, pipeline, tokens, gate) {}

  llvm::Expected<AutoResult> run() {
    if (llvm::Error e = evaluations_.open())
      return e;
    if (llvm::Error e = rankSchemes())
      return e;
    makeGroups();
    std::vector<size_t> rungs(groups_.size(), 0);
    auto first = measure(rungs, gate_.maxTokens, "each layer in its fastest scheme");
    if (!first)
      return first.takeError();
    const std::vector<std::string> broken = limitsExceeded(first->quantised, gate_.limits);
    if (broken.empty())
      return result(std::move(*first), rungs);
    tellHowLong();
    if (llvm::Error e = rankGroups())
      return e;
    return search(llvm::join(broken, "\n"));
  }

private:
  std::vector<QuantizeScheme> schemes() const {
    std::vector<QuantizeScheme> out;
    for (const LayerPrices &layer : layers_)
      for (const SchemePrice &p : layer.schemes)
        if (!llvm::is_contained(out, p.scheme))
          out.push_back(p.scheme);
    return out;
  }

  llvm::Error rankSchemes() {
    const std::vector<QuantizeScheme> all = schemes();
    evaluations_.plan(all.size(), gate_.rankTokens);
    evaluations_.plan(1, gate_.maxTokens);
    for (QuantizeScheme scheme : all) {
      QuantizeOptions quantize = options_.quantize;
      for (const LayerPrices &layer : layers_)
        if (llvm::any_of(layer.schemes, [&](const auto &p) { return p.scheme == scheme; }))
          quantize.chosen[layer.name] = scheme;
      auto result =
          evaluations_.measure(quantize, gate_.rankTokens, schemeName(scheme) + " in all layers");
      if (!result)
        return result.takeError();
      divergence_[scheme] = result->quantised.baseline->klMean;
    }
    return llvm::Error::success();
  }

  /// Those that no other beats in time and in divergence.
  std::vector<SchemePrice> ladderOf(const LayerPrices &layer) const {
    constexpr double alike = 1.01;
    std::vector<SchemePrice> out;
    for (const SchemePrice &p : layer.schemes)
      if (llvm::none_of(layer.schemes, [&](const SchemePrice &o) {
            return o.scheme != p.scheme && o.share <= p.share * alike &&
                   divergence_.at(o.scheme) < divergence_.at(p.scheme);
          }))
        out.push_back(p);
    return out;
  }

  /// Neighbours of one shape, and of the same schemes, are a group where there are more layers than
  /// groups may be.
  void makeGroups() {
    const size_t each = llvm::divideCeil(std::max<size_t>(layers_.size(), 1), mostGroups);
    std::map<std::vector<int64_t>, size_t> open; // group of each shape that takes more
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::vector<SchemePrice> ladder = ladderOf(layers_[i]);
      if (ladder.empty())
        continue;
      const auto at = open.find(layers_[i].shape);
      if (at != open.end() && groups_[at->second].layers.size() < each) {
        groups_[at->second].layers.push_back(i);
        continue;
      }
      open[layers_[i].shape] = groups_.size();
      groups_.push_back({.layers = {i}, .ladder = ladder, .kl = 0});
    }
  }

  void tellHowLong() {
    size_t steps = 0;
    for (const LayerGroup &g : groups_)
      steps += g.ladder.size();
    evaluations_.plan(groups_.size(), gate_.rankTokens);
    evaluations_.plan(llvm::Log2_64_Ceil(steps + 1), gate_.maxTokens);
    if (gate_.estimate)
      gate_.estimate(
          "the fastest schemes are beyond a limit: " + llvm::Twine(groups_.size()) + " groups of " +
          llvm::Twine(layers_.size()) + " layers are ranked by an evaluation each, " +
          llvm::Twine(evaluations_.planned()) + " in all, about " + evaluations_.secondsLeft());
  }

  llvm::Error rankGroups() {
    for (auto [i, group] : llvm::enumerate(groups_)) {
      std::vector<size_t> alone(groups_.size(), none);
      alone[i] = 0;
      auto result = measure(alone, gate_.rankTokens,
                            schemeName(group.ladder.front().scheme) + " in " +
                                layers_[group.layers.front()].name +
                                (group.layers.size() > 1 ? " and others alone" : " alone"));
      if (!result)
        return result.takeError();
      group.kl = result->quantised.baseline->klMean;
    }
    ranked_ = true;
    return llvm::Error::success();
  }

  /// All steps in the order in which they are worth it; those of a group one behind the other.
  std::vector<StepBack> stepsBack() const {
    std::vector<StepBack> steps;
    std::vector<size_t> rungs(groups_.size(), 0);
    for (;;) {
      std::optional<StepBack> best;
      for (size_t g = 0; g < groups_.size(); ++g)
        if (rungs[g] < groups_[g].ladder.size())
          if (StepBack step = stepFrom(g, rungs[g]); !best || step.worth > best->worth)
            best = step;
      if (!best)
        return steps;
      ++rungs[best->group];
      steps.push_back(*best);
    }
  }
  StepBack stepFrom(size_t g, size_t rung) const {
    const LayerGroup &group = groups_[g];
    const double of = std::max(divergence_.at(group.ladder.front().scheme), 1e-12);
    auto divergence = [&](size_t r) {
      return r < group.ladder.size() ? group.kl * divergence_.at(group.ladder[r].scheme) / of : 0.0;
    };
    auto share = [&](size_t r) { return r < group.ladder.size() ? group.ladder[r].share : 1.0; };
    double elements = 0; // about what the layers take
    for (size_t i : group.layers)
      elements += double(layers_[i].shape.front()) * double(layers_[i].shape.back());
    const double cost = std::max(share(rung + 1) - share(rung), 1e-3) * std::max(elements, 1.0);
    return {g, rung, (divergence(rung) - divergence(rung + 1)) / cost};
  }

  std::vector<size_t> after(llvm::ArrayRef<StepBack> steps) const {
    std::vector<size_t> rungs(groups_.size(), 0);
    for (const StepBack &step : steps)
      ++rungs[step.group];
    return rungs;
  }

  llvm::Expected<AutoResult> search(const std::string &reason) {
    const std::vector<StepBack> steps = stepsBack();
    std::optional<AutoResult> best;
    size_t fails = 0, holds = steps.size() + 1;
    while (holds - fails > 1) {
      const size_t count = fails + (holds - fails) / 2;
      const std::vector<size_t> rungs = after(llvm::ArrayRef(steps).take_front(count));
      auto measured =
          measure(rungs, gate_.maxTokens,
                  llvm::Twine(count) + " of " + llvm::Twine(steps.size()) + " steps back");
      if (!measured)
        return measured.takeError();
      if (!limitsExceeded(measured->quantised, gate_.limits).empty()) {
        fails = count;
        continue;
      }
      holds = count;
      best = result(std::move(*measured), rungs);
    }
    if (best)
      return std::move(*best);
    return makeError(ExitCode::Quality,
                     "limits do not hold with all layers in the plan's precision either; in their "
                     "fastest schemes " +
                         reason + ". Choose wider limits");
  }

  static constexpr size_t none = SIZE_MAX; // no rung: unquantised

  static SchemePrice priceAt(const LayerGroup &group, size_t rung) {
    return rung < group.ladder.size() ? group.ladder[rung] : SchemePrice();
  }

  llvm::Expected<GateResult> measure(llvm::ArrayRef<size_t> rungs, int64_t maxTokens,
                                     const llvm::Twine &what) {
    QuantizeOptions quantize = options_.quantize;
    for (auto [group, rung] : llvm::zip_equal(groups_, rungs))
      for (size_t i : group.layers)
        quantize.chosen[layers_[i].name] = priceAt(group, rung).scheme;
    return evaluations_.measure(quantize, maxTokens, what);
  }

  AutoResult result(GateResult quality, llvm::ArrayRef<size_t> rungs) const {
    AutoResult out{.quality = std::move(quality), .layers = {}};
    for (const LayerPrices &layer : layers_)
      out.layers.push_back({.name = layer.name, .price = {}});
    for (auto [group, rung] : llvm::zip_equal(groups_, rungs))
      for (size_t i : group.layers) {
        out.layers[i].price = priceAt(group, rung);
        if (ranked_)
          out.layers[i].kl = group.kl / double(group.layers.size());
      }
    return out;
  }

  const PassOptions &options_;
  const GateOptions &gate_;
  const llvm::ArrayRef<LayerPrices> layers_;
  QualityEvaluations evaluations_;
  std::map<QuantizeScheme, double> divergence_; ///< of each in all layers
  std::vector<LayerGroup> groups_;
  bool ranked_ = false;
};

} // namespace

llvm::Expected<AutoResult> chooseSchemes(const Module &module, const PassOptions &options,
                                         const PipelineOptions &pipeline, const rt::Tokens &tokens,
                                         const GateOptions &gate,
                                         llvm::ArrayRef<LayerPrices> layers) {
  return AutoChoice(module, options, pipeline, tokens, gate, layers).run();
}

} // namespace gpt2c
