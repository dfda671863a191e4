#include "ir/ops/Reduce.h"

namespace gpt2c {

const OpInfo opReduceSum = {
    .code = OpCode::ReduceSum,
    .mnemonic = "reduce_sum",
    .summary = "y = the sum over axes",
    .operands = {{"x"}},
    .attrs = reductionAttrs(),
    .traits = Reduction,
    .infer = [](InferContext &c) { return inferReduction(c, addDims); },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalReduction(
          c, [](auto t) { return decltype(t)(0); }, [](auto a, auto x) { return wrapAdd(a, x); },
          [](auto a, int64_t) { return a; });
    },
    .cost = reductionCost,
};

} // namespace gpt2c
