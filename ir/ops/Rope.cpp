#include "ir/ops/Common.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

namespace gpt2c {

static llvm::Error inferRope(InferContext &c) {
  using enum ops::Rope::Operand;
  if (c.rank(X) != 3 || !isFloat(c.dtype(X)))
    return c.error("expects x[b, s, heads*d] of floating-point elements");
  if ((c.rank(Positions) != 2 && c.rank(Positions) != 1) || !isInteger(c.dtype(Positions)))
    return c.error("expects positions[b, s], [1, s] or past[b] of integers");
  if (c.rank(Cos) != 2 || !isFloat(c.dtype(Cos)) || c.rank(Sin) != 2 ||
      c.dtype(Sin) != c.dtype(Cos))
    return c.error("expects cos[P, r] and sin[P, r] of one floating-point element type");
  for (unsigned axis : {0u, 1u})
    if (auto d = c.unify(c.shape(Cos)[axis], c.shape(Sin)[axis]); !d)
      return d.takeError();
  int64_t d = c.op().intAttr("head_dim"), heads = c.op().intAttr("heads");
  auto width = c.shape(X)[2].constant(), pairs = c.shape(Cos)[1].constant(),
       rows = c.shape(Cos)[0].constant();
  if (d <= 0 || (width && *width % d != 0))
    return c.error("head_dim does not divide the width");
  if (heads < 0 || (width && heads * d > *width))
    return c.error("there are not " + llvm::Twine(heads) + " heads to turn");
  if (c.op().boolAttr("to_halves") && !c.op().boolAttr("interleaved"))
    return c.error("to_halves is for interleaved pairs");
  if (pairs && (*pairs < 1 || 2 * *pairs > d))
    return c.error("a head of " + llvm::Twine(d) + " elements has no " + llvm::Twine(*pairs) +
                   " pairs");
  if (rows && *rows < 1)
    return c.error("the tables are empty");
  if (c.op().operand(Scale)) {
    if (c.rank(Scale) != 2 || !isFloat(c.dtype(Scale)) || c.shape(Scale)[1] != Dim(d))
      return c.error("expects scale[n, head_dim] of floating-point elements");
    const auto normed = c.shape(Scale)[0].constant(), turned = heads   ? std::optional(heads)
                                                               : width ? std::optional(*width / d)
                                                                       : std::nullopt;
    if (normed && turned && *normed != *turned)
      return c.error("scale has " + llvm::Twine(*normed) + " rows for " + llvm::Twine(*turned) +
                     " heads");
  }
  Shape shape(c.shape(X));
  for (unsigned axis = 0; axis < c.rank(Positions); ++axis) {
    if (axis == 0 && c.rank(Positions) == 2 && c.shape(Positions)[0] == Dim(1))
      continue;
    auto dim = c.unify(shape[axis], c.shape(Positions)[axis]);
    if (!dim)
      return dim.takeError();
    shape[axis] = *dim;
  }
  c.setResult(c.dtype(X), shape);
  return llvm::Error::success();
}

/// x / sqrt(mean of x^2 + epsilon) * scale of a head of d elements, into `to`.
template <typename T>
static const T *normedHead(const T *x, const T *scale, int64_t d, double epsilon, T *to) {
  double squares = 0;
  for (int64_t i = 0; i < d; ++i)
    squares += double(x[i]) * x[i];
  const T r = static_cast<T>(1 / std::sqrt(squares / double(d) + epsilon));
  for (int64_t i = 0; i < d; ++i)
    to[i] = x[i] * r * scale[i];
  return to;
}

static llvm::Error evalRope(EvalContext &c) {
  using enum ops::Rope::Operand;
  const Tensor &x = c.input(X), &positions = c.input(Positions), &cosines = c.input(Cos),
               &sines = c.input(Sin);
  int64_t seq = x.dim(1), width = x.dim(2), rows = x.dim(0) * seq, d = c.op().intAttr("head_dim");
  int64_t places = cosines.dim(0), pairs = cosines.dim(1);
  const bool first = positions.rank() == 1; // of each sequence's first token
  const bool shared = !first && positions.dim(0) == 1;
  if (width % d != 0 || sines.shape() != cosines.shape() || places < 1 || 2 * pairs > d ||
      (!first && positions.dim(1) != seq) || (!shared && positions.dim(0) != x.dim(0)))
    return c.error("shapes do not fit");
  int64_t heads = c.op().intAttr("heads") ? c.op().intAttr("heads") : width / d;
  const bool normed = c.op().operand(Scale);
  const double epsilon = c.op().floatAttr("epsilon");
  if (normed && (c.input(Scale).dim(0) != heads || c.input(Scale).dim(1) != d))
    return c.error("shapes do not fit");
  bool interleaved = c.op().boolAttr("interleaved"),
       neighbours = interleaved && !c.op().boolAttr("to_halves");
  Tensor &out = c.allocate(x.shape());
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    std::copy_n(x.data<T>(), x.count(), out.data<T>());
    std::vector<T> head(d);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t position = first ? positions.asInt(row / seq) + row % seq
                               : positions.asInt(shared ? row % seq : row);
      int64_t place = std::abs(position);
      if (place >= places)
        return c.error("position " + llvm::Twine(position) + " is beyond the " +
                       llvm::Twine(places) + " of its tables; --max-context makes longer ones " +
                       "where angles are computed");
      const T *cosine = cosines.data<T>() + place * pairs, *sine = sines.data<T>() + place * pairs;
      const T sign = position < 0 ? -1 : 1;
      for (int64_t h = 0; h < heads; ++h) {
        const T *from = x.data<T>() + row * width + h * d;
        T *to = out.data<T>() + row * width + h * d;
        if (normed) {
          from = normedHead(from, c.input(Scale).data<T>() + h * d, d, epsilon, head.data());
          std::copy_n(from, d, to);
        }
        for (int64_t k = 0; k < pairs; ++k) {
          int64_t i = interleaved ? 2 * k : k, j = interleaved ? 2 * k + 1 : pairs + k;
          const T cos = cosine[k], sin = sign * sine[k];
          to[neighbours ? i : k] = from[i] * cos - from[j] * sin;
          to[neighbours ? j : pairs + k] = from[i] * sin + from[j] * cos;
        }
      }
    }
    return llvm::Error::success();
  });
}

