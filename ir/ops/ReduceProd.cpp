#include "ir/ops/Reduce.h"

namespace gpt2c {

const OpInfo opReduceProd = {
    .code = OpCode::ReduceProd,
    .mnemonic = "reduce_prod",
    .summary = "y = the product over axes",
    .operands = {{"x"}},
    .attrs = reductionAttrs(),
    .traits = Reduction,
    .infer = [](InferContext &c) { return inferReduction(c, mulDims); },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalReduction(
          c, [](auto t) { return decltype(t)(1); }, [](auto a, auto x) { return wrapMul(a, x); },
          [](auto a, int64_t) { return a; });
    },
    .cost = reductionCost,
};

} // namespace gpt2c
