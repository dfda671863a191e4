#include "templates/attention/Attention.h"

#include "templates/generic/GenericLowerings.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

/// Queries per sequence up to which the split-key kernel is used.
constexpr int64_t decodeQueries = 4;

/// Whether attention_decode_mma computes few queries.
static bool hasDecodeMma(const AttentionConfig &c) {
  return c.x == Scalar::F16 && c.kv != Scalar::F32 && c.append && c.bulk && !c.last &&
         c.headDim <= 128 && c.headDim % (c.kv == Scalar::I8 ? 32 : 16) == 0;
}
/// Whether it does. A state in fp16 is faster by the ring of attention_decode where products fill
/// shared memory, and one that divides it as they do need not be empty in between: on Hopper from
/// more than 32 sequences on, as long as there are four blocks for each multiprocessor, and
/// elsewhere from eight on.
static bool usesDecodeMma(const PlanPool &pool, const AttentionConfig &c, int64_t rows) {
  const int64_t processors = pool.target.multiprocessors;
  const int64_t most = pool.target.hopper() && rows > 32 ? 4 * processors : 8 * processors;
  return hasDecodeMma(c) && (c.kv == Scalar::I8 || rows * c.heads < most);
}

/// Whether many queries go through the kernels on tensor cores.
static bool usesTensorCores(const AttentionConfig &c) {
  return c.x == Scalar::F16 && c.kv != Scalar::F32 && c.aligned && c.headDim % 16 == 0 &&
         c.headDim <= 256;
}

/// The lengths of sequences of which the last token alone has a query; null: all tokens have one.
static Value *lengthOf(const Op &op) {
  return op.is(OpCode::AppendAttention)            ? op.operand(4)
         : op.is(OpCode::QuantizedAppendAttention) ? op.operand(6)
                                                   : nullptr;
}

/// Heads of the state: its own axis, or what is left of a packed row besides the queries, of which
/// one may be a symbol.
static std::optional<int64_t> kvHeadsOf(const Op &op) {
  if (auto heads = op.operand(0)->type.shape[3].constant())
    return heads;
  auto packed = op.operand(1)->type.shape.back().constant();
  const int64_t heads = op.intAttr("num_heads");
  if (!packed)
    return std::nullopt;
  return (*packed / (lastDim(op.result(1)) / heads) - heads) / 2;
}

static AttentionConfig attentionConfig(const Op &op) {
  const Value *kv = op.operand(0);
  AttentionConfig c;
  c.x = scalarOf(op.operand(1)->type.dtype);
  c.kv = scalarOf(kv->type.dtype);
  c.heads = op.intAttr("num_heads");
  c.headDim = lastDim(op.result(1)) / c.heads;
  c.kvHeads = int(kvHeadsOf(op).value_or(c.heads));
  // Where the heads of an int8 state begin.
  auto positions = kv->type.shape[4].constant();
  c.aligned = c.kv != Scalar::I8 || (positions && *positions * (c.headDim + 4) % 8 == 0);
  c.mask = op.operand(3) != nullptr;
  c.last = lengthOf(op) != nullptr;
  return c;
}

static AttentionKernel attentionKernel(const PlanPool &pool, const AttentionConfig &c,
                                       int64_t sequences, int64_t queries) {
  if (queries <= decodeQueries)
    return usesDecodeMma(pool, c, sequences * queries) ? AttentionKernel::DecodeMma
                                                       : AttentionKernel::Decode;
  const bool apart = c.kvHeads == c.heads; // others read the state alone
  if (pool.target.hopper() && c.x == Scalar::F16 && c.kv == Scalar::F16 && c.headDim == 64 && apart)
    return AttentionKernel::Wgmma;
  if (usesTensorCores(c))
    return AttentionKernel::Mma;
  if (pool.tf32 && c.x == Scalar::F32 && c.kv == Scalar::F32 && c.headDim % 8 == 0 &&
      c.headDim <= 128 && apart)
    return AttentionKernel::Tf32;
  return AttentionKernel::Simt;
}

