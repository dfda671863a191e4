// extend-rows: @extend from @prefill, the same over a list of new tokens of any sequences
//   @extend(ids[1, rows], positions[1, rows], kv, pieces[n, 4], tables[t, m], last[segments])
//     -> next[segments], logits[segments, vocabulary] of the rows `last`
// where kv is the state in pages, T[pages, layers, 2, heads, pageTokens, head_dim], updated in
// place, tables[i] are the pages of a sequence in the order of its tokens, and pieces say which
// rows are which tokens of which sequence (append_attention). positions are those of the pieces.
//
// All ops but attention and what takes last rows treat every row by itself; where one does not,
// there is no @extend and a remark says so.
#include "ir/FunctionNames.h"
#include "ir/ops/PagedAttention.h"
#include "passes/Pass.h"

#include "ir/Builder.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Tokens of a page: long enough for reads of whole lines, short enough to waste little at the end
/// of a sequence.
constexpr int64_t pageTokens = 64;

/// True when an axis of x, given as an attribute, is its last.
static bool isLast(const Value *x, int64_t axis) {
  return axis == -1 || axis + 1 == int64_t(x->type.rank());
}

/// A constant of one row for all.
static bool isOneRow(const Value *v) {
  return v->def() && v->def()->is(OpCode::Constant) &&
         llvm::all_of(llvm::drop_end(v->type.shape, v->type.rank() ? 1 : 0),
                      [](const Dim &d) { return d == Dim(1); });
}

/// One element for each row of y, which has more.
static bool isColumn(const Value *v, const Value *y) {
  const llvm::ArrayRef<Dim> of = v->type.shape, rows = y->type.shape;
  return of.size() == rows.size() && !of.empty() && of.back() == Dim(1) &&
         of.drop_back() == rows.drop_back();
}

/// Whether a reduction is of rows, whose axis stays.
static bool reducesRows(const Op &op) {
  const Value *x = op.operand(0);
  return op.boolAttr("keepdims") && op.hasAttr("axes") && op.dimsAttr("axes").size() == 1 &&
         op.dimsAttr("axes")[0].constant() && isLast(x, *op.dimsAttr("axes")[0].constant());
}

/// Whether each row of the results of `op` follows from the same row of its operands.
static bool isRowWise(const Op &op) {
  const Value *x = op.operand(0), *y = op.result();
  switch (op.code()) {
  case OpCode::Linear:
  case OpCode::RmsNorm:
  case OpCode::AddLayerNorm:
  case OpCode::Gated:
  case OpCode::Quantize:
  case OpCode::QuantizedLinear:
  case OpCode::RequantizedLinear:
  case OpCode::QuantizedLayerNorm:
    return true;
  case OpCode::Dequantize: // of weights
    return x->def() && x->def()->is(OpCode::Constant);
  case OpCode::LayerNorm:
  case OpCode::ArgMax:
  case OpCode::Concat:
  case OpCode::Softmax:
    return isLast(x, op.intAttr("axis"));
  case OpCode::ReduceSum:
  case OpCode::ReduceMean:
  case OpCode::ReduceMax:
  case OpCode::ReduceMin:
  case OpCode::ReduceProd:
    return reducesRows(op);
  case OpCode::Slice:
    return op.hasAttr("axes") && op.dimsAttr("axes").size() == 1 &&
           op.dimsAttr("axes")[0].constant() && isLast(x, *op.dimsAttr("axes")[0].constant());
  case OpCode::Gather: // of columns
    return op.operand(ops::Gather::Indices)->def() &&
           op.operand(ops::Gather::Indices)->def()->is(OpCode::Constant) &&
           isLast(x, op.intAttr("axis"));
  default:
    return op.info().has(Elementwise) && llvm::all_of(op.operands(), [&](const Value *v) {
             return !v || v->type.shape == y->type.shape || isOneRow(v) || isColumn(v, y);
           });
  }
}

namespace {

/// Builds @extend op by op.
class RowsBuilder {
public:
  RowsBuilder(const Function &prefill, llvm::StringRef name)
      : prefill_(prefill), f_(std::make_unique<Function>(name.str())), b_(*f_) {}

  /// Null where `obstacle()` says why there is none.
  llvm::Expected<std::unique_ptr<Function>> build() {
    if (!addArguments())
      return nullptr;
    for (auto &op : prefill_.ops()) {
      if (op->is(OpCode::Return))
        break;
      b_.setLocations(op->locations);
      auto done = add(*op);
      if (!done)
        return done.takeError();
      if (!*done)
        return nullptr;
    }
    llvm::SmallVector<Value *> returned;
    for (Value *v : prefill_.returned())
      returned.push_back(copies_.lookup(v));
    b_.ret(returned);
    f_->resultNames = prefill_.resultNames;
    return std::move(f_);
  }
  const Obstacle &obstacle() const { return obstacle_; }

private:
  bool refuse(std::string why, const Op *op = nullptr) {
    obstacle_ = {std::move(why), op};
    return false;
  }

