#include "ir/Executor.h"

#include "ir/Budget.h"
#include "ir/Error.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <random>

namespace gpt2c {

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<bool> bindShape(llvm::ArrayRef<Dim> dims, llvm::ArrayRef<int64_t> shape,
                               SymbolMap &symbols, const llvm::Twine &what) {
  if (dims.size() != shape.size())
    return failure(what + " has rank " + llvm::Twine(shape.size()) + ", expected " +
                   llvm::Twine(dims.size()));
  bool complete = true;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (auto s = dims[i].asSymbol(); s && !symbols.contains(*s)) {
      symbols[*s] = shape[i];
      continue;
    }
    if (auto v = dims[i].evaluate(symbols)) {
      if (*v != shape[i])
        return failure(what + ": dimension " + llvm::Twine(i) + " is " + llvm::Twine(shape[i]) +
                       ", expected " + dims[i].str() + " = " + llvm::Twine(*v));
      continue;
    }
    // Solve for a single unknown of degree one with coefficient one.
    llvm::SmallVector<llvm::StringRef, 2> unknown;
    dims[i].forEachSymbol([&](llvm::StringRef s) {
      if (!symbols.contains(s) && !llvm::is_contained(unknown, s))
        unknown.push_back(s);
    });
    if (unknown.size() == 1) {
      Dim rest = dims[i] - Dim::symbol(unknown[0]);
      auto v = rest.uses(unknown[0]) ? std::nullopt : rest.evaluate(symbols);
      if (v) {
        if (shape[i] < *v)
          return failure(what + ": dimension " + llvm::Twine(i) + " is " + llvm::Twine(shape[i]) +
                         ", too small for " + dims[i].str());
        symbols[unknown[0]] = shape[i] - *v;
        continue;
      }
    }
    complete = false;
  }
  return complete;
}

/// Whether operand `i` is evaluated as it is stored.
static bool takesStored(const Op &op, unsigned i) {
  const OpInfo &info = op.info();
  return info.has(DataMovement) || (i < info.operands.size() && info.operands[i].stored);
}

/// Widening of operands and narrowing of results, as ir/Eval.h states it.
static llvm::Error evaluateUnbounded(Op &op, llvm::MutableArrayRef<Tensor> inputs,
                                     llvm::MutableArrayRef<Tensor> outputs,
                                     const SymbolMap &symbols, bool float64) {
  if (!op.info().eval)
    return failure(op.describe() + ": this op cannot be evaluated");
  if (!op.info().has(DataMovement) && !op.info().has(OwnStorage)) {
    bool wide = float64 || llvm::any_of(inputs, [](const Tensor &t) {
                  return t.valid() && t.dtype() == DType::F64;
                });
    for (auto [i, t] : llvm::enumerate(inputs))
      if (t.valid() && isFloat(t.dtype()) && (wide || !takesStored(op, unsigned(i))))
        t = t.cast(wide ? DType::F64 : DType::F32);
  }
  EvalContext c(op, inputs, outputs, symbols);
  if (llvm::Error e = op.info().eval(c))
    return e;
  for (unsigned i = 0; i < outputs.size(); ++i) {
    DType declared = op.result(i)->type.dtype;
    assert(outputs[i].valid() && "an evaluation sets every result");
    if (isFloat(declared))
      outputs[i] = outputs[i].cast(float64 ? DType::F64 : declared);
  }
  return llvm::Error::success();
}

static llvm::Error outOfMemory(const Op &op, const llvm::Twine &why) {
  return makeError(ExitCode::OutOfMemory, op.describe() + ": " + why);
}

/// The same within the budget of this thread and within memory.
static llvm::Error evaluateInto(Op &op, llvm::MutableArrayRef<Tensor> inputs,
                                llvm::MutableArrayRef<Tensor> outputs, const SymbolMap &symbols,
                                bool float64) try {
  if (Budget *budget = Budget::current(); budget && op.info().cost)
    if (auto operations = op.info().cost(op).flops.evaluate(symbols);
        operations && !budget->takeOperations(*operations))
      return outOfMemory(op, "an evaluation would take more operations than it may");
  return evaluateUnbounded(op, inputs, outputs, symbols, float64);
} catch (const TensorTooLarge &e) {
  return outOfMemory(op, e.what());
} catch (const std::bad_alloc &) {
  return outOfMemory(op, "memory ran out");
}

llvm::Expected<std::vector<Tensor>> evaluateOp(Op &op, llvm::ArrayRef<Tensor> inputs,
                                               const SymbolMap &symbols, bool float64) {
  std::vector<Tensor> in(inputs.begin(), inputs.end()), out(op.numResults());
  if (llvm::Error e = evaluateInto(op, in, out, symbols, float64))
    return e;
  return out;
}

