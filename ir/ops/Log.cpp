#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opLog = {
    .code = OpCode::Log,
    .mnemonic = "log",
    .summary = "y = ln(x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::log(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
