// Ops that treat columns by themselves, or heads, over those of a rank.
#include "passes/shard/ShardPlan.h"
#include "passes/shard/ShardedFunction.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

using Attrs = llvm::SmallVector<NamedAttr, 4>;
using Given = llvm::DenseMap<unsigned, Value *>;

class Adder {
public:
  Adder(ShardedFunction &to, const Op &op) : to_(to), op_(op) {}

  llvm::Expected<bool> add() {
    if (isElementwise(op_))
      return addElementwise();
    const Part *first = to_.part(op_.operand(0));
    if (!first)
      return false;
    const Part x = *first; // results are parts, too, and the map may move
    switch (op_.code()) {
    case OpCode::Gated:
      return addGated(x);
    case OpCode::Rope:
      return addRope(x);
    case OpCode::Reshape:
      return addReshape(x);
    case OpCode::RmsNorm:
    case OpCode::LayerNorm:
      return x.axes == 2 ? copyOver(x, x.cut, 2) : false;
    case OpCode::Gather:
    case OpCode::GatherLast:
      return takesRows(op_) ? copyOver(x, x.cut, x.axes) : false;
    case OpCode::Slice:
      return addSlice(x);
    case OpCode::Concat:
      return addConcat();
    default:
      return false;
    }
  }

private:
  /// The op over the part of its first operand, and the others as they are or as given.
  llvm::Expected<bool> copyOver(const Part &x, Cut cut, int axes,
                                llvm::ArrayRef<NamedAttr> changed = {},
                                const Given &given = Given()) {
    llvm::SmallVector<Value *> operands{x.value};
    for (unsigned i = 1; i < op_.numOperands(); ++i) {
      Value *other = given.lookup(i);
      auto v = other ? llvm::Expected<Value *>(other) : to_.wholeIfAny(op_.operand(i));
      if (!v)
        return v.takeError();
      operands.push_back(*v);
    }
    Attrs attrs(op_.givenAttrs());
    for (const NamedAttr &c : changed) {
      llvm::erase_if(attrs, [&](const NamedAttr &a) { return a.name == c.name; });
      attrs.push_back(c);
    }
    return insert(operands, attrs, std::move(cut), axes);
  }

  llvm::Expected<bool> insert(llvm::ArrayRef<Value *> operands, llvm::ArrayRef<NamedAttr> attrs,
                              Cut cut, int axes) {
    auto y = to_.builder().value(op_.code(), operands, attrs);
    if (!y)
      return y.takeError();
    to_.setPart(op_.result(), *y, std::move(cut), axes);
    return true;
  }

  llvm::Expected<bool> addElementwise() {
    std::optional<Part> part;
    for (const Value *v : op_.operands())
      if (const Part *p = v ? to_.part(v) : nullptr) {
        if (part && (part->cut != p->cut || part->axes != p->axes))
          return false;
        part = *p;
      }
    llvm::SmallVector<Value *> operands;
    for (const Value *v : op_.operands()) {
      auto x = v ? columnsOf(v, *part) : llvm::Expected<Value *>(nullptr);
      if (!x)
        return x.takeError();
      if (v && !*x)
        return false;
      operands.push_back(*x);
    }
    return insert(operands, op_.givenAttrs(), part->cut, part->axes);
  }

  /// An operand beside one that is cut so; null: it cannot be.
  llvm::Expected<Value *> columnsOf(const Value *v, const Part &part) {
    if (const Part *p = to_.part(v))
      return p->value;
    const llvm::ArrayRef<Dim> own = v->type.shape;
    const auto axis = int64_t(own.size()) - part.axes;
    if (axis < 0 || own[axis] == Dim(1))
      return to_.whole(v); // one for all columns, or all heads
    if (part.axes != 1 || own[axis] != op_.result()->type.shape.back())
      return nullptr;
    return to_.rankPart(v, axis, part.cut);
  }

  /// Gates of a rank stand beside what they gate, or in front of it, in the same order.
  llvm::Expected<bool> addGated(const Part &x) {
    const size_t count = x.cut.ofRank(to_.ranks());
    if (op_.boolAttr("interleaved"))
      return x.cut.unit % 2 == 0 ? copyOver(x, {x.cut.unit / 2, x.cut.units}, 1) : false;
    const int64_t n = op_.result()->type.shape.back().constant().value_or(0);
    if (count % 2 != 0 || n % x.cut.unit != 0)
      return false;
    Cut cut{x.cut.unit, {}};
    for (int64_t r = 0; r < to_.ranks(); ++r)
      for (size_t i = 0; i < count / 2; ++i) {
        const int64_t gate = x.cut.units[r * count + i],
                      up = x.cut.units[r * count + count / 2 + i];
        if (gate < 0 || up != gate + n / x.cut.unit)
          return false;
        cut.units.push_back(gate);
      }
    return copyOver(x, std::move(cut), 1);
  }