/// Completes the configuration as the cost model would have it.
static void modelAttention(const Target &target, AttentionKernel kind, AttentionConfig &c,
                           int64_t sequences, int64_t queries) {
  const int64_t processors = target.multiprocessors;
  switch (kind) {
  case AttentionKernel::Decode: {
    // Split the keys over a cluster until there are about two blocks for each multiprocessor.
    const int64_t blocks = sequences * queries * c.heads;
    // Where all tokens but the last have no query, blocks append them, too.
    const int64_t wanted = c.last ? 4 * processors : 2 * processors;
    while (c.splits < 8 && blocks * c.splits < wanted)
      c.splits *= 2;
    c.cluster = c.splits > 1;
    c.warps = !c.last && (c.splits == 1 || (c.splits == 8 && blocks * 8 < 2 * processors)) ? 8 : 4;
    // Where blocks follow each other on a multiprocessor, the copy engine keeps it reading. Where
    // they do not, giving shared memory what the neighbours use as L1 costs more than that gains.
    if (c.bulk && blocks >= 4 * processors) {
      AttentionConfig ring = c;
      ring.warps = ring.ring = 4;
      if (attentionRingBytes(ring) <= 64 * 1024)
        c = ring;
    }
    return;
  }
  case AttentionKernel::DecodeMma: {
    // Split the keys over a cluster until each multiprocessor has a block, with int8, whose blocks
    // have half of the bytes on their way, two.
    const int64_t blocks = sequences * queries * c.heads;
    const int64_t wanted = c.kv == Scalar::I8 ? 2 * processors : processors;
    c.queries = queries;
    c.splits = std::min<int64_t>(divideCeilSigned(wanted, blocks), 8);
    c.cluster = c.splits > 1;
    return;
  }
  case AttentionKernel::Wgmma: {
    // Groups share the keys of 64 queries: four while each tile of queries has a multiprocessor of
    // its own, or two have one and the longest are long; two while no more than three share one.
    const int64_t tiles = divideCeilSigned(queries, 64), blocks = sequences * c.heads * tiles;
    c.splits = 1;
    if (tiles > 2 && blocks <= (tiles > 4 ? 2 : 1) * processors)
      c.splits = 4;
    else if (tiles > 1 && blocks <= (tiles > 2 ? 3 : 2) * processors)
      c.splits = 2;
    return;
  }
  case AttentionKernel::Mma:
    c.keys = c.headDim > 128 ? 32 : 64;
    return;
  case AttentionKernel::Tf32: {
    c.warps = c.headDim > 80 || queries <= 32 ? 4 : 2;
    c.keys = c.headDim > 80 ? 32 : 64;
    const int64_t blocks = divideCeilSigned(queries, 16 * c.warps) * c.heads * sequences;
    // Splits of less than a tile of the new keys cost more than they gain.
    while (c.splits < 4 && blocks * c.splits < 2 * processors && queries >= 2 * c.splits * c.keys)
      c.splits *= 2;
    return;
  }
  case AttentionKernel::Simt:
    c.tq = c.tk = c.headDim > 96 ? 2 : 4;
    return;
  }
}

bool attentionQuantises(StepBuilder &b, const Op &op) {
  const AttentionConfig c = attentionConfig(op);
  return b.maximum(op.operand(1)->type.shape[1]) > decodeQueries && usesTensorCores(c) &&
         c.headDim % 32 == 0;
}

