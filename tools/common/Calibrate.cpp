#include "tools/common/Calibrate.h"

#include "ir/Error.h"
#include "ir/ops/Workers.h"
#include "passes/quantize/Quantization.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <xxhash.h>

#include <cmath>
#include <map>

namespace gpt2c {

/// Rows of each layer's input that are kept, for searches.
constexpr int64_t sampleRows = 64;

namespace {

/// A copy of a function that also returns the inputs of its products with weights, each once.
struct Observation {
  struct Input {
    llvm::SmallVector<size_t> results; ///< more than one where products have one name
    std::vector<std::string> layers;
    ActivationStats stats;
  };
  std::unique_ptr<Function> function;
  std::vector<Input> inputs;

  Observation(const Function &forward, int64_t productChannels);
  void add(llvm::ArrayRef<Tensor> results, int64_t sampleEvery);
  void give(Calibration &to);
};

Observation::Observation(const Function &forward, int64_t productChannels)
    : function(forward.clone(forward.name())) {
  std::vector<Value *> returned(function->returned().begin(), function->returned().end());
  llvm::DenseMap<Value *, size_t> places;
  std::map<std::string, llvm::SmallVector<size_t>> byLayer;
  for (auto &op : function->ops())
    if (isQuantisable(*op)) {
      Value *x = op->operand(ops::Linear::X);
      auto [place, isNew] = places.try_emplace(x, returned.size());
      if (isNew)
        returned.push_back(x);
      byLayer[layerName(*op)].push_back(place->second);
    }
  std::map<llvm::SmallVector<size_t>, size_t> known;
  for (auto &[layer, results] : byLayer) {
    auto [at, isNew] = known.try_emplace(results, inputs.size());
    if (isNew) {
      inputs.push_back({.results = results, .layers = {}, .stats = {}});
      ActivationStats &stats = inputs.back().stats;
      stats.channels = returned[results.front()]->type.shape.back().constant().value_or(0);
      if (productChannels && stats.channels)
        stats.products = std::make_shared<InputProducts>(stats.channels, productChannels);
    }
    inputs[at->second].layers.push_back(layer);
  }
  function->terminator()->setOperands(returned);
}

/// [rows, k] with 0 in rows that hold what is no finite number.
Tensor finiteRows(const Tensor &x, int64_t k) {
  Tensor out = x;
  for (int64_t at = 0; at < x.count(); at += k) {
    const llvm::ArrayRef<float> row(x.data<float>() + at, size_t(k));
    if (llvm::all_of(row, [](float v) { return std::isfinite(v); }))
      continue;
    if (out.raw() == x.raw())
      out = Tensor::of<float>({x.data<float>(), size_t(x.count())}, x.shape());
    std::fill_n(out.data<float>() + at, k, 0.0F);
  }
  return out;
}

/// The first row of a window counts for the largest magnitudes and the products of columns alone.
void Observation::add(llvm::ArrayRef<Tensor> results, int64_t sampleEvery) {
  bool more = true;
  for (size_t turn = 0; more; ++turn) {
    more = false;
    std::vector<Tensor> x(inputs.size());
    std::vector<std::pair<size_t, int64_t>> parts;
    for (auto [i, input] : llvm::enumerate(inputs))
      if (turn < input.results.size()) {
        more |= turn + 1 < input.results.size();
        x[i] = results[input.results[turn]];
        for (int64_t part = 0; input.stats.products && part < input.stats.products->parts(); ++part)
          parts.emplace_back(i, part);
      }
    forParts(int64_t(inputs.size()), [&](int64_t i) {
      if (!x[i].valid())
        return;
      ActivationStats &stats = inputs[i].stats;
      x[i] = x[i].cast(DType::F32);
      const Tensor &all = x[i];
      stats.add(all.data<float>(), all.count() / stats.channels, true, sampleEvery);
      if (stats.products)
        x[i] = finiteRows(all, stats.channels);
    });
    forParts(int64_t(parts.size()), [&](int64_t i) {
      const auto [input, part] = parts[size_t(i)];
      const Tensor &rows = x[input];
      const int64_t k = inputs[input].stats.channels;
      inputs[input].stats.products->add(part, rows.data<float>(), rows.count() / k);
    });
  }
}

void Observation::give(Calibration &to) {
  for (Input &input : inputs)
    for (const std::string &layer : input.layers)
      to.layers[layer] = input.stats;
}

} // namespace

llvm::Expected<Calibration> calibrate(const Function &forward, const rt::Tokens &tokens,
                                      const CalibrateOptions &options) {
  int64_t context = contextOf(forward);
  int64_t window = context ? std::min(context, options.window) : options.window;
  int64_t count = std::min<int64_t>(int64_t(tokens.size()), options.maxTokens);
  int64_t windows = (count + window - 1) / window;

  Observation observation(forward, options.productChannels);
  if (observation.inputs.empty())
    return makeError(ExitCode::Unsupported,
                     "the model has no products with constant weights: nothing to calibrate");

  Calibration out;
  out.tokens = count;
  out.hash = llvm::utohexstr(
      XXH3_64bits_withSeed(tokens.data(), count * sizeof(tokens[0]), uint64_t(window)),
      /*LowerCase=*/true, 16);
  auto model = options.open(*observation.function);
  if (!model)
    return model.takeError();
  for (int64_t w = 0; w < windows; ++w) {
    rt::Tokens part(tokens.begin() + w * window,
                    tokens.begin() + std::min(count, (w + 1) * window));
    auto results = (*model)->run({&part, 1});
    if (!results)
      return results.takeError();
    observation.add(*results, std::max<int64_t>(1, count / sampleRows));
    if (options.progress)
      options.progress(w + 1, windows);
  }
  observation.give(out);
  return out;
}

} // namespace gpt2c
