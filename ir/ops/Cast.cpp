#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferCast(InferContext &c) {
  DType to = c.op().dtypeAttr("to");
  c.setResult(to, Shape(c.shape(0)));
  const Dims *in = c.content(0);
  if (!in || isFloat(to))
    return llvm::Error::success();
  if (to != DType::Bool && c.dtype(0) != DType::Bool) {
    bool narrow = byteSize(to) < 4;
    for (const Dim &d : *in)
      if (auto v = d.constant();
          narrow ? !v || *v < 0 || *v > 127 : to == DType::I32 && v && int32_t(*v) != *v)
        return llvm::Error::success();
    c.setContent(*in);
    return llvm::Error::success();
  }
  Dims out;
  for (const Dim &d : *in) {
    auto zero = isEqual(d, 0, c.bounds());
    if (!zero)
      return llvm::Error::success();
    out.push_back(!*zero);
  }
  c.setContent(std::move(out));
  return llvm::Error::success();
}

const OpInfo opCast = {
    .code = OpCode::Cast,
    .mnemonic = "cast",
    .summary = "y = x in another element type; floats toward zero for integers, x != 0 for bool",
    .operands = {{"x"}},
    .attrs = {{"to", AttrKind::DType}},
    .traits = Elementwise,
    .infer = inferCast,
    .eval = [](EvalContext &c) -> llvm::Error {
      c.output() = c.input(0).cast(c.resultDType());
      return llvm::Error::success();
    },
};

} // namespace gpt2c