  bool addArguments() {
    const Value *ids = prefill_.argument("ids"), *kv = prefill_.argument("kv");
    past_ = prefill_.argument("past"), length_ = prefill_.argument("length");
    if (!ids || !kv || !past_ || !length_ || !ids->type.shape[0].asSymbol() ||
        !ids->type.shape[1].asSymbol())
      return refuse("");             // kv-transform has said what it takes
    const Shape &s = kv->type.shape; // [layers, 2, slots, heads, context, head_dim]
    auto context = s[4].constant();
    if (!context)
      return refuse("the context is not known");
    const Dim rows = Dim::symbol("rows");
    const DType i32 = DType::I32;
    copies_[ids] = f_->addArgument({i32, {Dim(1), rows}}, "ids");
    positions_ = f_->addArgument({i32, {Dim(1), rows}}, "positions");
    const Dim pages = Dim::symbol("pages");
    copies_[kv] =
        f_->addArgument({kv->type.dtype, {pages, s[0], s[1], s[3], Dim(pageTokens), s[5]}}, "kv");
    pieces_ = f_->addArgument({i32, {Dim::symbol("pieces"), Dim(AttentionPiece::words)}}, "pieces");
    tables_ = f_->addArgument(
        {i32, {Dim::symbol("sequences"), Dim((*context + pageTokens - 1) / pageTokens)}}, "tables");
    last_ = f_->addArgument({i32, {Dim::symbol("segments")}}, "last");
    return true;
  }

  /// The rows of x that are last of their segment: [segments, D].
  llvm::Expected<Value *> lastRows(Value *x) {
    const Shape &s = x->type.shape;
    assert(s.size() == 3 && "of heads no last rows are taken");
    auto flat = b_.value(OpCode::Reshape, {x}, {{"shape", Dims{s[1], s[2]}}});
    if (!flat)
      return flat;
    return b_.value(OpCode::Gather, {*flat, last_}, {{"axis", int64_t(0)}});
  }

  /// Attention of any form; whether it could be added.
  llvm::Expected<bool> addAttention(const Op &op) {
    using enum ops::AppendAttention::Operand;
    const bool quantised = op.is(OpCode::QuantizedAppendAttention);
    const Value *length = quantised ? op.operand(ops::QuantizedAppendAttention::Length)
                                    : op.operand(ops::AppendAttention::Length);
    if (op.operand(Past) != past_ || op.operand(KeyMask) || (length && length != length_))
      return refuse(op.describe() + " sees other keys than those before its tokens", &op);
    if (quantised && op.operand(ops::QuantizedAppendAttention::YZero))
      return refuse(op.describe() + " is quantised with a zero point", &op);
    auto paged = b_.create(
        OpCode::AppendAttention,
        {copies_.lookup(op.operand(Kv)), copies_.lookup(op.operand(Qkv)), pieces_, tables_},
        {{"layer", op.intAttr("layer")},
         {"num_heads", op.intAttr("num_heads")},
         {"scale", op.floatAttr("scale")},
         {"window", op.intAttr("window")},
         {"soft_cap", op.floatAttr("soft_cap")},
         {"paged", true}});
    if (!paged)
      return paged.takeError();
    copies_[op.result(ops::AppendAttention::NextKv)] =
        (*paged)->result(ops::AppendAttention::NextKv);
    Value *y = (*paged)->result(ops::AppendAttention::Y);
    if (length) {
      auto last = lastRows(y);
      if (!last)
        return last.takeError();
      y = *last;
    }
    if (!quantised) {
      copies_[op.result(ops::AppendAttention::Y)] = y;
      return true;
    }
    Value *scale = op.operand(ops::QuantizedAppendAttention::YScale);
    auto q = b_.create(OpCode::Quantize, {y, scale ? copies_.lookup(scale) : nullptr},
                       {{"group", op.intAttr("group")}, {"to", op.dtypeAttr("to")}});
    if (!q)
      return q.takeError();
    copies_[op.result(ops::QuantizedAppendAttention::Q)] = (*q)->result(ops::Quantize::Q);
    copies_[op.result(ops::QuantizedAppendAttention::S)] = (*q)->result(ops::Quantize::S);
    return true;
  }

  void addConstant(const Op &op) {
    Op *constant = f_->insert(OpCode::Constant, {}, 1, nullptr);
    constant->constant = op.constant;
    constant->locations = op.locations;
    constant->result()->type = op.result()->type;
    constant->result()->content = op.result()->content;
    constant->result()->name = op.result()->name;
    copies_[op.result()] = constant->result();
  }

