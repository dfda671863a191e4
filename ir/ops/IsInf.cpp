#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opIsInf = {
    .code = OpCode::IsInf,
    .mnemonic = "is_inf",
    .summary = "y = x is infinity",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      if (!isFloat(c.dtype(0)))
        return c.error("expects a floating-point operand");
      c.setResult(DType::Bool, Shape(c.shape(0)));
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) { return evalTest(c, [](auto x) { return std::isinf(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
