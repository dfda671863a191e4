#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opSub = {
    .code = OpCode::Sub,
    .mnemonic = "sub",
    .summary = "y = a - b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) { return inferArithmetic(c, subDims); },
    .eval =
        [](EvalContext &c) { return evalBinary(c, [](auto a, auto b) { return wrapSub(a, b); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
