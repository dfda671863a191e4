// recognise-rope: what is proven to be a rotary embedding (RopeForm.h) becomes rope, over rows
// [batch, tokens, heads * head_dim] and the cosines and sines that the graph has at each position.
// A remark for each kind says what it turns, by which frequencies, and at how many positions that
// was compared.
#include "passes/proof/RopeForm.h"
#include "passes/proof/masks/AttentionProbe.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

/// Four digits, without an exponent where the number is not small.
static std::string number(double v) {
  if (v == 0)
    return "0";
  double last = std::pow(10.0, std::floor(std::log10(std::abs(v))) - 3);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(v < 0.01 ? "%.4g" : "%.10g",
                                                 std::round(v / last) * last);
  return text;
}

/// "base 10000" where frequency k is base^(-k / r), else the first and the last.
static std::string describe(const std::vector<double> &frequencies) {
  double r = double(frequencies.size());
  double base = r > 1 ? std::pow(frequencies[1], -r) : 0;
  bool geometric = r > 1 && std::isfinite(base);
  for (size_t k = 0; geometric && k < frequencies.size(); ++k)
    geometric = std::abs(frequencies[k] * std::pow(base, double(k) / r) - 1) < 1e-3;
  return geometric ? "base " + number(base)
                   : "frequencies from " + number(frequencies.front()) + " to " +
                         number(frequencies.back());
}

static std::string describe(const RopeForm &form) {
  int64_t r = form.frequencies.size(), width = *form.x->type.shape.back().constant();
  std::string text =
      llvm::formatv("{0} of {1} elements, {2}", form.interleaved ? "neighbouring pairs" : "halves",
                    2 * r, describe(form.frequencies));
  if (2 * r < width)
    text += llvm::formatv(", {0} elements behind them stay", width - 2 * r);
  if (std::abs(form.scale - 1) > 1e-6)
    text += ", times " + number(form.scale);
  return text + llvm::formatv("; equal at all of {0} positions", form.positionsCompared).str();
}

/// What a wider type only repeats.
static Value *withoutWidening(Value *x, DType narrow) {
  while (Op *cast = x->def()) {
    if (!cast->is(OpCode::Cast) || cast->operand(0)->type.dtype != narrow ||
        byteSize(x->type.dtype) <= byteSize(narrow))
      break;
    x = cast->operand(0);
  }
  return x;
}

/// Positions as [batch, tokens], or [1, tokens] where all sequences have the same. Null where they
/// have another shape.
static llvm::Expected<Value *> positionRows(Builder &b, const RopeForm &form) {
  Dim batch = form.x->type.shape[0], tokens = form.x->type.shape[form.tokenAxis];
  Value *positions = form.positions;
  if (!positions) {
    auto range = b.value(OpCode::Range, {},
                         {{"start", Dims{0}}, {"limit", Dims{tokens}}, {"delta", Dims{1}}});
    if (!range)
      return range.takeError();
    positions = *range;
  }
  Dim count = elementCount(positions->type.shape);
  if (count != tokens && count != batch * tokens)
    return nullptr;
  Dim rows = count == tokens ? Dim(1) : batch;
  return b.value(OpCode::Reshape, {positions}, {{"shape", Dims{rows, tokens}}});
}

/// x, with its tokens in front of its heads, as rows; turned; back in the shape of x. Null where
/// its axes are others.
static llvm::Expected<Value *> turned(Builder &b, const RopeForm &form, DType type) {
  const Shape &shape = form.x->type.shape;
  bool headsFirst = form.tokenAxis == 2;
  if (shape.size() > 4 || (headsFirst && shape.size() != 4) || (form.tokenAxis != 1 && !headsFirst))
    return nullptr;
  Dim heads = shape.size() == 3 ? Dim(1) : shape[headsFirst ? 1 : 2], width = shape.back();
  if (!heads.isConstant() || !width.isConstant())
    return nullptr;
  auto positions = positionRows(b, form);
  if (!positions || !*positions)
    return positions;
  Value *x = withoutWidening(form.x, type);
  auto swap = [&]() -> llvm::Error {
    if (!headsFirst)
      return llvm::Error::success();
    auto y = b.value(OpCode::Transpose, {x}, {{"perm", Dims{0, 2, 1, 3}}});
    if (y)
      x = *y;
    return y.takeError();
  };
  auto reshape = [&](Dims to) -> llvm::Error {
    auto y = b.value(OpCode::Reshape, {x}, {{"shape", std::move(to)}});
    if (y)
      x = *y;
    return y.takeError();
  };
  const Dim &tokens = shape[form.tokenAxis];
  if (llvm::Error e = swap())
    return e;
  if (llvm::Error e = reshape({shape[0], tokens, heads * width}))
    return e;
  auto y = b.value(OpCode::Rope, {x, *positions, b.constant(form.cos), b.constant(form.sin)},
                   {{"head_dim", *width.constant()}, {"interleaved", form.interleaved}});
  if (!y)
    return y;
  x = *y;
  if (llvm::Error e = reshape(shape.size() == 3 ? Dims{shape[0], tokens, width}
                                                : Dims{shape[0], tokens, heads, width}))
    return e;
  if (llvm::Error e = swap())
    return e;
  if (x->type.dtype == type)
    return x;
  return b.value(OpCode::Cast, {x}, {{"to", type}});
}

