#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error infer(InferContext &c) {
  if (c.rank(0) != 2 || !isInteger(c.dtype(0)) || c.rank(1) != 2 || !isFloat(c.dtype(1)))
    return c.error("expects ids[b, s] of integers and tokens[V, D]");
  if (c.has(2)) {
    if (c.rank(2) != 2 || c.dtype(2) != c.dtype(1))
      return c.error("expects positions[P, D] of the tokens' element type");
    if (auto width = c.unify(c.shape(1)[1], c.shape(2)[1]); !width)
      return width.takeError();
  }
  if (c.has(2) != (c.has(3) || c.has(4)) || (c.has(3) && c.has(4)))
    return c.error("a table of positions takes either past or position_ids");
  c.setResult(c.dtype(1), {c.shape(0)[0], c.shape(0)[1], c.shape(1)[1]});
  return llvm::Error::success();
}

static llvm::Error eval(EvalContext &c) {
  const Tensor &ids = c.input(0), &tokens = c.input(1);
  int64_t batch = ids.dim(0), seq = ids.dim(1), width = tokens.dim(1);
  Tensor out(c.resultDType(), {batch, seq, width});
  // Rows are looked up as stored: widening the whole tables for a few rows would cost more than the
  // rest of a step.
  auto row = [&](const Tensor &table, int64_t index) {
    return Tensor(table.dtype(), {width},
                  static_cast<const char *>(table.raw()) + index * width * byteSize(table.dtype()),
                  nullptr)
        .cast(out.dtype());
  };
  return dispatchFloat(c, out.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    for (int64_t i = 0; i < batch * seq; ++i) {
      int64_t id = ids.asInt(i);
      if (id < 0 || id >= tokens.dim(0))
        return c.error("token id " + llvm::Twine(id) + " is outside the vocabulary");
      T *y = out.data<T>() + i * width;
      Tensor token = row(tokens, id);
      std::copy_n(token.data<T>(), width, y);
      if (!c.has(2))
        continue;
      // Padding on the right may reach past the table; its rows are never used.
      int64_t position = c.has(4) ? c.input(4).asInt(i) : c.input(3).asInt(i / seq) + i % seq;
      Tensor place = row(c.input(2), std::clamp<int64_t>(position, 0, c.input(2).dim(0) - 1));
      for (int64_t d = 0; d < width; ++d)
        y[d] += place.data<T>()[d];
    }
    c.output() = out;
    return llvm::Error::success();
  });
}

const OpInfo opEmbed = {
    .code = OpCode::Embed,
    .mnemonic = "embed",
    .summary = "y[b, s] = tokens[ids[b, s]] + positions[position_ids[b, s], or past[b] + s]",
    .operands = {{"ids"},
                 {"tokens"},
                 {"positions", OperandSpec::Optional},
                 {"past", OperandSpec::Optional},
                 {"position_ids", OperandSpec::Optional}},
    .traits = OwnStorage,
    .infer = infer,
    .eval = eval,
    .cost = [](const Op &op) -> Cost {
      const Type &y = op.result()->type;
      return {elementCount(y.shape), Dim(3 * byteSize(y.dtype)) * elementCount(y.shape)};
    },
};

} // namespace gpt2c
