// split-heads: queries, keys and values that stand beside each other within every head of one
// product (GPT-NeoX, BLOOM, Falcon),
//   y = linear(x, w, b) as [.., heads, q k v], of which each takes its elements,
// become products of their own, of the rows of w that are theirs:
//   q = linear(x, w[rows of q], b[rows of q]) as [.., heads, head_dim]
// What is taken is found by following the copies (proof/Element.h), for every length and number of
// sequences; columns that stand next to each other become a slice of the product. Only what goes to
// different operands of attention is taken apart: elements that a rotary embedding turns stay
// together.
//
// Termination: nothing takes parts of heads of such a product any more.
#include "passes/fuse/MergedProduct.h"
#include "passes/proof/Element.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace gpt2c {

static bool regroups(const Op *op) {
  return op->is(OpCode::Transpose) || (op->is(OpCode::Reshape) && op->hasAttr("shape"));
}

/// Whether `op` takes part of its first operand, at places that are constant.
static bool selects(const Op *op) {
  if (op->is(OpCode::Gather))
    return constantOp(op->operand(ops::Gather::Indices));
  return op->is(OpCode::Slice) && op->hasAttr("starts") && op->hasAttr("ends") &&
         op->hasAttr("axes");
}

/// What is selected of `from` behind copies that only regroup it; false where something else reads
/// it.
static bool collectParts(Value *from, bool regrouped, llvm::SmallVectorImpl<Value *> &parts) {
  return llvm::all_of(from->uses(), [&](const Use &u) {
    if (u.operand == 0 && regroups(u.op))
      return collectParts(u.op->result(), true, parts);
    if (u.operand != 0 || !regrouped || !selects(u.op))
      return false;
    parts.push_back(u.op->result());
    return true;
  });
}

namespace {

enum Role : unsigned { Queries = 1, Keys = 2, Values = 4 };

/// Columns of a product as another value has them: [batch, tokens, columns..] with axes transposed.
struct HeadColumns {
  Value *value;
  llvm::SmallVector<int64_t, 5> shape; // behind batch and tokens
  std::vector<int64_t> perm;           // from [batch, tokens, columns..] to the value's axes
  std::vector<int64_t> columns;
};

} // namespace

/// The operands of attention that `v` reaches without another product.
static unsigned rolesOf(Value *v) {
  auto isProduct = [](const Value *u) {
    return u->def()->is(OpCode::MatMul) || u->def()->is(OpCode::Linear);
  };
  auto isShares = [&](Value *a) {
    return llvm::any_of(backwardSlice(a, isProduct).ops, [](const Op *op) {
      return op->is(OpCode::Softmax) || op->is(OpCode::Exp);
    });
  };
  unsigned roles = 0;
  llvm::SmallVector<Value *> todo{v};
  llvm::SmallPtrSet<Value *, 16> seen{v};
  while (!todo.empty())
    for (const Use &u : todo.pop_back_val()->uses()) {
      if (u.op->is(OpCode::MatMul))
        roles |= u.operand == ops::MatMul::A               ? Queries
                 : isShares(u.op->operand(ops::MatMul::A)) ? Values
                                                           : Keys;
      else if (!u.op->is(OpCode::Linear))
        for (Value *r : u.op->results())
          if (seen.insert(r).second)
            todo.push_back(r);
    }
  return roles;
}

