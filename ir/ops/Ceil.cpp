#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opCeil = {
    .code = OpCode::Ceil,
    .mnemonic = "ceil",
    .summary = "y = the least integer >= x",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::ceil(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
