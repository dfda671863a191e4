#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opMax = {
    .code = OpCode::Max,
    .mnemonic = "max",
    .summary = "y = the greater of a and b; NaN wins",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) { return inferArithmetic(c, maxDims); },
    .eval =
        [](EvalContext &c) {
          return evalBinary(c, [](auto a, auto b) { return b > a || b != b ? b : a; });
        },
    .cost = elementwiseCost,
};

} // namespace gpt2c
