#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opSign = {
    .code = OpCode::Sign,
    .mnemonic = "sign",
    .summary = "y = -1, 0 or 1; NaN stays",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferNumericUnary,
    .eval =
        [](EvalContext &c) {
          return evalUnaryAny(c, [](auto x) {
            return x > 0 ? decltype(x)(1) : x < 0 ? decltype(x)(-1) : x;
          });
        },
    .cost = elementwiseCost,
};

} // namespace gpt2c
