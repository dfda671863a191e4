#include "passes/kv/KvPorts.h"

#include "ir/Builder.h"
#include "ir/FunctionNames.h"
#include "ir/ops/Common.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace gpt2c {

/// `v` (of any type in the exported graph) becomes an i32 argument called `name`, cast back where
/// it is used.
static llvm::Error renameArgument(Function &f, Value *v, llvm::StringRef name) {
  v->name = name.str();
  if (v->type.dtype == DType::I32)
    return llvm::Error::success();
  DType exported = v->type.dtype;
  llvm::SmallVector<Use> uses(v->uses());
  v->type.dtype = DType::I32;
  Builder b(f, f.ops().front().get());
  auto cast = b.value(OpCode::Cast, {v}, {{"to", exported}});
  if (!cast)
    return cast.takeError();
  for (const Use &u : uses) {
    bool takesBoth = (u.op->is(OpCode::Gather) && u.operand == ops::Gather::Indices) ||
                     (u.op->is(OpCode::Rope) && u.operand == ops::Rope::Positions) ||
                     (u.op->is(OpCode::Attention) && u.operand == ops::Attention::KeyMask) ||
                     (u.op->is(OpCode::MaskedSoftmax) && u.operand == ops::MaskedSoftmax::KeyMask);
    if (!takesBoth)
      u.op->setOperand(u.operand, *cast);
  }
  if ((*cast)->uses().empty())
    f.erase((*cast)->def());
  return llvm::Error::success();
}

llvm::Error nameArguments(Function &f, KvInterface &io) {
  // Attention reads the mask as an i32, whatever it was cast from.
  for (Op *a : io.attentions)
    if (io.keyMask && keyMaskOf(*a) == io.keyMask)
      a->setOperand(ops::Attention::KeyMask, io.keyMask);
  for (auto [v, name] : {std::pair{io.ids, "ids"},
                         {io.keyMask, "key_mask"},
                         {io.positionIds, "position_ids"},
                         {io.tokenTypes, "token_type_ids"}})
    if (v)
      if (llvm::Error e = renameArgument(f, v, name))
        return e;
  return llvm::Error::success();
}

void renamePlainPorts(Function &f, KvInterface &io) {
  constexpr llvm::StringRef meaning[] = {"ids",  "key_mask", "position_ids", "token_type_ids",
                                         "past", "length",   "kv",           "logits",
                                         "next"};
  llvm::StringSet<> taken;
  for (auto *ports : {&io.inputs, &io.outputs})
    for (const ExportedPort &p : *ports)
      taken.insert(p.name);
  auto rename = [&](ExportedPort &p) {
    if (!isNamed(p) || !p.port.empty() || !llvm::is_contained(meaning, p.name))
      return false;
    p.port = p.name + "_";
    while (!taken.insert(p.port).second)
      p.port += "_";
    return true;
  };
  for (auto [i, p] : llvm::enumerate(io.inputs))
    if (rename(p))
      f.argument(i)->name = p.port;
  f.resultNames.resize(f.returned().size());
  for (auto [i, p] : llvm::enumerate(io.outputs)) {
    f.resultNames[i] = p.name;
    if (rename(p))
      f.resultNames[i] = p.port;
  }
}

/// Whether nothing reads an input, whatever it may mean.
static bool isUnread(const Function &f, const KvInterface &io, unsigned input) {
  const ExportedPort &p = io.inputs[input];
  return p.role == "plain" && p.port.empty() && f.argument(input)->uses().empty();
}

llvm::Error keepGraph(Function &f, KvInterface &io) {
  f.setName(functions::forward);
  if (io.logits >= 0)
    f.resultNames[io.logits] = "logits";
  for (unsigned i = f.numArguments(); i-- > 0;)
    if (isUnread(f, io, i))
      f.eraseArgument(i);
  if (llvm::Error e = nameArguments(f, io))
    return e;
  return f.inferTypes();
}

void nameSymbols(Function &f, const KvInterface &io) {
  auto rename = [&](const Dim &d, llvm::StringRef name) {
    if (auto symbol = d.asSymbol(); symbol && *symbol != name) {
      f.substitute(name, Dim::symbol((name + "_").str())); // out of the way
      f.substitute(*symbol, Dim::symbol(name));
    }
  };
  rename(io.ids->type.shape[0], "batch");
  rename(io.ids->type.shape[1], "seq");
  if (Value *past = io.attentions[0]->operand(ops::Attention::PastK))
    rename(past->type.shape[2], "past");
}

void notePorts(PassContext &ctx, const Function &f, const KvInterface &io) {
  for (auto [i, p] : llvm::enumerate(io.inputs))
    if (isUnread(f, io, i))
      ctx.note("nothing reads the input '" + p.name +
               "': what is given for it has no part in what "
               "the plan computes")
          .of("ports");
  for (const ExportedPort &p : io.outputs)
    if (isProbabilities(p))
      ctx.note("the output '" + p.name + "' holds " +
               (p.role == "probabilities" ? "probabilities" : "log probabilities") +
               ": the next tokens are drawn by these, and the plan gives their logits besides")
          .of("ports");
  if (!io.idsDoubt.empty())
    ctx.note(io.idsDoubt + ": it cannot generate text").of("ports");
  if (!io.ids)
    return;
  if (io.logits < 0 && !io.logitsDoubt.empty())
    ctx.note(io.logitsDoubt + ": it cannot generate text").of("ports");
  if (io.tokenTypes)
    ctx.note("token types are zeros where '" + io.inputs[io.tokenTypes->index()].name +
             "' is not given: in generated text, and in perplexity")
        .of("ports");
  if (auto batch = io.ids->type.shape[0].constant())
    ctx.note("the export has a batch of " + llvm::Twine(*batch) +
             ": the plan takes that many sequences at once, no more and no fewer")
        .of("ports");
}

} // namespace gpt2c
