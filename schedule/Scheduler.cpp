// The order in which a function's ops are decided on, and those that need no thought.
#include "schedule/Scheduler.h"

#include "ir/Error.h"
#include "schedule/FunctionScheduler.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Whether the arguments' shapes tell the size of the results.
static bool hasKnownSize(const Op &op) {
  const Function &f = *op.function();
  bool known = true;
  auto isKnown = [&](llvm::StringRef symbol) {
    for (unsigned i = 0; i < f.numArguments(); ++i)
      for (const Dim &d : f.argument(i)->type.shape)
        if (d.uses(symbol))
          return true;
    return false;
  };
  for (const Value *r : op.results())
    for (const Dim &d : r->type.shape)
      d.forEachSymbol([&](llvm::StringRef s) { known &= isKnown(s); });
  return known;
}

/// Whether an operand that broadcasts is 1 along an axis, or of the result's size: kernels decide
/// when they are compiled what repeats.
static bool operandsFit(const Op &op, const SymbolBounds &bounds) {
  if (!op.info().has(Elementwise) || op.numResults() != 1)
    return true;
  const Shape &out = op.result()->type.shape;
  for (const Value *v : op.operands()) {
    if (!v || v->type.rank() > out.size())
      continue;
    for (auto [d, of] : llvm::zip(llvm::reverse(v->type.shape), llvm::reverse(out)))
      if (d != of && d != Dim(1) && !(d.isPolynomial() && of.isPolynomial()) &&
          rangeOf(d - of, bounds, op.function()->limits) != DimRange{0, 0})
        return false;
  }
  return true;
}

/// Every op has a kernel, operands that fit, and a size that the arguments tell.
static llvm::Error checkOps(const Function &f, const SymbolBounds &bounds, bool (*lowers)(OpCode)) {
  std::string missing, unsized, unequal;
  for (auto &op : f.ops()) {
    if (op->info().has(Terminator))
      continue;
    const bool fits = operandsFit(*op, bounds);
    std::string &list = !hasKnownSize(*op) ? unsized : !fits ? unequal : missing;
    if (&list != &missing || !lowers(op->code()))
      list += (list.empty() ? "" : ", ") + op->describe();
  }
  std::string reasons;
  auto add = [&](const char *reason, const std::string &ops) {
    if (!ops.empty())
      reasons += (reasons.empty() ? "" : "; and ") + (reason + ops);
  };
  add("the size of their results depends on the data: ", unsized);
  add("their operands differ in size or repeat, by the length: ", unequal);
  add("they have no kernel: ", missing);
  if (reasons.empty())
    return llvm::Error::success();
  return makeError(ExitCode::Unsupported,
                   "@" + f.name() + " has ops that no GPU can run, " + reasons);
}

llvm::Expected<Schedule> schedule(Function &f, const SymbolBounds &bounds,
                                  const ScheduleOptions &options, const Kernels &kernels) {
  if (llvm::Error e = checkOps(f, bounds, kernels.lowers))
    return e;
  return FunctionScheduler(f, bounds, options, kernels).run();
}

/// Without views of it.
static const Value *stored(const Value *v) {
  while (v->def() && isView(*v->def()))
    v = v->def()->operand(0);
  return v;
}

/// The first launch behind sums of which each rank has ended some rows, where it reads them and can
/// wait for the others'.
static void awaitRows(llvm::MutableArrayRef<Group> groups) {
  LinearGroup *sums = nullptr;
  for (Group &group : groups) {
    if (group.get<DoneGroup>())
      continue;
    auto *linear = std::get_if<LinearGroup>(&group.as);
    if (sums && linear && !linear->int8 && !linear->sum && !residualOf(*linear->product)) {
      const Value *x = linear->norm ? linear->norm->operand(ops::LayerNorm::X)
                                    : linear->product->operand(ops::Linear::X);
      LinearProblem p = linear->problem;
      p.fused.sharedRows = true;
      if (stored(x) == sums->sum->last->result() && linear->taken.kernel->refusal(p).empty()) {
        linear->problem = p;
        sums->sum->awaited = true;
      }
    }
    sums = linear && linear->sum && linear->sum->scattered ? linear : nullptr;
  }
}

