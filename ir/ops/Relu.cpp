#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opRelu = {
    .code = OpCode::Relu,
    .mnemonic = "relu",
    .summary = "y = max(x, 0)",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferNumericUnary,
    .eval =
        [](EvalContext &c) {
          return evalUnaryAny(c, [](auto x) { return x < 0 ? decltype(x)(0) : x; });
        },
    .cost = elementwiseCost,
};

} // namespace gpt2c
