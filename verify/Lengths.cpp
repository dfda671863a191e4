#include "verify/Lengths.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <set>

namespace gpt2c {

namespace {

/// Constants of the graph's text, what is computed from them and from sizes and ids, and the rest.
enum class Kind : uint8_t { Constant, Index, Data };

constexpr int64_t mostElements = 8, mostLength = int64_t(1) << 24;

class Collector {
public:
  std::vector<int64_t> of(const Function &f) {
    for (auto &op : f.ops()) {
      const Kind kind = kindOf(*op);
      for (const Value *v : op->results())
        kinds_[v] = kind;
      collect(*op, kind);
    }
    return {found_.begin(), found_.end()};
  }

private:
  Kind kind(const Value *v) const {
    if (!v->def())
      return isFloat(v->type.dtype) ? Kind::Data : Kind::Index;
    return kinds_.lookup(v);
  }

  Kind kindOf(const Op &op) const {
    if (op.is(OpCode::Constant))
      return op.constant.valid() && op.constant.count() <= mostElements ? Kind::Constant
                                                                        : Kind::Data;
    if (op.is(OpCode::Shape) || op.is(OpCode::DimValues))
      return Kind::Index;
    Kind out = op.numOperands() ? Kind::Constant : Kind::Index;
    for (const Value *o : op.operands())
      if (o)
        out = std::max(out, kind(o));
    return out;
  }

  void add(double v) {
    v = std::fabs(v);
    if (v >= 2 && v < double(mostLength) && v == std::floor(v))
      found_.insert(int64_t(v));
  }

  void add(const Value *v) {
    const Op *op = v ? v->def() : nullptr;
    if (op && op->is(OpCode::Constant) && kind(v) == Kind::Constant)
      for (int64_t i = 0; i < op->constant.count(); ++i)
        add(op->constant.asDouble(i));
  }

  void add(const Dim &d) {
    for (const Dim::Term &term : d.terms()) {
      if (term.factors.empty())
        add(double(term.coefficient));
      for (const Dim::Factor *f : term.factors)
        if (f->of)
          add(*f->of);
    }
  }

  void add(const Op &op, llvm::StringRef list) {
    if (op.hasAttr(list))
      for (const Dim &d : op.dimsAttr(list))
        add(d);
  }

  /// Whether an axis has no fixed length; true where it is not known which axis is meant.
  static bool isOpen(const Value *x, std::optional<int64_t> axis) {
    if (axis && *axis < 0)
      *axis += int64_t(x->type.rank());
    return !axis || *axis < 0 || *axis >= int64_t(x->type.rank()) ||
           !x->type.shape[*axis].isConstant();
  }

  /// Element i of a list of an op: of its attribute, else of its constant operand.
  std::optional<Dim> element(const Op &op, llvm::StringRef list, unsigned operand, size_t i) const {
    if (op.hasAttr(list))
      return i < op.dimsAttr(list).size() ? std::optional(op.dimsAttr(list)[i]) : std::nullopt;
    const Value *v = op.operand(operand);
    const Op *c = v ? v->def() : nullptr;
    if (!c || !c->is(OpCode::Constant) || kind(v) != Kind::Constant ||
        int64_t(i) >= c->constant.count())
      return std::nullopt;
    return Dim(c->constant.asInt(int64_t(i)));
  }

  void addSlice(const Op &op) {
    using enum ops::Slice::Operand;
    const bool axesGiven = op.hasAttr("axes") || op.operand(Axes);
    for (size_t i = 0; i < op.operand(X)->type.rank(); ++i) {
      std::optional<int64_t> axis = int64_t(i);
      if (axesGiven) {
        const auto given = element(op, "axes", Axes, i);
        axis = given ? given->constant() : std::nullopt;
      }
      if (!isOpen(op.operand(X), axis))
        continue;
      for (auto bound : {element(op, "starts", Starts, i), element(op, "ends", Ends, i)})
        if (bound)
          add(*bound);
    }
  }

  void collect(const Op &op, Kind kind) {
    if (op.is(OpCode::Slice)) {
      addSlice(op);
    } else if (op.is(OpCode::Gather) && isOpen(op.operand(ops::Gather::X), op.intAttr("axis"))) {
      add(op.operand(ops::Gather::Indices));
    } else if (op.is(OpCode::Trilu)) {
      add(op.operand(ops::Trilu::K));
    } else if (op.is(OpCode::Range)) {
      for (const Value *o : op.operands())
        add(o);
      add(op, "start");
      add(op, "limit");
    } else if (kind == Kind::Index && op.info().has(Elementwise)) {
      for (const Value *o : op.operands())
        add(o);
    }
  }

  llvm::DenseMap<const Value *, Kind> kinds_;
  std::set<int64_t> found_;
};

} // namespace

std::vector<int64_t> constantLengths(const Function &graph) { return Collector().of(graph); }

} // namespace gpt2c
