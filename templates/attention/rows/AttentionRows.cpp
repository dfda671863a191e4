// Lowerings of attention with separate queries, keys and values, and of the KV state's update.
#include "templates/generic/GenericLowerings.h"

#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

/// A pointer that the kernel does not look at.
static void absent(KernelCall &call, llvm::StringRef name, DType type) {
  call.pointer(name, cudaType(type), StepBuilder::null());
}

namespace {

struct AttentionRows {
  Value *q, *first, *firstValues, *keys, *values, *past, *mask, *bias;
  int64_t heads, headDim;
  Dim keyHeads, firstCount = 0, keyCount = 0, layer = 0, slots = 0, context = 0;
  bool causal;
  Value *length = nullptr; ///< one query for each sequence, number length[b] - 1
};

} // namespace

static llvm::Error attentionRows(StepBuilder &b, Op &op, const AttentionRows &a,
                                 llvm::Expected<plan::ArgT> out) {
  constexpr int warps = 4;
  DType x = a.q->type.dtype, kv = a.first ? a.first->type.dtype : x;
  DType past = a.past ? a.past->type.dtype : DType::I32,
        length = a.length ? a.length->type.dtype : DType::I32,
        mask = a.mask ? a.mask->type.dtype : DType::I32, bias = a.bias ? a.bias->type.dtype : x;
  const Dim &batch = a.q->type.shape[0], &tokens = a.q->type.shape[1];
  const Dim seq = a.length ? Dim(1) : tokens;
  KernelCall call(b, op, "templates/attention/rows/attention_rows.cuh");
  call.type("X", cudaType(x));
  call.type("Kv", cudaType(kv));
  call.type("P", cudaType(past));
  call.type("L", cudaType(length));
  call.type("M", cudaType(mask));
  call.type("B", cudaType(bias));
  call.constant("HeadDim", a.headDim);
  call.constant("Warps", warps);
  call.flag("Cached", a.past != nullptr);
  call.flag("Causal", a.causal);
  call.constant("Window", op.intAttr("window"));
  call.flag("Last", a.length != nullptr);
  call.flag("Mask", a.mask != nullptr);
  call.flag("Bias", a.bias != nullptr);
  auto in = [&](llvm::StringRef name, Value *v, DType type) {
    v ? call.in(name, v) : absent(call, name, type);
  };
  call.in("q", a.q);
  in("first", a.first, kv);
  in("firstValues", a.firstValues, kv);
  in("keys", a.keys, x);
  in("values", a.values, x);
  in("past", a.past, past);
  in("length", a.length, length);
  in("mask", a.mask, mask);
  in("bias", a.bias, bias);
  call.pointer("out", cudaType(x), std::move(out), true);
  call.integer("batch", batch);
  call.integer("seq", seq);
  call.integer("qTokens", tokens);
  call.integer("qRow", a.q->type.shape[2]);
  call.integer("heads", Dim(a.heads));
  call.integer("keyHeads", a.keyHeads);
  call.integer("firstCount", a.firstCount);
  call.integer("keyCount", a.keyCount);
  call.integer("layer", a.layer);
  call.integer("slots", a.slots);
  call.integer("context", a.context);
  call.integer("maskStride", a.mask ? a.mask->type.shape[1] : Dim(0));
  Shape strides(4, Dim(0));
  if (a.bias)
    strides =
        broadcastStrides(a.bias->type.shape, {batch, Dim(a.heads), seq, a.firstCount + a.keyCount});
  for (auto [name, stride] :
       llvm::zip(std::array{"biasBatch", "biasHead", "biasRow", "biasKey"}, strides))
    call.integer(name, stride);
  call.real("scale", op.floatAttr("scale"));
  call.real("softCap", op.floatAttr("soft_cap"));
  return call.launch(op, 32 * warps, ceilDivExpr(b.expr(batch * seq * Dim(a.heads)), warps),
                     "  tile::attentionRows<" + call.config() +
                         ">(q, first, firstValues, keys, values, past, length, mask, bias, out, "
                         "batch, seq,\n    qTokens, qRow, heads, keyHeads, firstCount, keyCount, "
                         "layer, slots, context, "
                         "maskStride, biasBatch, biasHead, biasRow, biasKey,\n    scale, "
                         "softCap, blockIdx.x, gridDim.x);\n");
}