llvm::Error launchAttention(StepBuilder &b, Op &op, AttentionOutput to) {
  Value *kv = op.operand(0), *qkv = op.operand(1), *past = op.operand(2), *mask = op.operand(3);
  Value *state = op.result(0), *out = op.result(1), *length = lengthOf(op);
  if (!hasKernelTypes(op) || !isI32(past) || !isI32(mask) || !isI32(length))
    return noKernel(op,
                    "attention over the KV state is in f32 or f16, its lengths and mask in i32");
  if (!out->type.shape.back().isConstant())
    return noKernel(op, "the width of its heads is not constant");
  if (!kvHeadsOf(op))
    return noKernel(op, "the number of its heads is not constant");
  if (llvm::Error e = takeOver(b, op))
    return e;
  AttentionConfig c = attentionConfig(op);
  c.quantise = to.scale || to.given;
  c.given = to.given.kind;
  const bool int8 = c.kv == Scalar::I8;
  if (int8 && (!kv->type.shape[4].isConstant() || c.headDim % 4 != 0))
    return noKernel(op, "an int8 KV state has a constant context and heads of a multiple of 4");
  Dim batch = qkv->type.shape[0], seq = qkv->type.shape[1], context = kv->type.shape[4];
  ArgList args(b);
  args.in("qkv", qkv)
      .in("kv", state)
      .set("out", std::move(to.out))
      .in("past", past)
      .in("keyMask", mask)
      .i32("layer", op.intAttr("layer"))
      .i32("batchMax", kv->type.shape[2])
      .i32("context", context)
      .i32("seq", seq)
      .i32("maskStride", mask ? mask->type.shape[1] : Dim(0))
      .set("scale", StepBuilder::f32(op.floatAttr("scale")));
  if (length)
    args.in("length", length);
  if (to.scale)
    args.set("outScale", std::move(*to.scale));
  // Of the new tokens, whose queries see each other up to their own position; the tokens in the
  // state are not known at compile time.
  Dim bytes = bytesOf(qkv) + bytesOf(out);
  const Dim perSequence = length ? Dim(1) : seq;
  Dim flops = elementCount(out->type.shape) * (length ? Dim(4) * seq : Dim(2) * (seq + Dim(1)));

  // Many queries read each key many times: an int8 state is written first, then only read, and so
  // is one whose heads are shared.
  c.append = c.kvHeads == c.heads && (!int8 || (!c.last && b.maximum(seq) <= decodeQueries));
  c.bulk = c.append && !c.last && c.headDim * scalarBytes(c.kv) % 16 == 0 &&
           (!int8 || context.constant().value_or(1) % 4 == 0);
  const int64_t sequences = b.maximum(batch), queries = b.maximum(perSequence);
  auto model = [&](AttentionKernel kernel) {
    AttentionChoice choice{kernel, c};
    modelAttention(b.pool().target, kernel, choice.config, sequences, queries);
    return choice;
  };
  const AttentionKernel best = attentionKernel(b.pool(), c, sequences, queries);
  std::vector<AttentionChoice> choices =
      attentionCandidates(model(best), sequences * queries, b.pool().target);
  if (queries <= decodeQueries && hasDecodeMma(c))
    choices.push_back(model(best == AttentionKernel::Decode ? AttentionKernel::DecodeMma
                                                            : AttentionKernel::Decode));
  std::string key =
      llvm::formatv(
          "attention batch={0} seq={1} heads={2} head_dim={3} context={4} {5} x {6}{7}{8}{9}",
          sequences, b.maximum(seq),
          c.heads == c.kvHeads ? llvm::formatv("{0}", c.heads).str()
                               : llvm::formatv("{0} of {1}", c.kvHeads, c.heads).str(),
          c.headDim, b.maximum(context), dtypeName(qkv->type.dtype), dtypeName(kv->type.dtype),
          c.mask ? " mask" : "",
          !c.quantise ? ""
          : to.given  ? " quantised by a given scale"
                      : " quantised",
          c.last ? " last" : "")
          .str();
  std::vector<std::string> names;
  for (const AttentionChoice &c : choices)
    names.push_back(nameOf(c));
  const AttentionChoice choice = choices[b.choose(std::move(key), names)];
  const AttentionKernel kind = choice.kernel;
  c = choice.config;

  auto name = [&](llvm::StringRef stem) { return b.pool().nextKernelName(stem); };
  KernelSource kernel;
  std::array<plan::ExprT, 3> grid;
  switch (kind) {
  case AttentionKernel::Decode:
  case AttentionKernel::DecodeMma: {
    const int64_t rows = b.maximum(batch * perSequence) * c.heads;
    args.set("partial", c.splits > 1 ? b.sharedScratch("attention-partial",
                                                       rows * c.splits * (c.headDim + 2) * 4)
                                     : StepBuilder::null());
    args.set("counters",
             c.splits > 1 ? b.sharedScratch("attention-counters", rows * 4) : StepBuilder::null());
    kernel = kind == AttentionKernel::Decode ? attentionDecode(name("attention_decode"), c)
                                             : attentionDecodeMma(name("attention_decode_mma"), c);
    grid = {rt::constantExpr(c.splits), rt::constantExpr(c.heads), b.expr(batch * perSequence)};
    break;
  }
  case AttentionKernel::Wgmma: {
    const Dim planes = Dim(2 * c.heads) * kv->type.shape[0] * kv->type.shape[2];
    auto qkvAt = b.read(qkv), kvAt = b.read(state);
    if (!qkvAt)
      return qkvAt.takeError();
    if (!kvAt)
      return kvAt.takeError();
    args.set("qkvMap", b.tensorMap(std::move(*qkvAt), seq, 3 * 64 * c.heads, 64, &batch));
    args.set("kvMap", b.tensorMap(std::move(*kvAt), context, 64, 64, &planes));
    args.set("backwards", b.backwards());
    kernel = attentionPrefillWgmma(name("attention_prefill_wgmma"), c);
    grid = {rt::constantExpr(c.heads), b.expr(batch), ceilDivExpr(b, seq, 64)};
    if (hasAttentionPairs(c)) {
      // As many tiles of each head as all multiprocessors have room for, but at least half of them.
      const Dim heads = batch * Dim(c.heads); // floor(a / b) = ceil((a + 1 - b) / b)
      plan::ExprT room =
          rt::combineExpr(rt::ExprOp::CeilDiv,
                          b.expr(Dim(b.pool().target.multiprocessors + 1) - heads), b.expr(heads));
      grid[2] = rt::combineExpr(rt::ExprOp::Min, grid[2],
                                rt::combineExpr(rt::ExprOp::Max, ceilDivExpr(b, seq, 128), room));
    }
    break;
  }
  case AttentionKernel::Mma:
    kernel = attentionPrefillMma(name("attention_prefill_mma"), c);
    grid = {ceilDivExpr(b, seq, 16 * c.warps), rt::constantExpr(c.heads), b.expr(batch)};
    break;
  case AttentionKernel::Tf32:
    kernel = attentionPrefillTf32(name("attention_prefill_tf32"), c);
    grid = {ceilDivExpr(b, seq, 16 * c.warps), rt::constantExpr(c.heads),
            b.expr(batch * Dim(c.splits))};
    break;
  case AttentionKernel::Simt:
    kernel = attentionPrefillSimt(name("attention_prefill_simt"), c);
    grid = {ceilDivExpr(b, seq, 16 * c.tq), rt::constantExpr(c.heads), b.expr(batch)};
    break;
  }
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  to.given.tell(*taken);
  if (!c.append) {
    KvAppendConfig append{
        .x = c.x, .kv = c.kv, .headDim = c.headDim, .heads = c.heads, .kvHeads = c.kvHeads};
    b.launch(op.locations, "kv_append", kvAppend(name("kv_append"), append), *taken,
             {b.expr(batch * seq), one(), one()}, bytesOf(qkv), 0);
  }
  const std::string what = std::string(c.append ? "append_attention" : "cached_attention") +
                           (c.quantise ? "+quantize" : "");
  llvm::Error launched = b.launch(op, what, std::move(kernel), *taken, grid, bytes, flops);
  const Dim width(lastDim(out)), kept = kv->type.shape[3] * kv->type.shape[5];
  b.addPastCosts(Dim(2 * byteSize(kv->type.dtype)) * kept, Dim(4) * width * perSequence);
  return launched;
}

llvm::Error lowerAppendAttention(StepBuilder &b, Op &op) {
  auto out = b.write(op.result(1));
  if (!out)
    return out.takeError();
  return launchAttention(b, op, {std::move(*out), {}, {}});
}

llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op) {
  Value *out = op.result(1), *qkv = op.operand(1);
  if (!hasKernelTypes(op) || !out->type.shape.back().isConstant())
    return noKernel(op, "attention over the KV state is in f32 or f16");
  const int64_t k = lastDim(out), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, 1, op.operand(4), group, op.operand(5));
  if (!rows)
    return rows.takeError();
  if (rows->given)
    return launchAttention(b, op, {rows->q, {}, rows->given});
  if (rows->group == k / op.intAttr("num_heads") && attentionQuantises(b, op))
    return launchAttention(b, op, {rows->q, rows->scale, {}});
  plan::ArgT y = workspace(b, "attention", b.maximum(elements(out)), scalarOf(qkv));
  if (llvm::Error e = launchAttention(b, op, {y, {}, {}}))
    return e;
  launchQuantize(b, op, std::move(y), scalarOf(qkv), leading(out), k, *rows);
  return llvm::Error::success();
}

} // namespace gpt2c