/// The rows of the tables that are read, not the tables.
static Cost costRope(const Op &op) {
  using enum ops::Rope::Operand;
  const Type &x = op.result()->type, &table = op.operand(Cos)->type;
  Dim count = elementCount(x.shape);
  return {Dim(op.operand(Scale) ? 7 : 3) * count,
          Dim(2 * byteSize(x.dtype)) * count +
              Dim(2 * byteSize(table.dtype)) * x.shape[0] * x.shape[1] * table.shape[1]};
}

const OpInfo opRope = {
    .code = OpCode::Rope,
    .mnemonic = "rope",
    .summary =
        "rotary embedding of tokens at positions[b, s], or positions[b] + s: in each of the "
        "first heads of a row pair k of r becomes "
        "(x_i cos - x_j sin, x_i sin + x_j cos) with cos and sin [position, k] and "
        "(i, j) = (k, r + k), or (2k, 2k + 1) when interleaved, and then with to_halves goes "
        "to k and r + k; other elements stay. With scale each of those heads is normed first, "
        "x / sqrt(mean of x^2 + epsilon) * scale of the head. "
        "A position of -p turns back by the angles of p",
    .operands = {{"x"},
                 {"positions"},
                 {.name = "cos", .single = true},
                 {.name = "sin", .single = true},
                 {.name = "scale", .kind = OperandSpec::Optional, .single = true}},
    .attrs = {{"head_dim", AttrKind::Int},
              {"heads", AttrKind::Int, Attr(int64_t(0)), "heads of a row that turn; 0: all"},
              {"interleaved", AttrKind::Bool, Attr(false)},
              {"to_halves", AttrKind::Bool, Attr(false), "the result's pairs are in halves"},
              {"epsilon", AttrKind::Float, Attr(1e-5), "of the norm of heads"}},
    .infer = inferRope,
    .eval = evalRope,
    .cost = costRope,
};

} // namespace gpt2c
