#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// [start, end) within the rank, as ONNX clamps them.
static std::pair<int64_t, int64_t> range(const Op &op, int64_t rank) {
  auto clamp = [&](int64_t v) { return std::clamp(v < 0 ? v + rank : v, int64_t(0), rank); };
  int64_t start = clamp(op.intAttr("start"));
  int64_t end = op.hasAttr("end") ? clamp(op.intAttr("end")) : rank;
  return {start, std::max(start, end)};
}

const OpInfo opShape = {
    .code = OpCode::Shape,
    .mnemonic = "shape",
    .summary = "y = the dimensions of x from start to end, i64",
    .operands = {{"x"}},
    .attrs = {{"start", AttrKind::Int, Attr(int64_t(0))},
              {.name = "end", .kind = AttrKind::Int, .doc = "absent: the rank", .optional = true}},
    .infer = [](InferContext &c) -> llvm::Error {
      auto [start, end] = range(c.op(), c.rank(0));
      llvm::ArrayRef<Dim> dims = c.shape(0).slice(start, end - start);
      c.setResult(DType::I64, {Dim(dims.size())});
      c.setContent(dims.vec());
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) -> llvm::Error {
      auto [start, end] = range(c.op(), c.input(0).rank());
      llvm::ArrayRef<int64_t> dims = c.input(0).shape().slice(start, end - start);
      Tensor &out = c.allocate({int64_t(dims.size())});
      llvm::copy(dims, out.data<int64_t>());
      return llvm::Error::success();
    },
    .cost = [](const Op &op) { return Cost{0, Dim(8) * elementCount(op.result()->type.shape)}; },
};

} // namespace gpt2c
