#include "tools/common/Calibrate.h"

#include "ir/Error.h"
#include "passes/quantize/Quantization.h"

#include "llvm/ADT/StringExtras.h"

#include <xxhash.h>

namespace gpt2c {

/// Rows of each layer's input that are kept, for searches.
constexpr int64_t sampleRows = 64;

llvm::Expected<Calibration> calibrate(const Function &forward, const rt::Tokens &tokens,
                                      const CalibrateOptions &options) {
  int64_t context = contextOf(forward);
  int64_t window = context ? std::min(context, options.window) : options.window;
  int64_t count = std::min<int64_t>(int64_t(tokens.size()), options.maxTokens);
  int64_t windows = (count + window - 1) / window;

  // A copy of the function that also returns what is looked at.
  auto observed = forward.clone(forward.name());
  std::vector<Value *> returned(observed->returned().begin(), observed->returned().end());
  const size_t first = returned.size();
  std::vector<std::string> names;
  for (auto &op : observed->ops())
    if (isQuantisable(*op)) {
      returned.push_back(op->operand(ops::Linear::X));
      names.push_back(layerName(*op));
    }
  if (names.empty())
    return makeError(ExitCode::Unsupported,
                     "the model has no products with constant weights: nothing to calibrate");
  observed->terminator()->setOperands(returned);

  Calibration out;
  out.tokens = count;
  out.hash = llvm::utohexstr(
      XXH3_64bits_withSeed(tokens.data(), count * sizeof(tokens[0]), uint64_t(window)),
      /*LowerCase=*/true, 16);
  auto model = options.open(*observed);
  if (!model)
    return model.takeError();
  for (int64_t w = 0; w < windows; ++w) {
    rt::Tokens part(tokens.begin() + w * window,
                    tokens.begin() + std::min(count, (w + 1) * window));
    auto results = (*model)->run({&part, 1});
    if (!results)
      return results.takeError();
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor x = (*results)[first + i].cast(DType::F32);
      ActivationStats &stats = out.layers[names[i]];
      stats.channels = x.dim(-1);
      stats.keepsProducts = stats.channels <= options.productChannels;
      stats.add(x.data<float>(), x.count() / x.dim(-1), true,
                std::max<int64_t>(1, count / sampleRows));
    }
    if (options.progress)
      options.progress(w + 1, windows);
  }
  return out;
}

} // namespace gpt2c
