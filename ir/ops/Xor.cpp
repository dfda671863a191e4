#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opXor = {
    .code = OpCode::Xor,
    .mnemonic = "xor",
    .summary = "y = a != b, of truth values",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer =
        [](InferContext &c) {
          return inferLogic(c, [](const Dim &a, const Dim &b, const DimBounds &bounds) {
            auto equal = isEqual(a, b, bounds);
            return equal ? boolDim(!*equal) : std::nullopt;
          });
        },
    .eval =
        [](EvalContext &c) {
          return evalPredicate(c, [](auto a, auto b) { return (a != 0) != (b != 0); });
        },
    .cost = elementwiseCost,
};

} // namespace gpt2c