/// Which columns of `product` [batch, tokens, N] the elements of `v` are copies of, each of its own
/// sequence and token.
static std::optional<HeadColumns> columnsIn(Value *product, Value *v) {
  const Dim &batch = product->type.shape[0], &tokens = product->type.shape[1];
  HeadColumns out{v, {}, {}, {}};
  std::vector<int64_t> axes; // of v that are columns
  int64_t batchAxis = -1, tokenAxis = -1;
  for (auto [i, d] : llvm::enumerate(v->type.shape)) {
    if (batchAxis < 0 && d == batch)
      batchAxis = i;
    else if (tokenAxis < 0 && d == tokens)
      tokenAxis = i;
    else if (auto n = d.constant())
      axes.push_back(i), out.shape.push_back(*n);
    else
      return std::nullopt;
  }
  if (batchAxis < 0 || tokenAxis < 0)
    return std::nullopt;
  out.perm.resize(v->type.rank());
  out.perm[batchAxis] = 0, out.perm[tokenAxis] = 1;
  for (auto [i, axis] : llvm::enumerate(axes))
    out.perm[axis] = int64_t(i) + 2;
  int64_t count = 1;
  for (int64_t n : out.shape)
    count *= n;
  Elements elements;
  elements.stopAt(product);
  auto at = elements.variablesOf(v);
  Elements::Ref e = elements.at(v, at);
  if (e->kind != Element::Read || e->operands[0] != at[batchAxis] ||
      e->operands[1] != at[tokenAxis])
    return std::nullopt;
  const int64_t width = *product->type.shape[2].constant();
  SymbolMap symbols;
  for (int64_t c = 0; c < count; ++c) {
    int64_t rest = c;
    for (size_t i = axes.size(); i-- > 0; rest /= out.shape[i])
      if (auto symbol = at[axes[i]]->number.asSymbol())
        symbols[*symbol] = rest % out.shape[i];
    auto column = valueOf(e->operands[2], symbols);
    if (!column || *column < 0 || *column >= width)
      return std::nullopt;
    out.columns.push_back(*column);
  }
  return out;
}

static bool isRun(llvm::ArrayRef<int64_t> columns) {
  for (size_t i = 1; i < columns.size(); ++i)
    if (columns[i] != columns[0] + int64_t(i))
      return false;
  return true;
}

/// Columns of the product: next to each other, or as one of its own.
static llvm::Expected<Value *> columnsOf(Value *product, llvm::ArrayRef<int64_t> columns, bool next,
                                         Builder &b) {
  if (!next)
    return productOfColumns(product, columns, b);
  return b.value(
      OpCode::Slice, {product},
      {{"starts", Dims{columns.front()}}, {"ends", Dims{columns.back() + 1}}, {"axes", Dims{2}}});
}

/// `part` of columns that stand next to each other in `product`, or of a product of its own.
static llvm::Error takeOut(Function &f, Value *product, const HeadColumns &part, bool next) {
  Builder b(f, part.value->def());
  auto own = columnsOf(product, part.columns, next, b);
  if (!own || !*own)
    return own.takeError();
  const Shape &s = product->type.shape;
  Dims shape{s[0], s[1]};
  shape.insert(shape.end(), part.shape.begin(), part.shape.end());
  auto heads = b.value(OpCode::Reshape, {*own}, {{"shape", shape}});
  if (!heads)
    return heads.takeError();
  auto y =
      b.value(OpCode::Transpose, {*heads}, {{"perm", Dims(part.perm.begin(), part.perm.end())}});
  if (!y)
    return y.takeError();
  adoptLocations(b.created(), {part.value->def()});
  part.value->replaceAllUsesWith(*y);
  return llvm::Error::success();
}

static llvm::Error splitProduct(Function &f, Value *product) {
  llvm::SmallVector<Value *> values;
  if (product->type.rank() != 3 || !product->type.shape.back().isConstant() ||
      !collectParts(product, false, values) || values.size() < 2)
    return llvm::Error::success();
  unsigned taken = 0;
  llvm::SmallVector<HeadColumns> parts;
  bool interleaved = false;
  for (Value *v : values) {
    const unsigned roles = rolesOf(v);
    auto part =
        llvm::popcount(roles) == 1 && !(taken & roles) ? columnsIn(product, v) : std::nullopt;
    if (!part)
      return llvm::Error::success();
    taken |= roles;
    interleaved |= !isRun(part->columns);
    parts.push_back(std::move(*part));
  }
  for (const HeadColumns &part : parts)
    if (llvm::Error e = takeOut(f, product, part, !interleaved))
      return e;
  return llvm::Error::success();
}

llvm::Error splitHeads(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    f->eraseDeadOps();
    llvm::SmallVector<Op *> products;
    for (auto &op : f->ops())
      if (op->is(OpCode::Linear))
        products.push_back(op.get());
    for (Op *product : products)
      if (llvm::Error e = splitProduct(*f, product->result()))
        return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
