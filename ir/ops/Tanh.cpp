#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opTanh = {
    .code = OpCode::Tanh,
    .mnemonic = "tanh",
    .summary = "y = tanh(x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return std::tanh(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
