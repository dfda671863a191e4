#include "ir/Activations.h"
#include "ir/ops/Common.h"
#include "ir/ops/QuantizedProduct.h"

namespace gpt2c {

static llvm::Error inferQuantizedLinear(InferContext &c) {
  using enum ops::QuantizedLinear::Operand;
  auto shape = inferQuantizedProduct(c, SumOffset, WZero);
  if (!shape)
    return shape.takeError();
  if (c.has(Residual)) {
    if (c.rank(Residual) != shape->size() || !isFloat(c.dtype(Residual)))
      return c.error("residual must have the shape of the result");
    for (unsigned i = 0; i < shape->size(); ++i) {
      auto d = c.unify((*shape)[i], c.shape(Residual)[i]);
      if (!d)
        return d.takeError();
      (*shape)[i] = *d;
    }
  }
  const Attr *dtype = c.op().attr("dtype");
  if (!dtype && !isFloat(c.dtype(X)))
    return c.error("quantised x needs the result's dtype");
  if (dtype && !isFloat(std::get<DType>(*dtype)))
    return c.error("the result must be floating point");
  c.setResult(dtype ? std::get<DType>(*dtype) : c.dtype(X), std::move(*shape));
  return llvm::Error::success();
}

static llvm::Error evalQuantizedLinear(EvalContext &c) {
  using enum ops::QuantizedLinear::Operand;
  auto y = evalQuantizedProduct(c, SumOffset, WZero);
  if (!y)
    return y.takeError();
  if (c.has(Residual)) {
    const Tensor residual = c.input(Residual).cast(y->dtype());
    if (residual.shape() != y->shape())
      return c.error("shapes do not fit");
    if (llvm::Error e = dispatchFloat(c, y->dtype(), [&](auto tag) -> llvm::Error {
          using T = decltype(tag);
          for (int64_t i = 0, n = y->count(); i < n; ++i)
            y->data<T>()[i] += residual.data<T>()[i];
          return llvm::Error::success();
        }))
      return e;
  }
  c.output() = *y;
  return llvm::Error::success();
}

const OpInfo opQuantizedLinear = {
    .code = OpCode::QuantizedLinear,
    .mnemonic = "quantized_linear",
    .summary = "y = activation(sum_g x_scale[g] w_scale[g] (product of the steps of group g + "
               "sum_offset) + bias) + residual; floating-point x is quantised as `quantize` does "
               "to w's type, or for x_group -1 multiplied by (w - w_zero) w_scale",
    .operands = {{"x"},
                 {"w"},
                 {.name = "w_scale", .single = true},
                 {.name = "x_scale", .kind = OperandSpec::Optional, .single = true},
                 {"bias", OperandSpec::Optional},
                 {"residual", OperandSpec::Optional},
                 {"sum_offset", OperandSpec::Optional},
                 {"w_zero", OperandSpec::Optional}},
    .attrs = {{"activation", AttrKind::String, Attr("none"), activationNames},
              {"x_group", AttrKind::Int, Attr(int64_t(-1)),
               "elements of a row of floating-point x that share a scale when it is quantised; 0: "
               "all, -1: x is not quantised"},
              {.name = "dtype",
               .kind = AttrKind::DType,
               .doc = "of the result; absent: that of floating-point x",
               .optional = true}},
    .infer = inferQuantizedLinear,
    .eval = evalQuantizedLinear,
    .cost = quantizedProductCost,
};

} // namespace gpt2c
