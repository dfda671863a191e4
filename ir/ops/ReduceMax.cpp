#include "ir/ops/Reduce.h"

namespace gpt2c {

const OpInfo opReduceMax = {
    .code = OpCode::ReduceMax,
    .mnemonic = "reduce_max",
    .summary = "y = the maximum over axes; NaN wins, the lowest value for no elements",
    .operands = {{"x"}},
    .attrs = reductionAttrs(),
    .traits = Reduction,
    .infer = [](InferContext &c) { return inferReduction(c, maxDims); },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalReduction(
          c, [](auto t) { return lowest(t); },
          [](auto a, auto x) { return x > a || x != x ? x : a; },
          [](auto a, int64_t) { return a; });
    },
    .cost = reductionCost,
};

} // namespace gpt2c