  /// Heads that turn come before those that do not, on a rank, too.
  llvm::Expected<bool> addRope(const Part &x) {
    const int64_t headDim = op_.intAttr("head_dim"), heads = op_.intAttr("heads");
    const int64_t width = op_.result()->type.shape.back().constant().value_or(0);
    if (x.axes != 1 || x.cut.unit % headDim != 0 || !width)
      return false;
    const CutSlice turned =
        sliceOf(x.cut, to_.ranks(), 0, heads ? heads * headDim : width / headDim * headDim);
    if (turned.begin != 0 || turned.cut.units.empty())
      return false;
    Given given;
    if (const Value *scale = op_.operand(ops::Rope::Scale)) {
      auto ofHeads = to_.rankPart(scale, 0, {turned.cut.unit / headDim, turned.cut.units});
      if (!ofHeads)
        return ofHeads.takeError();
      given[ops::Rope::Scale] = *ofHeads;
    }
    if (!heads)
      return copyOver(x, x.cut, 1, {}, given);
    const int64_t ofRank = turned.cut.width(to_.ranks()) / headDim;
    return copyOver(x, x.cut, 1, NamedAttr{"heads", ofRank}, given);
  }

  /// Rows come in another shape, or columns as heads.
  llvm::Expected<bool> addReshape(const Part &x) {
    const Shape &from = op_.operand(0)->type.shape, &to = op_.result()->type.shape;
    auto sizeOf = [](llvm::ArrayRef<Dim> shape, size_t axes) {
      return axes > shape.size() ? Dim(0) : elementCount(shape.take_back(axes));
    };
    const Dim columns = sizeOf(from, x.axes);
    const int64_t width = x.cut.width(to_.ranks());
    const auto headDim = to.empty() ? std::nullopt : to.back().constant();
    Dims shape(to.begin(), to.end());
    if (sizeOf(to, 1) == columns) {
      shape.back() = Dim(width);
      return copyOver(x, x.cut, 1, NamedAttr{"shape", std::move(shape)});
    }
    if (sizeOf(to, 2) != columns || !headDim || *headDim < 1 || x.cut.unit % *headDim != 0)
      return false;
    shape[to.size() - 2] = Dim(width / *headDim);
    return copyOver(x, x.cut, 2, NamedAttr{"shape", std::move(shape)});
  }

  llvm::Expected<bool> addSlice(const Part &x) {
    const auto columns = sliceOfColumns(op_);
    if (x.axes != 1 || !columns)
      return false;
    CutSlice part = sliceOf(x.cut, to_.ranks(), columns->first, columns->second);
    if (part.cut.units.empty())
      return false;
    const Dims starts{Dim(part.begin)}, ends{Dim(part.begin + part.cut.width(to_.ranks()))};
    return copyOver(x, part.cut, 1, {NamedAttr{"starts", starts}, NamedAttr{"ends", ends}});
  }

  llvm::Expected<bool> addConcat() {
    const int64_t axis = op_.intAttr("axis"), last = int64_t(op_.result()->type.rank()) - 1;
    llvm::SmallVector<Value *> operands;
    std::vector<std::vector<int64_t>> units(to_.ranks());
    int64_t unit = 0, offset = 0;
    for (const Value *v : op_.operands()) {
      const Part *p = to_.part(v);
      const auto width = v->type.shape.back().constant();
      if (!p || p->axes != 1 || !width || (unit && p->cut.unit != unit) ||
          offset % p->cut.unit != 0 || (axis != -1 && axis != last))
        return false;
      unit = p->cut.unit;
      const size_t count = p->cut.ofRank(to_.ranks());
      for (int64_t r = 0; r < to_.ranks(); ++r)
        for (size_t i = 0; i < count; ++i) {
          const int64_t u = p->cut.units[r * count + i];
          units[r].push_back(u < 0 ? -1 : u + offset / unit);
        }
      offset += *width;
      operands.push_back(p->value);
    }
    Cut cut{unit, {}};
    for (auto &ofRank : units)
      llvm::append_range(cut.units, ofRank);
    return insert(operands, op_.givenAttrs(), std::move(cut), 1);
  }

  ShardedFunction &to_;
  const Op &op_;
};

} // namespace

llvm::Expected<bool> addByColumns(ShardedFunction &to, const Op &op) { return Adder(to, op).add(); }

} // namespace gpt2c
