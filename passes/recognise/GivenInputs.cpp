// given-inputs: some graphs have inputs that whoever generates text knows the value of: how many
// rows of logits are wanted, a temperature, how many tokens came before, where the new ones stand.
// Such a graph gets a second function, @generation, in which
//   logits_to_keep = 1, temperature = 1
//   past_length = past
//   cache_position = past, past + 1, ..., past + seq - 1
// and without the outputs that need more than logits do, as a loss needs labels. kv-transform makes
// @prefill and @decode of it; @forward stays the exported graph, right whatever it is given.
#include "ir/FunctionNames.h"
#include "ir/Ports.h"
#include "passes/Rewrite.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

/// What an input is by its name and type; none where it may be anything.
static std::optional<GivenInput::Kind> kindOf(const Function &f, const Value &a,
                                              const KvInterface &io) {
  const std::string lower = llvm::StringRef(a.name).lower();
  const llvm::StringRef name(lower);
  const bool isOne = llvm::all_of(a.type.shape, [](const Dim &d) { return d == Dim(1); });
  const bool counts = a.type.dtype == DType::I32 || a.type.dtype == DType::I64;
  if (a.uses().empty() || &a == io.ids || &a == io.positionIds || &a == io.tokenTypes)
    return std::nullopt;
  if (isOne && counts && name.contains("logits_to_keep"))
    return GivenInput::Kind::One;
  if (isOne && isFloat(a.type.dtype) && name.contains("temperature"))
    return GivenInput::Kind::One;
  if (isOne && counts && name.contains("past") && (name.contains("len") || name.contains("seq")))
    return GivenInput::Kind::Past;
  if (counts && a.type.rank() == 1 && name.contains("pos") && io.ids) {
    const Dim &seq = io.ids->type.shape[1], &own = a.type.shape[0];
    auto isShared = [&](unsigned i) {
      return f.argument(i) != &a && llvm::any_of(f.argument(i)->type.shape, [&](const Dim &d) {
               return d.uses(*own.asSymbol());
             });
    };
    const bool isOwn = own.asSymbol() && llvm::none_of(llvm::seq(f.numArguments()), isShared);
    if (own == seq || isOwn)
      return GivenInput::Kind::Positions;
  }
  return std::nullopt;
}

/// How many tokens the past tensors among the inputs hold: none where there are none.
static Dim pastTokens(const Function &f, const KvInterface &io) {
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value *a = f.argument(i);
    if (!isFloat(a->type.dtype) || a->type.rank() < 4)
      continue;
    const Dim &tokens = a->type.shape[a->type.rank() - 2];
    if (tokens.asSymbol() && !llvm::is_contained(io.ids->type.shape, tokens))
      return tokens;
  }
  return Dim(0);
}

/// The value of an input in text that is generated.
static llvm::Expected<Value *> valueOf(Builder &b, const Value &a, GivenInput::Kind kind,
                                       const Dim &past, const Dim &seq) {
  const Dims shape(a.type.shape.begin(), a.type.shape.end());
  if (kind == GivenInput::Kind::One) {
    Tensor one = Tensor::scalar<double>(1).cast(a.type.dtype);
    return b.constant(one.reshaped(llvm::SmallVector<int64_t>(shape.size(), 1)));
  }
  auto counted =
      kind == GivenInput::Kind::Past
          ? b.value(OpCode::DimValues, {}, {{"values", Dims{past}}})
          : b.value(OpCode::Range, {},
                    {{"start", Dims{past}}, {"limit", Dims{past + seq}}, {"delta", Dims{Dim(1)}}});
  if (counted && (*counted)->type.dtype != a.type.dtype)
    counted = b.value(OpCode::Cast, {*counted}, {{"to", a.type.dtype}});
  if (counted && kind == GivenInput::Kind::Past)
    counted = b.value(OpCode::Reshape, {*counted}, {{"shape", shape}});
  return counted;
}

