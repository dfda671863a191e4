#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opFloor = {
    .code = OpCode::Floor,
    .mnemonic = "floor",
    .summary = "y = the greatest integer <= x",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::floor(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
