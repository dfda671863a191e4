#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

static llvm::Error inferEmbed(InferContext &c) {
  using enum ops::Embed::Operand;
  const bool integers = isQuantised(c.dtype(Tokens));
  if (c.rank(Ids) != 2 || !isInteger(c.dtype(Ids)) || c.rank(Tokens) != 2 ||
      (!isFloat(c.dtype(Tokens)) && !integers))
    return c.error("expects ids[b, s] of integers and tokens[V, D] of i8 or floating-point "
                   "elements");
  const Attr *dtype = c.op().attr("dtype");
  if (integers != c.has(TokenScale) || integers != (dtype != nullptr))
    return c.error("tokens of i8, and no others, take their scales and the result's dtype");
  if (integers) {
    if (c.rank(TokenScale) != 2)
      return c.error("expects token_scale[V, groups]");
    if (auto group = scaleGroup(c, Tokens, TokenScale); !group)
      return group.takeError();
  }
  const DType type = dtype ? std::get<DType>(*dtype) : c.dtype(Tokens);
  if (!isFloat(type))
    return c.error("the result must be floating point");
  if (c.has(Positions)) {
    if (c.rank(Positions) != 2 || c.dtype(Positions) != type)
      return c.error("expects positions[P, D] of the result's element type");
    if (auto width = c.unify(c.shape(Tokens)[1], c.shape(Positions)[1]); !width)
      return width.takeError();
  }
  if (c.has(Positions) != (c.has(Past) || c.has(PositionIds)) ||
      (c.has(Past) && c.has(PositionIds)))
    return c.error("a table of positions takes either past or position_ids");
  c.setResult(type, {c.shape(Ids)[0], c.shape(Ids)[1], c.shape(Tokens)[1]});
  return llvm::Error::success();
}

static llvm::Error evalEmbed(EvalContext &c) {
  using enum ops::Embed::Operand;
  const Tensor &ids = c.input(Ids), &tokens = c.input(Tokens);
  int64_t batch = ids.dim(0), seq = ids.dim(1), width = tokens.dim(1);
  Tensor out(c.resultDType(), {batch, seq, width});
  const int64_t groups = c.has(TokenScale) ? c.input(TokenScale).dim(1) : 1;
  const bool fits = !c.has(TokenScale) || (c.input(TokenScale).dim(0) == tokens.dim(0) &&
                                           groups > 0 && width % groups == 0);
  if (!fits)
    return c.error("shapes do not fit");
  // Rows are looked up as stored: widening the whole tables for a few rows would cost more than the
  // rest of a step.
  auto row = [&](const Tensor &table, int64_t index) {
    int64_t length = table.dim(1);
    return Tensor(table.dtype(), {length},
                  static_cast<const char *>(table.raw()) + index * length * byteSize(table.dtype()),
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
      if (c.has(TokenScale)) {
        Tensor scale = row(c.input(TokenScale), id);
        for (int64_t d = 0; d < width; ++d)
          y[d] *= scale.data<T>()[d / (width / groups)];
      }
      if (!c.has(Positions))
        continue;
      // Padding on the right may reach past the table; its rows are never used.
      int64_t position = c.has(PositionIds) ? c.input(PositionIds).asInt(i)
                                            : c.input(Past).asInt(i / seq) + i % seq;
      Tensor place =
          row(c.input(Positions), std::clamp<int64_t>(position, 0, c.input(Positions).dim(0) - 1));
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
    .summary =
        "y[b, s] = tokens[ids[b, s]] + positions[position_ids[b, s], or past[b] + s]; tokens "
        "of i8 are multiplied by their scale",
    .operands = {{"ids"},
                 {.name = "tokens", .stored = true},
                 {.name = "positions", .kind = OperandSpec::Optional, .stored = true},
                 {"past", OperandSpec::Optional},
                 {"position_ids", OperandSpec::Optional},
                 {.name = "token_scale", .kind = OperandSpec::Optional, .single = true}},
    .attrs = {{.name = "dtype",
               .kind = AttrKind::DType,
               .doc = "of the result, where tokens are i8",
               .optional = true}},
    .traits = OwnStorage,
    .infer = inferEmbed,
    .eval = evalEmbed,
    .cost = [](const Op &op) -> Cost {
      const Type &y = op.result()->type;
      return {elementCount(y.shape), Dim(3 * byteSize(y.dtype)) * elementCount(y.shape)};
    },
};

} // namespace gpt2c
