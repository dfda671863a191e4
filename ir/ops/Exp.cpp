#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opExp = {
    .code = OpCode::Exp,
    .mnemonic = "exp",
    .summary = "y = e^x",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::exp(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