Executor::Executor(const Function &function, ExecOptions options)
    : function_(function), options_(std::move(options)) {
  if (!options_.widenedConstants)
    options_.widenedConstants = std::make_shared<ExecOptions::WidenedConstants>();
}

Tensor Executor::widen(const Tensor &t) const {
  return options_.float64 && isFloat(t.dtype()) ? t.cast(DType::F64) : t;
}

/// Narrow floats widen once instead of at every use.
Tensor Executor::widenConstant(const Tensor &t) {
  bool wide = options_.float64 && isFloat(t.dtype()) && t.dtype() != DType::F64;
  bool narrow = t.dtype() == DType::F16 || t.dtype() == DType::BF16;
  if (!wide && !(narrow && options_.cacheWidenedConstants))
    return t;
  // Equal bytes may serve constants of several types and shapes.
  Tensor &kept =
      options_.widenedConstants->byBytes[{t.raw(), uint64_t(t.count()) << 8 | uint64_t(t.dtype())}];
  if (!kept.valid())
    kept = t.cast(wide ? DType::F64 : DType::F32);
  return kept.reshaped(t.shape());
}

/// A constant that was widened for its users is given out in its own type, and what was not, in
/// double precision, widened.
Tensor Executor::resultType(const Value &v, const Tensor &t) const {
  return !options_.float64 && isFloat(v.type.dtype) ? t.cast(v.type.dtype) : widen(t);
}

/// Moves each element of `t`, in double precision, by up to half a unit of `type`.
static void moveByRounding(Tensor &t, DType type, uint64_t seed) {
  const double unit = type == DType::F16 ? 0x1p-11 : 0x1p-8;
  std::mt19937_64 random(seed);
  Tensor moved(t.dtype(), t.shape()); // results may share memory with constants
  const double *from = t.data<double>();
  double *to = moved.data<double>();
  for (int64_t i = 0; i < t.count(); ++i)
    to[i] = from[i] * (1 + unit * std::uniform_real_distribution<double>(-1, 1)(random));
  t = std::move(moved);
}

llvm::Error Executor::execute(Op &op, Bindings &values, const SymbolMap &symbols,
                              const OpSet &narrow) {
  const bool isNarrow = narrow.contains(&op);
  if (op.is(OpCode::Constant)) {
    if (!op.constant.valid())
      return failure(op.describe() + ": the constant's data was elided from the text");
    values[op.result()] = op.constant;
    return llvm::Error::success();
  }
  llvm::SmallVector<Tensor, 4> inputs, outputs(op.numResults());
  for (unsigned i = 0; i < op.numOperands(); ++i) {
    const Value *v = op.operand(i);
    Tensor t = v ? values.lookup(v) : Tensor();
    const bool isConstant = v && v->def() && v->def()->is(OpCode::Constant);
    const bool asStored = !options_.float64 && takesStored(op, i);
    if (isConstant && !asStored && !(isNarrow && narrow.contains(v->def())))
      t = widenConstant(t);
    else if (t.valid() && !isNarrow)
      t = widen(t);
    inputs.push_back(std::move(t));
  }
  if (llvm::Error e = evaluateInto(op, inputs, outputs, symbols, options_.float64 && !isNarrow))
    return e;
  for (unsigned i = 0; i < op.numResults(); ++i) {
    const DType declared = op.result(i)->type.dtype;
    if (options_.roundingSeed && outputs[i].dtype() == DType::F64 &&
        (declared == DType::F16 || declared == DType::BF16) && !op.info().has(DataMovement))
      moveByRounding(outputs[i], declared, options_.roundingSeed + ++moved_);
    values[op.result(i)] = std::move(outputs[i]);
  }
  return llvm::Error::success();
}

/// Gives symbols that depend on data their values, all but those that the arguments `told`. Whether
/// all that the shape says is so.
static bool learnSymbols(const Value &v, const Tensor &t, const llvm::StringSet<> &told,
                         SymbolMap &symbols) {
  bool fits = true;
  for (auto [d, size] : llvm::zip(v.type.shape, t.shape())) {
    if (auto symbol = d.asSymbol(); symbol && !told.contains(*symbol)) {
      symbols[*symbol] = size;
      continue;
    }
    auto known = d.evaluate(symbols);
    fits &= !known || *known == size;
  }
  return fits;
}

