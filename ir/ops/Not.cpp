#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opNot = {
    .code = OpCode::Not,
    .mnemonic = "not",
    .summary = "y = !x",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      if (c.dtype(0) != DType::Bool)
        return c.error("expects a bool operand");
      if (llvm::Error e = inferSameAsOperand(c))
        return e;
      if (auto in = c.constants(0)) {
        Dims out;
        for (int64_t v : *in)
          out.push_back(v == 0);
        c.setContent(std::move(out));
      }
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) { return evalUnaryAny(c, [](auto x) { return x == 0; }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
