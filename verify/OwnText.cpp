#include "verify/OwnText.h"

#include <cmath>
#include <random>

namespace gpt2c {

/// The winner of log p + Gumbel noise, which is distributed as p is; -1 where a logit is not
/// finite.
static int32_t drawn(const Tensor &logits, int64_t row, std::mt19937_64 &random) {
  const int64_t width = logits.dim(-1);
  int32_t best = -1;
  double most = -INFINITY;
  for (int64_t i = 0; i < width; ++i) {
    const double v = logits.asDouble(row * width + i);
    if (std::isnan(v) || v == INFINITY)
      return -1;
    const double u = (double(random() >> 11) + 0.5) * 0x1p-53, at = v - std::log(-std::log(u));
    if (at > most) {
      most = at;
      best = int32_t(i);
    }
  }
  return best;
}

llvm::Expected<std::vector<TokenIds>> ownTexts(PlanRunner &plan, int64_t vocabulary,
                                               int64_t sequences, int64_t tokens) {
  std::mt19937_64 random(17);
  std::vector<TokenIds> texts;
  for (int64_t b = 0; b < sequences; ++b)
    texts.push_back({int32_t(random() % uint64_t(std::max<int64_t>(vocabulary, 1)))});
  std::vector<int32_t> past(texts.size(), 0), next(texts.size());
  for (int64_t n = 1; n < tokens; ++n) {
    auto step = n == 1 ? plan.prefill(texts, past) : plan.decode(next, past);
    if (!step)
      return step.takeError();
    for (size_t b = 0; b < texts.size(); ++b) {
      next[b] = drawn(step->logits, int64_t(b), random);
      if (next[b] < 0)
        return llvm::createStringError(llvm::inconvertibleErrorCode(), "logits are not finite");
      texts[b].push_back(next[b]);
      past[b] = int32_t(n);
    }
  }
  return texts;
}

} // namespace gpt2c