/// Sizes that inference knew are what it said, or a value that was computed from them would be
/// wrong.
static llvm::Error checkResults(const Op &op, const Executor::Bindings &values,
                                const llvm::StringSet<> &told, SymbolMap &symbols) {
  for (const Value *r : op.results()) {
    auto value = values.find(r);
    if (value == values.end() || learnSymbols(*r, value->second, told, symbols))
      continue;
    std::string sizes;
    for (int64_t d : value->second.shape())
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(d);
    return makeError(ExitCode::Unsupported, op.describe() + ": the result has the sizes [" + sizes +
                                                "] here, its type is " + r->type.str());
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>> Executor::run(llvm::ArrayRef<Tensor> arguments,
                                                  SymbolMap symbols) {
  if (arguments.size() != function_.numArguments())
    return failure("@" + function_.name() + " takes " + llvm::Twine(function_.numArguments()) +
                   " arguments, " + llvm::Twine(arguments.size()) + " given");
  Bindings values;
  moved_ = 0;
  bool complete = false;
  for (int round = 0; round < 2 && !complete; ++round) {
    complete = true;
    for (unsigned i = 0; i < arguments.size(); ++i) {
      const Value *a = function_.argument(i);
      bool sameKind = arguments[i].dtype() == a->type.dtype ||
                      (options_.float64 && isFloat(a->type.dtype) && isFloat(arguments[i].dtype()));
      if (!sameKind)
        return failure("argument '" + a->name + "' has element type " +
                       dtypeName(arguments[i].dtype()) + ", expected " + a->type.str());
      auto bound =
          bindShape(a->type.shape, arguments[i].shape(), symbols, "argument '" + a->name + "'");
      if (!bound)
        return bound.takeError();
      complete &= *bound;
      values[a] = widen(arguments[i]);
    }
  }

  for (const DimBounds::Limit &limit : function_.limits.limits())
    if (auto sum = limit.sum.evaluate(symbols); sum && *sum > limit.most)
      return makeError(ExitCode::Unsupported,
                       "@" + function_.name() + " takes at most " + llvm::Twine(limit.most) +
                           " of " + limit.sum.str() + ", " + llvm::Twine(*sum) + " given");

  llvm::StringSet<> told;
  for (unsigned i = 0; i < function_.numArguments(); ++i)
    for (const Dim &d : function_.argument(i)->type.shape)
      d.forEachSymbol([&](llvm::StringRef s) { told.insert(s); });

  // A value dies after its last use, so that peak memory stays near what is live.
  llvm::DenseMap<const Value *, const Op *> lastUse;
  for (auto &op : function_.ops())
    for (Value *v : op->operands())
      if (v)
        lastUse[v] = op.get();
  const OpSet narrow = options_.float64 ? decidingOps(function_) : OpSet();
  for (auto &op : function_.ops()) {
    if (op->info().has(Terminator))
      break;
    if (llvm::Error e = execute(*op, values, symbols, narrow))
      return e;
    if (llvm::Error e = checkResults(*op, values, told, symbols))
      return e;
    for (Value *v : op->operands())
      if (v && lastUse.lookup(v) == op.get())
        values.erase(v);
  }
  std::vector<Tensor> out;
  for (Value *v : function_.returned())
    out.push_back(resultType(*v, values.lookup(v)));
  return out;
}

llvm::Expected<std::vector<Tensor>> Executor::evaluate(llvm::ArrayRef<Value *> wanted,
                                                       Bindings bound, const SymbolMap &symbols) {
  for (auto &entry : bound)
    entry.second = widen(entry.second);
  // The ops between the bound values and the wanted ones, found backwards.
  llvm::DenseSet<Op *> needed;
  llvm::SmallVector<Value *> work(wanted.begin(), wanted.end());
  while (!work.empty()) {
    Value *v = work.pop_back_val();
    if (bound.count(v))
      continue;
    if (!v->def())
      return failure("needs argument '" + v->name + "'");
    if (!needed.insert(v->def()).second)
      continue;
    for (Value *o : v->def()->operands())
      if (o)
        work.push_back(o);
  }
  llvm::StringSet<> told;
  for (auto &entry : symbols)
    told.insert(entry.getKey());
  SymbolMap known = symbols;
  OpSet narrow;
  if (options_.float64) {
    llvm::SmallVector<const Op *> ops(needed.begin(), needed.end());
    narrow = decidingOps(ops, [&](const Value *v) { return bound.count(v) != 0; });
  }
  for (auto &op : function_.ops())
    if (needed.contains(op.get())) {
      if (llvm::Error e = execute(*op, bound, known, narrow))
        return e;
      for (const Value *r : op->results())
        learnSymbols(*r, bound.lookup(r), told, known);
    }
  std::vector<Tensor> out;
  for (Value *v : wanted)
    out.push_back(resultType(*v, bound.lookup(v)));
  return out;
}

} // namespace gpt2c
