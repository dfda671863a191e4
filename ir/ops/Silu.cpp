#include "ir/ops/Activation.h"
#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opSilu = {
    .code = OpCode::Silu,
    .mnemonic = "silu",
    .summary = "y = x / (1 + exp(-x))",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = inferFloatUnary,
    .eval = [](EvalContext &c) { return evalUnary(c, [](auto x) { return silu(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