/// Runs both on random numbers and on positions of all kinds, with several sequences and heads.
static bool turnAlike(const Function &f, const RopeForm &form, Value *root, Value *rope,
                      std::string &why) {
  for (unsigned trial = 0; trial < 4; ++trial) {
    SymbolMap symbols = probeSymbols(f, trial);
    auto shape = concreteShape(form.x->type, symbols);
    if (!shape)
      return why = "it is too large to try it out", false;
    Executor::Bindings bound{{form.x, randomTensor(*shape, 7 + trial)}};
    if (form.positions) {
      auto places = concreteShape(form.positions->type, symbols);
      if (!places)
        return why = "its positions are too many to try it out", false;
      Tensor t(DType::I64, *places);
      for (int64_t i = 0; i < t.count(); ++i)
        t.data<int64_t>()[i] = (i * 7919 + trial * 104729) % form.positionsCompared;
      bound[form.positions] = t.cast(form.positions->type.dtype);
    }
    auto expected = probe(f, root, bound, symbols, &why),
         got = probe(f, rope, bound, symbols, &why);
    if (!expected || !got)
      return false;
    double bound6 = 1e-6 * std::max(1.0, std::abs(form.scale));
    for (int64_t i = 0; i < expected->count(); ++i)
      if (!(std::abs(expected->data<double>()[i] - got->data<double>()[i]) <= bound6))
        return why = "its factors are not those of each token's position", false;
  }
  return true;
}

/// y, what `rope` gives as [batch, heads, tokens, head_dim], where neighbouring heads of x are
/// copies of one: turned before they are copied. `y` itself where they are not.
static llvm::Expected<Value *> turnedOnce(Builder &b, Value *x, Op *rope, Value *y) {
  Obstacle why;
  auto l = probeHeads(b.function(), x, false, why);
  if (!l || l->group == 1 || l->pastSource || l->source->type.rank() != 3 || l->factor != 1 ||
      l->rounding || x->type.dtype != y->type.dtype)
    return y;
  const Dim batch = x->type.shape[0], tokens = x->type.shape[2], heads = l->sourceHeads(),
            group = l->group, width = l->headDim;
  Value *rows = l->source;
  auto then = [&](OpCode code, llvm::ArrayRef<Value *> operands,
                  llvm::ArrayRef<NamedAttr> attrs) -> llvm::Error {
    auto made = b.value(code, operands, attrs);
    if (made)
      rows = *made;
    return made.takeError();
  };
  if (rows->type.shape.back() != heads * width)
    if (llvm::Error e = then(OpCode::Slice, {rows},
                             {{"starts", Dims{l->offset}},
                              {"ends", Dims{l->offset + l->sourceHeads() * l->headDim}},
                              {"axes", Dims{2}}}))
      return e;
  llvm::SmallVector<Value *> operands(rope->operands());
  operands[ops::Rope::X] = rows;
  if (llvm::Error e = then(OpCode::Rope, operands, rope->givenAttrs()))
    return e;
  if (llvm::Error e =
          then(OpCode::Reshape, {rows}, {{"shape", Dims{batch, tokens, heads, Dim(1), width}}}))
    return e;
  if (llvm::Error e =
          then(OpCode::Expand, {rows}, {{"shape", Dims{batch, tokens, heads, group, width}}}))
    return e;
  if (llvm::Error e =
          then(OpCode::Reshape, {rows}, {{"shape", Dims{batch, tokens, heads * group, width}}}))
    return e;
  if (llvm::Error e = then(OpCode::Transpose, {rows}, {{"perm", Dims{0, 2, 1, 3}}}))
    return e;
  return rows;
}

