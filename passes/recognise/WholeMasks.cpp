// whole-masks: some graphs are given their mask whole, an element for each query and key,
// [.., seq, keys], or one for all queries, [.., 1, keys], beside a causal one of their own. A KV
// state has a causal one, of all keys. So such a graph gets a second function,
// @generation, in which
//   mask[.., i, j] = keep where j <= keys - seq + i, else hide
// Which two numbers these are follows from what the graph makes of them: added to scores 0 and at
// most -1000, or chosen in their place. kv-transform makes @prefill and @decode of @generation;
// @forward stays the exported graph, right under every mask.
#include "ir/FunctionNames.h"
#include "ir/Ports.h"
#include "ir/ops/Common.h"
#include "passes/Rewrite.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace gpt2c {

/// What is added to a score at least, below 0, to hide its key.
constexpr double hiding = 1000;

namespace {

/// An op that scores and something made of the mask alone meet in.
struct Meeting {
  Op *op;
  unsigned operand; ///< what is made of the mask
};

/// The mask of a graph, and what becomes of it.
struct MaskInput {
  Value *argument = nullptr;
  Dim keys; ///< how many
  std::vector<Meeting> meetings;
};

} // namespace

/// Where what is made of `mask` alone meets other values; empty where that is returned.
static std::vector<Meeting> meetingsOf(Value *mask) {
  std::vector<Meeting> found;
  llvm::DenseSet<const Value *> made{mask};
  llvm::SmallVector<Value *> work{mask};
  while (!work.empty()) {
    Value *v = work.pop_back_val();
    for (const Use &u : v->uses()) {
      if (u.op->is(OpCode::Return))
        return {};
      const bool alone = llvm::all_of(u.op->operands(), [&](const Value *o) {
        return !o || made.contains(o) || constantOp(o);
      });
      if (!alone)
        found.push_back({u.op, u.operand});
      else if (made.insert(u.op->result()).second)
        work.push_back(u.op->result());
    }
  }
  // What was no constant when it was met may be made of the mask, too.
  llvm::erase_if(found, [&](const Meeting &m) { return made.contains(m.op->result()); });
  return found;
}

/// The other operand of a sum or a product, or the scores that a condition chooses among.
static const Value *scoresOf(const Meeting &m) {
  using enum ops::Where::Operand;
  if (!m.op->is(OpCode::Where))
    return m.op->operand(m.operand == 0 ? 1 : 0);
  return m.op->operand(constantOp(m.op->operand(A)) ? B : A);
}

/// [.., 1, keys] of rank 3 and 4: which keys a sequence has, beside a mask that the graph makes.
static bool isForAllQueries(llvm::ArrayRef<Dim> shape) {
  return shape.size() >= 3 && shape[shape.size() - 2] == Dim(1);
}

/// Numbers for each query and key that are not called a mask may be anything that is added.
static bool isWholeMask(const Value &a, const KvInterface &io) {
  const Dim &seq = io.ids->type.shape[1];
  const unsigned rank = unsigned(a.type.rank());
  const bool isMask =
      a.type.dtype == DType::Bool || llvm::StringRef(a.name).contains_insensitive("mask");
  if (!isMask || rank < 2 || rank > 4 || &a == io.ids || &a == io.positionIds || !seq.asSymbol() ||
      a.type.shape.back().isConstant() || a.uses().empty())
    return false;
  return a.type.shape[rank - 2] == seq || isForAllQueries(a.type.shape);
}

static std::optional<MaskInput> maskInput(Function &f, const KvInterface &io) {
  std::optional<MaskInput> found;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    if (!isWholeMask(*a, io))
      continue;
    MaskInput mask{a, Dim(), meetingsOf(a)};
    if (mask.meetings.empty() || found)
      return std::nullopt;
    const Value *scores = scoresOf(mask.meetings.front());
    if (!scores || scores->type.rank() < 2)
      return std::nullopt;
    mask.keys = scores->type.shape.back();
    found = std::move(mask);
  }
  return found;
}

/// The number that all elements are which the graph makes of a mask full of `given`.
static std::optional<double> numberOf(const Function &f, const MaskInput &mask, Value *made,
                                      double given) {
  SymbolMap symbols = probeSymbols(f, 0);
  auto shape = concreteShape(mask.argument->type, symbols);
  if (!shape)
    return std::nullopt;
  Tensor full(DType::F64, *shape);
  std::fill_n(full.data<double>(), full.count(), given);
  Executor::Bindings bound;
  bound[mask.argument] = full.cast(mask.argument->type.dtype);
  auto t = made == mask.argument ? std::optional(full) : probe(f, made, std::move(bound), symbols);
  if (!t || t->count() == 0)
    return std::nullopt;
  const double first = t->asDouble(0);
  for (int64_t i = 1; i < t->count(); ++i)
    if (t->asDouble(i) != first)
      return std::nullopt;
  return first;
}

