#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opMul = {
    .code = OpCode::Mul,
    .mnemonic = "mul",
    .summary = "y = a * b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) { return inferArithmetic(c, mulDims); },
    .eval =
        [](EvalContext &c) { return evalBinary(c, [](auto a, auto b) { return wrapMul(a, b); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
