// quantize-kv: with a KV state in int8 or fp8 every row of keys and values is quantised as it is
// appended, with a scale of its own for each head and token, and dequantised as it is read.
//
// The state changes in all functions or in none: they share it. Where nothing turns keys their bias
// is changed for it (CentreKeys.h).
#include "ir/Error.h"
#include "ir/ops/AppendAttention.h"
#include "passes/Rewrite.h"
#include "passes/quantize/CentreKeys.h"

namespace gpt2c {

/// The first op through which the state passes that cannot take bytes; null when there is none.
static const Op *obstacle(const Value &state) {
  for (const Use &u : state.uses()) {
    if (u.op->info().has(Terminator))
      continue;
    bool appends = u.op->is(OpCode::AppendAttention) || u.op->is(OpCode::QuantizedAppendAttention);
    if (!appends || u.operand != ops::AppendAttention::Kv)
      return u.op;
    if (const Op *op = obstacle(*u.op->result(ops::AppendAttention::NextKv)))
      return op;
  }
  return nullptr;
}

llvm::Error quantizeKv(PassContext &ctx) {
  const std::optional<DType> type = ctx.options().quantize.kvType;
  if (!type)
    return llvm::Error::success();
  llvm::SmallVector<Value *> states;
  for (auto &f : ctx.module().functions)
    if (Value *kv = f->argument("kv"); kv && isFloat(kv->type.dtype)) {
      if (const Op *op = obstacle(*kv)) {
        ctx.missed("the KV state keeps its precision: " + op->describe() + " in @" + f->name() +
                       " was not fused with the attention that reads it",
                   op->locations);
        return llvm::Error::success();
      }
      states.push_back(kv);
    }
  for (Value *kv : states) {
    auto context = kv->type.shape[4].constant(), d = kv->type.shape[5].constant();
    // Heads then start at multiples of 16 bytes.
    if (!context || !d || *context % 4 || *d % 4)
      return makeError(ExitCode::Usage,
                       (*type == DType::I8 ? "an int8" : "an fp8") +
                           llvm::Twine(" KV state takes a context and a head size that are "
                                       "multiples of 4, these are ") +
                           kv->type.shape[4].str() + " and " + kv->type.shape[5].str() +
                           " (--max-context)");
    kv->type.dtype = *type;
    kv->type.shape[5] = *d + kvScaleBytes(*type);
    if (llvm::Error e = kv->function()->inferTypes())
      return e;
  }
  KeyCentring centring;
  for (Value *kv : states)
    centring.look(*kv->function(), *kv);
  if (const int layers = centring.apply())
    ctx.note("keys of " + llvm::Twine(layers) +
             " layers are about zero: their bias, which softmax leaves out, is chosen for it");
  if (!states.empty() && *type == DType::F8E4M3)
    ctx.note("fp8 has four bits of each key and value: --kv-type=int8 takes the same bytes and "
             "loses less");
  for (Value *kv : states)
    kv->function()->eraseDeadOps();
  return llvm::Error::success();
}

} // namespace gpt2c