Schedule FunctionScheduler::run() {
  for (auto &op : f_.ops())
    if (!groups_.count(op.get()))
      decide(*op);
  Schedule s;
  for (auto &op : f_.ops()) {
    if (op->info().has(Terminator))
      continue;
    finish(*op);
    s.groups.push_back(std::move(groups_[op.get()]));
  }
  awaitRows(s.groups);
  return s;
}

/// Whether `v` is a gather_last that nothing but products adds to their rows: they read it where it
/// comes from, and it has no launch.
static bool mayBeReadInPlace(const Value *v) {
  const Op &op = *v->def();
  return hasKernelTypes(op) && op.operand(ops::GatherLast::Length)->type.dtype == DType::I32 &&
         !v->uses().empty() && llvm::all_of(v->uses(), [&](const Use &u) {
           return residualOf(*u.op) == v && llvm::count(u.op->operands(), v) == 1;
         });
}

void FunctionScheduler::decide(Op &op) {
  set(op, {OwnGroup{&op}});
  switch (op.code()) {
  case OpCode::Constant:
    set(op, {DoneGroup{&op, DoneGroup::Constant}});
    return;
  case OpCode::Reshape:
  case OpCode::Squeeze:
  case OpCode::Unsqueeze:
    set(op, {DoneGroup{&op, DoneGroup::View}});
    return;
  case OpCode::GatherLast:
    if (mayBeReadInPlace(op.result()))
      set(op, {DoneGroup{&op, DoneGroup::ReadInPlace}});
    return;
  case OpCode::Linear:
  case OpCode::QuantizedLinear:
  case OpCode::RequantizedLinear:
    return product(op);
  case OpCode::AppendAttention:
  case OpCode::QuantizedAppendAttention:
    return attention(op);
  case OpCode::Embed:
    return embed(op);
  case OpCode::ArgMax:
    return argMax(op);
  case OpCode::AllReduce:
    return allReduce(op);
  default:
    return;
  }
}

void FunctionScheduler::embed(Op &op) {
  using enum ops::Embed::Operand;
  const Value *y = op.result();
  if (!hasKernelTypes(op) || !isI32(op.operand(Ids)) || !isI32(op.operand(Past)) ||
      !isI32(op.operand(PositionIds)) || !y->type.shape.back().isConstant() || !wishes_.of(y))
    return;
  const int parts = int(lastDim(y) / wishes_.widthOfPeers(y));
  statistics_[y] = {parts, int(lastDim(y) / parts)};
  set(op, {EmbedGroup{&op, statistics_[y]}});
}

void FunctionScheduler::argMax(Op &op) {
  const Value *x = op.operand(ops::ArgMax::X);
  const bool lastAxis =
      op.intAttr("axis") == -1 || op.intAttr("axis") == int64_t(x->type.rank()) - 1;
  if (!lastAxis || !isI32(op.result()) || !hasKernelTypes(op) || !isFloat(x->type.dtype) ||
      x->type.rank() != 2 || op.boolAttr("select_last_index"))
    return;
  Value *computed = op.operand(ops::ArgMax::X);
  while (computed->def() && keepsRows(*computed->def()))
    computed = computed->def()->operand(0);
  if (largest_.contains(computed))
    set(op, {LargestGroup{&op, computed}});
}

void FunctionScheduler::finish(Op &op) {
  const bool rope = op.is(OpCode::Rope) && op.hasUses();
  if (!groups_[&op].get<OwnGroup>() || !(isNorm(op) || rope))
    return;
  const unsigned rows = rope ? unsigned(ops::AppendAttention::Qkv) : unsigned(ops::Linear::X);
  if (llvm::all_of(op.result()->uses(),
                   [&](const Use &u) { return u.operand == rows && inFront_.lookup(u.op) == &op; }))
    setFused(op);
}

} // namespace gpt2c
