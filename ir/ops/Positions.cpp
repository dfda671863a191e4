#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opPositions = {
    .code = OpCode::Positions,
    .mnemonic = "positions",
    .summary = "y[b, s] = past[b] + s, i64",
    .operands = {{"past"}},
    .attrs = {{"seq", AttrKind::Dims, std::nullopt, "one number: the length of a row"}},
    .infer = [](InferContext &c) -> llvm::Error {
      if (c.rank(0) != 1 || !isInteger(c.dtype(0)) || c.op().dimsAttr("seq").size() != 1)
        return c.error("expects past[b] of integers and one length");
      c.setResult(DType::I64, {c.shape(0)[0], c.op().dimsAttr("seq")[0]});
      return llvm::Error::success();
    },
    .eval = [](EvalContext &c) -> llvm::Error {
      auto seq = c.dims("seq");
      if (!seq)
        return seq.takeError();
      int64_t batch = c.input(0).count(), length = seq->front();
      Tensor &out = c.allocate({batch, length});
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t s = 0; s < length; ++s)
          out.data<int64_t>()[b * length + s] = c.input(0).asInt(b) + s;
      return llvm::Error::success();
    },
};

} // namespace gpt2c
