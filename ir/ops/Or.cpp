#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opOr = {
    .code = OpCode::Or,
    .mnemonic = "or",
    .summary = "y = a || b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) { return inferLogic(c, maxDims); }, // truth values are 0 and 1
    .eval = [](EvalContext &c) { return evalPredicate(c, [](auto a, auto b) { return a || b; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
