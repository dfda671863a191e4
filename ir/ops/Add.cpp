#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opAdd = {
    .code = OpCode::Add,
    .mnemonic = "add",
    .summary = "y = a + b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) { return inferArithmetic(c, addDims); },
    .eval =
        [](EvalContext &c) { return evalBinary(c, [](auto a, auto b) { return wrapAdd(a, b); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
