#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opErf = {
    .code = OpCode::Erf,
    .mnemonic = "erf",
    .summary = "y = 2/sqrt(pi) * integral of e^(-t^2) from 0 to x",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::erf(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
