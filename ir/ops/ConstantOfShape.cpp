#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferConstantOfShape(InferContext &c) {
  if (!listGiven(c.op(), "shape", ops::ConstantOfShape::Shape))
    return c.error("needs the operand or the attribute 'shape'");
  Shape shape;
  DType dtype = c.op().dtypeAttr("dtype");
  if (auto dims = knownList(c, "shape", ops::ConstantOfShape::Shape)) {
    shape.assign(dims->begin(), dims->end());
    for (const Dim &d : shape)
      if (auto v = d.constant(); v && *v < 0)
        return c.error("negative dimension " + d.str());
  } else {
    auto length = rankFromLength(c, ops::ConstantOfShape::Shape);
    if (!length)
      return length.takeError();
    for (int64_t i = 0; i < *length; ++i)
      shape.push_back(c.unknown(i));
  }
  auto count = elementCount(shape).constant();
  c.setResult(dtype, std::move(shape));
  if (count && *count <= 256 && !isFloat(dtype))
    c.setContent(Dims(*count, Dim(static_cast<int64_t>(c.op().floatAttr("value")))));
  return llvm::Error::success();
}

static llvm::Error evalConstantOfShape(EvalContext &c) {
  auto shape = listValue(c, "shape", ops::ConstantOfShape::Shape);
  if (!shape)
    return shape.takeError();
  for (int64_t d : *shape)
    if (d < 0)
      return c.error("negative dimension " + llvm::Twine(d));
  Tensor value = Tensor::scalar(c.op().floatAttr("value")).cast(c.resultDType());
  Tensor &out = c.allocate(*shape);
  withWord(byteSize(out.dtype()), [&](auto tag) {
    using Word = decltype(tag);
    std::fill_n(out.data<Word>(), out.count(), *value.data<Word>());
  });
  return llvm::Error::success();
}

const OpInfo opConstantOfShape = {
    .code = OpCode::ConstantOfShape,
    .mnemonic = "constant_of_shape",
    .summary = "y = a shape filled with one value",
    .operands = {{"shape", OperandSpec::Optional}},
    .attrs = {{.name = "shape",
               .kind = AttrKind::Dims,
               .doc = "instead of the operand",
               .optional = true},
              {"value", AttrKind::Float, Attr(0.0)},
              {"dtype", AttrKind::DType, Attr(DType::F32)}},
    .infer = inferConstantOfShape,
    .eval = evalConstantOfShape,
};

} // namespace gpt2c
