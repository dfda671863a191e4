#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferArgMax(InferContext &c) {
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(0));
  if (!axis)
    return axis.takeError();
  if (c.op().dtypeAttr("dtype") != DType::I64 && c.op().dtypeAttr("dtype") != DType::I32)
    return c.error("an index is i32 or i64");
  Shape shape(c.shape(0));
  if (c.op().boolAttr("keepdims"))
    shape[*axis] = 1;
  else
    shape.erase(shape.begin() + *axis);
  c.setResult(c.op().dtypeAttr("dtype"), std::move(shape));
  return llvm::Error::success();
}

/// NaN never wins; a row of NaNs gives 0.
static llvm::Error evalArgMax(EvalContext &c) {
  const Tensor &x = c.input(0);
  int64_t axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + x.rank() : axis;
  bool last = c.op().boolAttr("select_last_index");
  llvm::SmallVector<int64_t, 4> shape(x.shape());
  int64_t size = x.dim(axis), inner = product(x.shape().drop_front(axis + 1));
  if (size == 0)
    return c.error("no elements along the axis");
  if (c.op().boolAttr("keepdims"))
    shape[axis] = 1;
  else
    shape.erase(shape.begin() + axis);
  Tensor &out = c.allocate(shape);
  return dispatch(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    for (int64_t o = 0, n = out.count(); o < n; ++o) {
      const T *p = x.data<T>() + o / inner * size * inner + o % inner;
      int64_t best = 0;
      bool found = false;
      for (int64_t i = 0; i < size; ++i) {
        T v = p[i * inner], top = p[best * inner];
        if (v == v && (!found || v > top || (last && v == top))) {
          best = i;
          found = true;
        }
      }
      if (out.dtype() == DType::I32)
        out.data<int32_t>()[o] = static_cast<int32_t>(best);
      else
        out.data<int64_t>()[o] = best;
    }
    return llvm::Error::success();
  });
}

const OpInfo opArgMax = {
    .code = OpCode::ArgMax,
    .mnemonic = "arg_max",
    .summary = "y = the index of the greatest element along an axis, the first of equals",
    .operands = {{"x"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(0))},
              {"keepdims", AttrKind::Bool, Attr(true)},
              {"select_last_index", AttrKind::Bool, Attr(false), "the last of equals"},
              {"dtype", AttrKind::DType, Attr(DType::I64), "i32 or i64"}},
    .traits = Reduction,
    .infer = inferArgMax,
    .eval = evalArgMax,
    .cost = reductionCost,
};

} // namespace gpt2c
