#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opCos = {
    .code = OpCode::Cos,
    .mnemonic = "cos",
    .summary = "y = cos(x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::cos(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
