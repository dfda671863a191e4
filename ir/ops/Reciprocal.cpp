#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opReciprocal = {
    .code = OpCode::Reciprocal,
    .mnemonic = "reciprocal",
    .summary = "y = 1 / x",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return 1 / x; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
