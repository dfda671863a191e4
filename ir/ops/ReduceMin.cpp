#include "ir/ops/Reduce.h"

namespace gpt2c {

const OpInfo opReduceMin = {
    .code = OpCode::ReduceMin,
    .mnemonic = "reduce_min",
    .summary = "y = the minimum over axes; NaN wins, the highest value for no elements",
    .operands = {{"x"}},
    .attrs = reductionAttrs(),
    .traits = Reduction,
    .infer = [](InferContext &c) { return inferReduction(c, minDims); },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalReduction(
          c, [](auto t) { return highest(t); },
          [](auto a, auto x) { return x < a || x != x ? x : a; },
          [](auto a, int64_t) { return a; });
    },
    .cost = reductionCost,
};

} // namespace gpt2c