/// Inputs that mean nothing to a KV state and that logits do not read.
static llvm::DenseSet<const Value *> inputsBesideLogits(Function &f, const KvInterface &io) {
  llvm::DenseSet<const Value *> beside;
  if (io.logits < 0)
    return beside;
  const auto read = backwardSlice(f.returned()[io.logits], [](Value *) { return false; }).leaves;
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (const Value *a = f.argument(i); !a->uses().empty() && !llvm::is_contained(read, a))
      beside.insert(a);
  return beside;
}

/// Takes the inputs away that logits do not read, and the outputs that do; their names.
static std::vector<std::string> dropOutputs(Function &f) {
  KvInterface io;
  findIndexInputs(f, io);
  findLogits(f, io);
  const auto beside = inputsBesideLogits(f, io);
  std::vector<Value *> kept;
  std::vector<std::string> names, dropped;
  for (auto [i, v] : llvm::enumerate(f.returned())) {
    const std::string name =
        i < f.resultNames.size() ? f.resultNames[i] : "output" + std::to_string(i);
    const auto leaves = backwardSlice(v, [](Value *) { return false; }).leaves;
    const bool reads = llvm::any_of(leaves, [&](Value *leaf) { return beside.contains(leaf); });
    (reads ? dropped : names).push_back(name);
    if (!reads)
      kept.push_back(v);
  }
  f.terminator()->setOperands(kept);
  f.resultNames = std::move(names);
  f.eraseDeadOps();
  for (unsigned i = f.numArguments(); i-- > 0;)
    if (beside.contains(f.argument(i)) && f.argument(i)->uses().empty())
      f.eraseArgument(i);
  return dropped;
}

static llvm::Error fillInputs(Function &f, llvm::ArrayRef<GivenInput> given, const Dim &past,
                              const Dim &seq) {
  Builder b(f, f.ops().front().get());
  for (const GivenInput &g : given) {
    Value *a = f.argument(g.name);
    if (g.kind == GivenInput::Kind::Positions)
      if (auto own = a->type.shape[0].asSymbol(); own && !seq.uses(*own)) {
        f.substitute(*own, seq);
        if (llvm::Error e = f.inferTypes())
          return e;
      }
    auto value = valueOf(b, *a, g.kind, past, seq);
    if (!value)
      return value.takeError();
    a->replaceAllUsesWith(*value);
    f.eraseArgument(a->index());
  }
  return f.inferTypes();
}

llvm::Error givenInputs(PassContext &ctx) {
  Module &m = ctx.module();
  if (m.functions.size() != 1 || m.function(functions::forward))
    return llvm::Error::success();
  Function &exported = *m.functions.front();
  KvInterface io;
  findIndexInputs(exported, io);
  if (!io.ids)
    return llvm::Error::success();
  std::vector<GivenInput> given;
  for (unsigned i = 0; i < exported.numArguments(); ++i)
    if (auto kind = kindOf(exported, *exported.argument(i), io))
      given.push_back({exported.argument(i)->name, *kind});
  if (given.empty()) {
    findLogits(exported, io);
    if (inputsBesideLogits(exported, io).empty())
      return llvm::Error::success();
  }
  auto owned = exported.clone(functions::generation);
  Function &generation = *owned;
  if (llvm::Error e =
          fillInputs(generation, given, pastTokens(exported, io), io.ids->type.shape[1])) {
    llvm::consumeError(std::move(e)); // other sizes than generation has: kv-transform says the rest
    return llvm::Error::success();
  }
  m.functions.push_back(std::move(owned));
  // Sizes that followed from the inputs are known now.
  for (const char *name : {"resolve-shapes", "fold-constants", "simplify"})
    if (llvm::Error e = findPass(name)->run(ctx))
      return e;
  for (const GivenInput &g : given)
    ctx.note("text is generated with " + describe(g) + " for the input '" + g.name + "'")
        .of("ports");
  for (const std::string &name : dropOutputs(generation))
    ctx.note("the output '" + name + "' reads inputs that logits do not: @forward alone gives it")
        .of("ports");
  setGivenInputs(m, given);
  return llvm::Error::success();
}

} // namespace gpt2c
