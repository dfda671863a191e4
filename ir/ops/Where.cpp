#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferWhere(InferContext &c) {
  using enum ops::Where::Operand;
  if (c.dtype(Condition) != DType::Bool)
    return c.error("the condition must be bool");
  if (c.dtype(A) != c.dtype(B))
    return c.error("the choices differ in element type");
  auto choices = c.broadcast(c.shape(A), c.shape(B));
  if (!choices)
    return choices.takeError();
  auto shape = c.broadcast(c.shape(Condition), *choices);
  if (!shape)
    return shape.takeError();
  auto out = concreteShape(*shape), s0 = concreteShape(c.shape(Condition)),
       s1 = concreteShape(c.shape(A)), s2 = concreteShape(c.shape(B));
  c.setResult(c.dtype(A), std::move(*shape));
  const Dims *test = c.content(Condition), *a = c.content(A), *b = c.content(B);
  if (!a || !b || !out || !s0 || !s1 || !s2)
    return llvm::Error::success();
  Dims content;
  bool known = true;
  forEachBroadcast(*out, {*s0, *s1, *s2}, [&](int64_t, llvm::ArrayRef<int64_t> i) {
    const Dim &x = (*a)[i[1]], &y = (*b)[i[2]];
    auto which = test ? (*test)[i[0]].constant() : std::nullopt;
    known &= which || x == y;
    content.push_back(which && *which == 0 ? y : x);
  });
  if (known)
    c.setContent(std::move(content));
  return llvm::Error::success();
}

static llvm::Error evalWhere(EvalContext &c) {
  using enum ops::Where::Operand;
  const Tensor &test = c.input(Condition), &a = c.input(A), &b = c.input(B);
  auto choices = broadcastShapes(a.shape(), b.shape());
  auto shape = choices ? broadcastShapes(test.shape(), *choices) : std::nullopt;
  if (!shape)
    return c.error("shapes do not broadcast");
  Tensor &out = c.allocate(*shape);
  withWord(byteSize(out.dtype()), [&](auto tag) {
    using Word = decltype(tag);
    Word *result = out.data<Word>();
    forEachBroadcastRun(
        *shape, {test.shape(), a.shape(), b.shape()},
        [&](int64_t first, int64_t n, llvm::ArrayRef<int64_t> at, llvm::ArrayRef<int64_t> step) {
          const uint8_t *t = test.data<uint8_t>() + at[0];
          const Word *x = a.data<Word>() + at[1], *y = b.data<Word>() + at[2];
          Word *z = result + first;
          for (int64_t i = 0; i < n; ++i)
            z[i] = t[i * step[0]] ? x[i * step[1]] : y[i * step[2]];
        });
  });
  return llvm::Error::success();
}

const OpInfo opWhere = {
    .code = OpCode::Where,
    .mnemonic = "where",
    .summary = "y = condition ? a : b",
    .operands = {{"condition"}, {"a"}, {"b"}},
    .traits = Elementwise,
    .infer = inferWhere,
    .eval = evalWhere,
    .cost = elementwiseCost,
};

} // namespace gpt2c