llvm::Error lowerAttention(StepBuilder &b, Op &op) {
  using enum ops::Attention::Operand;
  Value *pastKeys = op.operand(PastK);
  auto width = op.operand(Q)->type.shape[2].constant();
  if (!width)
    return noKernel(op, "the width of its heads is not a constant");
  const int64_t heads = op.intAttr("num_heads");
  AttentionRows a{.q = op.operand(Q),
                  .first = pastKeys,
                  .firstValues = op.operand(PastV),
                  .keys = op.operand(K),
                  .values = op.operand(V),
                  .past = nullptr,
                  .mask = op.operand(KeyMask),
                  .bias = op.operand(Bias),
                  .heads = heads,
                  .headDim = *width / heads,
                  .keyHeads = Dim(heads),
                  .causal = op.boolAttr("causal")};
  a.firstCount = pastKeys ? pastKeys->type.shape[2] : Dim(0);
  a.keyCount = a.keys->type.shape[1];
  if (auto keyWidth = a.keys->type.shape[2].constant())
    a.keyHeads = *keyWidth / a.headDim;
  return attentionRows(b, op, a, b.write(op.result()));
}

/// Attention over the rows of a state.
static llvm::Error stateRows(StepBuilder &b, Op &op, Value *q, Value *kv, Value *past, Value *mask,
                             Value *length, llvm::Expected<plan::ArgT> out) {
  auto headDim = kv->type.shape[5].constant();
  if (!headDim)
    return llvm::joinErrors(noKernel(op, "the width of its heads is not a constant"),
                            out.takeError());
  AttentionRows a{.q = q,
                  .first = kv,
                  .firstValues = nullptr,
                  .keys = nullptr,
                  .values = nullptr,
                  .past = past,
                  .mask = mask,
                  .bias = nullptr,
                  .heads = op.intAttr("num_heads"),
                  .headDim = *headDim,
                  .keyHeads = kv->type.shape[3],
                  .causal = true,
                  .length = length};
  a.layer = op.intAttr("layer");
  a.slots = kv->type.shape[2];
  a.context = kv->type.shape[4];
  return attentionRows(b, op, a, std::move(out));
}

llvm::Error lowerCachedAttention(StepBuilder &b, Op &op) {
  using enum ops::CachedAttention::Operand;
  return stateRows(b, op, op.operand(Q), op.operand(Kv), op.operand(Past), op.operand(KeyMask),
                   nullptr, b.write(op.result()));
}

llvm::Error takeOver(StepBuilder &b, Op &op) {
  Value *from = op.operand(ops::KvAppend::Kv), *to = op.result();
  if (b.mayOverwrite(from)) {
    b.alias(to, from);
    return llvm::Error::success();
  }
  Dim count = elementCount(from->type.shape);
  plan::ExprT zero = rt::constantExpr(0);
  return launchCopy(b, op.info().mnemonic, op.locations, from->type.dtype,
                    {{count}, {{Dim(1)}, {Dim(1)}}}, b.write(to), b.read(from), zero, zero);
}

llvm::Error lowerKvAppend(StepBuilder &b, Op &op) {
  using enum ops::KvAppend::Operand;
  Value *kv = op.operand(Kv), *k = op.operand(K), *result = op.result();
  const Shape &state = kv->type.shape;
  Dim slots = state[2], heads = state[3], context = state[4], d = state[5];
  if (llvm::Error e = takeOver(b, op))
    return e;
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("kv", result);
  call.in("k", k);
  call.in("v", op.operand(V));
  call.in("past", op.operand(Past));
  Dim part = slots * heads * context * d;
  call.integer("layerStart", Dim(2 * op.intAttr("layer")) * part);
  call.integer("part", part);
  call.integer("context", context);
  call.integer("width", d);
  Shape sizes{k->type.shape[0], k->type.shape[1], heads, d};
  Loop loop{sizes,
            {{heads * context * d, d, context * d, Dim(1)},
             denseStrides(sizes),
             {Dim(1), Dim(0), Dim(0), Dim(0)}}};
  return launchMap(call, b, op, std::move(loop),
                   "        const i64 past0 = (i64)load(past + at.offset[2]);\n"
                   "        if (past0 < 0 || past0 + at.coordinate[1] >= context)\n"
                   "          return;\n"
                   "        const i64 to = layerStart + at.offset[0] + past0 * width;\n"
                   "        store(kv + to, load(k + at.offset[1]));\n"
                   "        store(kv + to + part, load(v + at.offset[1]));\n",
                   true);
}

} // namespace gpt2c
