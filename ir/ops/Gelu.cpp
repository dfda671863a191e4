#include "ir/ops/Activation.h"
#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opGelu = {
    .code = OpCode::Gelu,
    .mnemonic = "gelu",
    .summary = "y = x/2 (1 + erf(x/sqrt 2)); approximate=\"tanh\": x/2 (1 + tanh(sqrt(2/pi) (x + "
               "0.044715 x^3)))",
    .operands = {{"x"}},
    .attrs = {{"approximate", AttrKind::String, Attr("none"), "none or tanh"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      const std::string &form = c.op().stringAttr("approximate");
      if (form != "none" && form != "tanh")
        return c.error("approximate must be \"none\" or \"tanh\", not \"" + form + "\"");
      return inferFloatUnary(c);
    },
    .eval = [](EvalContext &c) -> llvm::Error {
      if (c.op().stringAttr("approximate") == "tanh")
        return evalUnary(c, [](auto x) { return geluTanh(x); });
      return evalUnary(c, [](auto x) { return geluErf(x); });
    },
    .cost = elementwiseCost,
};

} // namespace gpt2c
