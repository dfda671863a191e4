#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opAnd = {
    .code = OpCode::And,
    .mnemonic = "and",
    .summary = "y = a && b",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise | Commutative,
    .infer = [](InferContext &c) -> llvm::Error {
      return inferLogic(c, [](const Dim &a, const Dim &b) -> std::optional<Dim> {
        if (a.isConstant() && b.isConstant())
          return Dim(*a.constant() & *b.constant());
        return std::nullopt;
      });
    },
    .eval = [](EvalContext &c) { return evalPredicate(c, [](auto a, auto b) { return a && b; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
