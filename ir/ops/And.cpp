#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opAnd = {
    .code = OpCode::And,
    .mnemonic = "and",
    .summary = "y = a && b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) { return inferLogic(c, mulDims); }, // truth values are 0 and 1
    .eval = [](EvalContext &c) { return evalPredicate(c, [](auto a, auto b) { return a && b; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