  llvm::Expected<bool> add(const Op &op) {
    switch (op.code()) {
    case OpCode::Constant:
      addConstant(op);
      return true;
    case OpCode::Positions:
      copies_[op.result()] = positions_;
      return true;
    case OpCode::AppendAttention:
    case OpCode::QuantizedAppendAttention:
      return addAttention(op);
    case OpCode::GatherLast: {
      if (op.operand(ops::GatherLast::X)->type.rank() != 3)
        return refuse(op.describe() + " takes rows of heads", &op);
      auto last = lastRows(copies_.lookup(op.operand(ops::GatherLast::X)));
      if (!last)
        return last.takeError();
      copies_[op.result()] = *last;
      return true;
    }
    case OpCode::Embed:
    case OpCode::Rope:
    case OpCode::Gather:
      return addLookup(op);
    default:
      break;
    }
    if (op.is(OpCode::Reshape))
      return addReshape(op);
    if (!isRowWise(op))
      return refuse(op.describe() + " may look at more than one row", &op);
    llvm::SmallVector<Value *> operands;
    for (Value *v : op.operands())
      operands.push_back(v ? copies_.lookup(v) : nullptr);
    return addCopy(op, operands);
  }

  /// A reshape of what a row holds: of columns as heads, and of heads as columns.
  llvm::Expected<bool> addReshape(const Op &op) {
    Value *x = copies_.lookup(op.operand(0));
    const Shape &from = op.operand(0)->type.shape, &to = op.result()->type.shape;
    size_t inFront = 0; // dimensions that count rows
    while (inFront < from.size() && !from[inFront].isConstant())
      ++inFront;
    const auto rows = llvm::ArrayRef(from).take_front(inFront);
    if (!x || !inFront || rows != llvm::ArrayRef(to).take_front(inFront) ||
        llvm::any_of(llvm::drop_begin(to, inFront), [](const Dim &d) { return !d.isConstant(); }))
      return refuse(op.describe() + " may look at more than one row", &op);
    Dims shape(x->type.shape.begin(), x->type.shape.begin() + inFront);
    shape.insert(shape.end(), to.begin() + inFront, to.end());
    auto y = b_.value(OpCode::Reshape, {x}, {{"shape", std::move(shape)}});
    if (!y)
      return y.takeError();
    copies_[op.result()] = *y;
    return true;
  }

  /// What reads tables by where tokens stand.
  llvm::Expected<bool> addLookup(const Op &op) {
    llvm::SmallVector<Value *> operands;
    for (Value *v : op.operands())
      operands.push_back(v == past_ ? positions_ : v ? copies_.lookup(v) : nullptr);
    if (op.is(OpCode::Embed) && op.operand(ops::Embed::Past)) {
      operands.resize(std::max<size_t>(operands.size(), ops::Embed::PositionIds + 1));
      operands[ops::Embed::Past] = nullptr;
      operands[ops::Embed::PositionIds] = positions_;
    }
    const Value *table = op.is(OpCode::Gather) ? op.operand(ops::Gather::X) : nullptr;
    if (table && !isRowWise(op) &&
        (!table->def() || !table->def()->is(OpCode::Constant) || op.intAttr("axis") != 0))
      return refuse(op.describe() + " may look at more than one row", &op);
    return addCopy(op, operands);
  }

  llvm::Expected<bool> addCopy(const Op &op, llvm::ArrayRef<Value *> operands) {
    for (auto [from, to] : llvm::zip(op.operands(), operands))
      if (from && !to)
        if (!op.is(OpCode::Embed) || from != past_)
          return refuse(op.describe() + " reads past or length", &op);
    auto copy = b_.create(op.code(), operands, op.givenAttrs(), op.numResults());
    if (!copy)
      return copy.takeError();
    for (auto [from, to] : llvm::zip_equal(op.results(), (*copy)->results()))
      copies_[from] = to;
    return true;
  }

  const Function &prefill_;
  std::unique_ptr<Function> f_;
  Builder b_;
  llvm::DenseMap<const Value *, Value *> copies_;
  const Value *past_ = nullptr, *length_ = nullptr;
  Value *positions_ = nullptr, *pieces_ = nullptr, *tables_ = nullptr, *last_ = nullptr;
  Obstacle obstacle_;
};

} // namespace

/// `name`, which is @extend or a form of it, from that form of @prefill.
static llvm::Error addRows(PassContext &ctx, llvm::StringRef from, llvm::StringRef name) {
  Module &m = ctx.module();
  const Function *prefill = m.function(from);
  if (!prefill || m.function(name))
    return llvm::Error::success();
  RowsBuilder rows(*prefill, name);
  auto extend = rows.build();
  if (!extend)
    return extend.takeError();
  if (!*extend) {
    const Obstacle &why = rows.obstacle();
    if (why.reason.empty())
      return llvm::Error::success();
    ctx.note("rows of several sequences do not run in one call, there is no @extend: " + why.reason,
             why.op ? llvm::ArrayRef(why.op->locations) : llvm::ArrayRef<llvm::StringRef>())
        .of("extend")
        .stoppedBy(why);
    return llvm::Error::success();
  }
  (*extend)->eraseDeadOps();
  m.functions.push_back(std::move(*extend));
  return llvm::Error::success();
}

llvm::Error extendRows(PassContext &ctx) {
  if (llvm::Error e = addRows(ctx, functions::prefill, functions::extend))
    return e;
  if (!ctx.module().function(functions::extend))
    return llvm::Error::success();
  return addRows(ctx, functions::widened(functions::prefill),
                 functions::widened(functions::extend));
}

} // namespace gpt2c