/// Whether `root` became a rope; else `why` says what was in the way.
static llvm::Expected<bool> replace(Function &f, const RopeForm &form, Op *root, std::string &why) {
  Builder b(f, root);
  auto y = turned(b, form, root->result()->type.dtype);
  if (!y)
    return y.takeError();
  bool same = *y && (*y)->type == root->result()->type;
  if (!same)
    why = "its axes are not those of sequences, heads and tokens";
  if (same && turnAlike(f, form, root->result(), *y, why)) {
    auto isRope = [](const Op *op) { return op->is(OpCode::Rope); };
    llvm::Expected<Value *> once = *y;
    if (form.tokenAxis == 2)
      once = turnedOnce(b, form.x, *llvm::find_if(b.created(), isRope), *y);
    if (!once)
      return once.takeError();
    adoptLocations(b.created(), form.ops);
    root->result()->replaceAllUsesWith(*once);
    return true;
  }
  for (Op *op : llvm::reverse(b.created()))
    f.erase(op);
  return false;
}

/// Neighbouring pairs are an axis of two: [.., n, 2]. Where `reshape` makes or ends it and regroups
/// other axes at once, as simplify merges them, there is a value [.., 2 n] in between.
static llvm::Error splitPairs(Function &f, Op *reshape) {
  if (!reshape->hasAttr("shape"))
    return llvm::Error::success();
  Value *x = reshape->operand(0), *y = reshape->result();
  auto joined = [](const Shape &pairs) -> std::optional<Dims> {
    if (pairs.size() < 4 || pairs.back() != Dim(2) || !pairs[pairs.size() - 2].isConstant())
      return std::nullopt;
    Dims shape(pairs.begin(), pairs.end() - 1);
    shape.back() = shape.back() * Dim(2);
    return shape;
  };
  auto takesParts = [&](const Use &u) {
    return u.operand == 0 && (u.op->is(OpCode::Slice) || u.op->is(OpCode::Gather));
  };
  auto from = x->def() && x->def()->is(OpCode::Concat) ? joined(x->type.shape) : std::nullopt,
       to = llvm::any_of(y->uses(), takesParts) ? joined(y->type.shape) : std::nullopt;
  auto &middle = from ? from : to;
  if (!middle ||
      llvm::ArrayRef<Dim>(*middle) == llvm::ArrayRef<Dim>(from ? y->type.shape : x->type.shape))
    return llvm::Error::success();
  Builder b(f, reshape);
  b.setLocations(reshape->locations);
  auto between = b.value(OpCode::Reshape, {x}, {{"shape", *middle}});
  if (!between)
    return between.takeError();
  reshape->setOperand(0, *between);
  return llvm::Error::success();
}

llvm::Error recogniseRope(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> reshapes;
    for (auto &op : f->ops())
      if (op->is(OpCode::Reshape))
        reshapes.push_back(op.get());
    for (Op *op : reshapes)
      if (llvm::Error e = splitPairs(*f, op))
        return e;
    llvm::DenseSet<const Op *> inside;
    llvm::MapVector<llvm::StringRef, llvm::SmallVector<llvm::StringRef>> kinds;
    llvm::MapVector<llvm::StringRef, unsigned> counts;
    llvm::SmallVector<Op *> ops;
    for (auto &op : f->ops())
      ops.push_back(op.get());
    for (Op *op : llvm::reverse(ops)) {
      std::string why;
      if (inside.contains(op))
        continue;
      auto form = ropeForm(*f, op, ctx.options().maxContext, why);
      if (form) {
        auto done = replace(*f, *form, op, why);
        if (!done)
          return done.takeError();
        inside.insert(form->ops.begin(), form->ops.end());
        if (*done) {
          llvm::StringRef kind = intern(describe(*form));
          kinds[kind].assign(op->locations.begin(), op->locations.end());
          ++counts[kind];
          continue;
        }
      }
      if (!why.empty())
        ctx.missed("rope: " + op->describe() + " turns pairs of elements, but " + why,
                   op->locations)
            .of("rope")
            .after("pairs of elements")
            .stoppedBy({why, op});
    }
    for (auto &[kind, nodes] : kinds)
      ctx.note("rope: " + llvm::Twine(counts[kind]) + " rotary embedding" +
                   (counts[kind] == 1 ? ": " : "s: ") + kind,
               nodes);
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
