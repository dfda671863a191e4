#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opSigmoid = {
    .code = OpCode::Sigmoid,
    .mnemonic = "sigmoid",
    .summary = "y = 1 / (1 + e^-x)",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval =
        [](EvalContext &c) { return evalUnary(c, [](auto x) { return 1 / (1 + std::exp(-x)); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
