#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opSqrt = {
    .code = OpCode::Sqrt,
    .mnemonic = "sqrt",
    .summary = "y = sqrt(x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::sqrt(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
