#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

const OpInfo opAbs = {
    .code = OpCode::Abs,
    .mnemonic = "abs",
    .summary = "y = |x|",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferNumericUnary,
    .eval =
        [](EvalContext &c) {
          return evalUnaryAny(c, [](auto x) {
            if constexpr (std::is_floating_point_v<decltype(x)>)
              return std::fabs(x);
            else
              return x < 0 ? wrapSub(decltype(x)(0), x) : x;
          });
        },
    .cost = elementwiseCost,
};

} // namespace gpt2c
