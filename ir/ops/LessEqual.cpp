#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opLessEqual = {
    .code = OpCode::LessEqual,
    .mnemonic = "less_equal",
    .summary = "y = a <= b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      return inferCompare(c, [](const Dim &a, const Dim &b, const DimBounds &bounds) {
        return boolDim(isLessEqual(a, b, bounds));
      });
    },
    .eval = [](EvalContext &c) { return evalPredicate(c, [](auto a, auto b) { return a <= b; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
