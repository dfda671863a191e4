#include "ir/ops/Reduce.h"

namespace gpt2c {

const OpInfo opReduceMean = {
    .code = OpCode::ReduceMean,
    .mnemonic = "reduce_mean",
    .summary = "y = the mean over axes; integers toward zero, an empty integer mean is 0",
    .operands = {{"x"}},
    .attrs = reductionAttrs(),
    .traits = Reduction,
    .infer = [](InferContext &c) { return inferReduction(c); },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalReduction(
          c, [](auto t) { return decltype(t)(0); }, [](auto a, auto x) { return wrapAdd(a, x); },
          [](auto a, int64_t n) { return mean(a, n); });
    },
    .cost = reductionCost,
};

} // namespace gpt2c
