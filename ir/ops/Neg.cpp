#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opNeg = {
    .code = OpCode::Neg,
    .mnemonic = "neg",
    .summary = "y = -x",
    .operands = {{"x"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) -> llvm::Error {
      if (llvm::Error e = inferNumericUnary(c))
        return e;
      if (const Dims *in = c.content(0)) {
        Dims out;
        for (const Dim &d : *in)
          if (auto v = subDims(0, d))
            out.push_back(*v);
        if (out.size() == in->size())
          c.setContent(std::move(out));
      }
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) -> llvm::Error {
      return evalUnaryAny(c, [](auto x) {
        if constexpr (std::is_floating_point_v<decltype(x)>)
          return -x;
        else
          return wrapSub(decltype(x)(0), x);
      });
    },
    .cost = elementwiseCost,
};

} // namespace gpt2c
