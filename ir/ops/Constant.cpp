#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferConstant(InferContext &c) {
  const Tensor &t = c.op().constant;
  if (!t.valid()) // elided from the text: the declared type stands
    return llvm::Error::success();
  c.setResult(t.dtype(), Shape(t.shape().begin(), t.shape().end()));
  if (isFloat(t.dtype()) || t.count() > 256)
    return llvm::Error::success();
  Dims content;
  for (int64_t i = 0, n = t.count(); i < n; ++i)
    content.push_back(t.asInt(i));
  c.setContent(std::move(content));
  return llvm::Error::success();
}

const OpInfo opConstant = {
    .code = OpCode::Constant,
    .mnemonic = "constant",
    .summary = "y = the given elements",
    .attrs = {{.name = "elided",
               .kind = AttrKind::String,
               .doc = "hash of the data, where it was left out of the text",
               .optional = true}},
    .infer = inferConstant,
    .eval = [](EvalContext &c) -> llvm::Error {
      if (!c.op().constant.valid())
        return c.error("the constant's data was elided from the text");
      c.output() = c.op().constant;
      return llvm::Error::success();
    },
};

} // namespace gpt2c
