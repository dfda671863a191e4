#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

/// |d|
static std::optional<Dim> absOf(const Dim &d, const DimBounds &bounds) {
  if (auto number = d.constant())
    return Dim(*number < 0 ? wrapSub<int64_t>(0, *number) : *number);
  auto opposite = subDims(0, d);
  return opposite ? maxDims(d, *opposite, bounds) : std::nullopt;
}

static llvm::Error inferAbs(InferContext &c) {
  if (llvm::Error e = inferNumericUnary(c))
    return e;
  if (const Dims *in = c.content(0)) {
    Dims out;
    for (const Dim &d : *in)
      if (auto v = absOf(d, c.bounds()))
        out.push_back(*v);
    if (out.size() == in->size())
      c.setContent(std::move(out));
  }
  return llvm::Error::success();
}

const OpInfo opAbs = {
    .code = OpCode::Abs,
    .mnemonic = "abs",
    .summary = "y = |x|",
    .operands = {{"x"}},
    .traits = Elementwise | Idempotent,
    .infer = inferAbs,
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
