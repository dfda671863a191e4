#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opDimValues = {
    .code = OpCode::DimValues,
    .mnemonic = "dim_values",
    .summary = "y = the values of symbolic dimensions, i64",
    .attrs = {{"values", AttrKind::Dims},
              {"scalar", AttrKind::Bool, Attr(false), "rank 0 instead of rank 1"}},
    .infer = [](InferContext &c) -> llvm::Error {
      Dims values = c.op().dimsAttr("values");
      bool scalar = c.op().boolAttr("scalar");
      if (scalar && values.size() != 1)
        return c.error("a scalar has one value");
      c.setResult(DType::I64, scalar ? Shape() : Shape{Dim(values.size())});
      c.setContent(std::move(values));
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) -> llvm::Error {
      auto values = c.dims("values");
      if (!values)
        return values.takeError();
      llvm::SmallVector<int64_t, 1> shape;
      if (!c.op().boolAttr("scalar"))
        shape.push_back(values->size());
      Tensor &out = c.allocate(shape);
      std::copy(values->begin(), values->end(), out.data<int64_t>());
      return llvm::Error::success();
    },
};

} // namespace gpt2c
