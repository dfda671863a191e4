#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opSin = {
    .code = OpCode::Sin,
    .mnemonic = "sin",
    .summary = "y = sin(x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::sin(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
