#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opIsNaN = {
    .code = OpCode::IsNaN,
    .mnemonic = "is_nan",
    .summary = "y = x is NaN",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      if (!isFloat(c.dtype(0)))
        return c.error("expects a floating-point operand");
      c.setResult(DType::Bool, Shape(c.shape(0)));
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) { return evalTest(c, [](auto x) { return std::isnan(x); }); },
    .cost = elementwiseCost,
};

} // namespace gpt2c