/// Whether scores stay where the mask is `keep`, and are hidden where it is `hide`.
static bool means(const Function &f, const MaskInput &mask, double keep, double hide) {
  bool hides = false;
  for (const Meeting &m : mask.meetings) {
    Value *made = m.op->operand(m.operand);
    auto kept = numberOf(f, mask, made, keep), hidden = numberOf(f, mask, made, hide);
    if (!kept || !hidden)
      return false;
    if (m.op->is(OpCode::Add) || (m.op->is(OpCode::Sub) && m.operand == 1)) {
      if (*kept != 0 || (m.op->is(OpCode::Add) ? -*hidden : *hidden) < hiding)
        return false;
      hides = true;
    } else if (m.op->is(OpCode::Mul)) {
      if (*kept != 1)
        return false;
    } else if (m.op->is(OpCode::Where) && m.operand == ops::Where::Condition) {
      using enum ops::Where::Operand;
      auto chosen = scalarConstant(m.op->operand(*hidden != 0 ? A : B));
      if ((*kept != 0) == (*hidden != 0) || !chosen || *chosen > -hiding)
        return false;
      hides = true;
    } else {
      return false;
    }
  }
  return hides;
}

/// The numbers that keep and hide a key, as callers give them.
static std::optional<std::pair<double, double>> numbersOf(const Function &f,
                                                          const MaskInput &mask) {
  const DType type = mask.argument->type.dtype;
  const double lowest = type == DType::F16 ? -65504.0 : -double(std::numeric_limits<float>::max());
  for (auto [keep, hide] : {std::pair(0.0, lowest), {1.0, 0.0}, {0.0, 1.0}})
    if ((isFloat(type) || hide != lowest) && means(f, mask, keep, hide))
      return std::pair(keep, hide);
  return std::nullopt;
}

/// The mask of @generation becomes a causal one, or keeps every key where it is for all queries; it
/// is no argument any more.
static llvm::Error fillMask(Function &f, const MaskInput &mask, double keep, double hide) {
  Value *argument = mask.argument;
  if (auto symbol = argument->type.shape.back().asSymbol(); symbol && !mask.keys.uses(*symbol)) {
    f.substitute(*symbol, mask.keys);
    if (llvm::Error e = f.inferTypes())
      return e;
  }
  const Shape shape = argument->type.shape;
  const Dim &seq = shape[shape.size() - 2], &keys = shape.back();
  Builder b(f, f.ops().front().get());
  auto numbers = [&](const Dim &from, const Dim &to, const Dims &as) -> llvm::Expected<Value *> {
    auto range = b.value(OpCode::Range, {},
                         {{"start", Dims{from}}, {"limit", Dims{to}}, {"delta", Dims{1}}});
    return range ? b.value(OpCode::Reshape, {*range}, {{"shape", as}}) : std::move(range);
  };
  auto query = numbers(keys - seq, keys, {seq, Dim(1)}),
       key = numbers(Dim(0), keys, {Dim(1), keys});
  if (!query || !key)
    return llvm::joinErrors(query.takeError(), key.takeError());
  auto number = [&](double v) {
    return b.constant(Tensor::scalar<double>(v).cast(argument->type.dtype));
  };
  auto chosen = [&]() -> llvm::Expected<Value *> {
    if (isForAllQueries(shape))
      return number(keep);
    auto sees = b.value(OpCode::LessEqual, {*key, *query});
    return sees ? b.value(OpCode::Where, {*sees, number(keep), number(hide)}) : std::move(sees);
  }();
  if (!chosen)
    return chosen.takeError();
  auto whole = b.value(OpCode::Expand, {*chosen}, {{"shape", Dims(shape.begin(), shape.end())}});
  if (!whole)
    return whole.takeError();
  argument->replaceAllUsesWith(*whole);
  f.eraseArgument(argument->index());
  return f.inferTypes();
}

llvm::Error wholeMasks(PassContext &ctx) {
  Module &m = ctx.module();
  Function *generation = m.function(functions::generation);
  if (m.functions.size() != (generation ? 2 : 1) || m.function(functions::forward))
    return llvm::Error::success();
  Function &exported = generation ? *generation : *m.functions.front();
  KvInterface io;
  findIndexInputs(exported, io);
  if (!io.ids)
    return llvm::Error::success();
  auto mask = maskInput(exported, io);
  auto numbers = mask ? numbersOf(exported, *mask) : std::nullopt;
  if (!numbers)
    return llvm::Error::success();
  llvm::DenseMap<Value *, Value *> copies;
  auto owned = exported.clone(functions::generation, &copies);
  MaskInput copied{copies.lookup(mask->argument), mask->keys, {}};
  if (llvm::Error e = fillMask(*owned, copied, numbers->first, numbers->second)) {
    llvm::consumeError(std::move(e)); // other keys than scores are of: kv-transform says the rest
    return llvm::Error::success();
  }
  setWholeMask(m, {mask->argument->name, numbers->first, numbers->second});
  ctx.note("text is generated " +
           llvm::StringRef(isForAllQueries(mask->argument->type.shape)
                               ? "with every key of a sequence"
                               : "under a causal mask") +
           " in the place of the input '" + mask->argument->name + "'")
      .of("ports");
  if (generation)
    llvm::erase_if(m.functions, [&](auto &f) { return f.get() == generation; });
  m.functions.push_back(std::move(owned));
  return llvm::Error::success();
}

} // namespace gpt2c
