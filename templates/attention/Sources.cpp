// The sources of attention and of the KV state.
#include "templates/attention/Attention.h"

#include "codegen/KernelWriter.h"

using namespace llvm;

namespace gpt2c {

namespace {
/// Whether scales are written.
bool writesScales(const AttentionConfig &c) { return c.quantise && c.given == Given::None; }

/// Where the value goes: for the kernels on tensor cores with its scales and what it is quantised
/// with.
void passOut(KernelWriter &w, const AttentionConfig &c) {
  w.out("out", c.quantise ? Scalar::I8 : c.x);
  w.out("outScale", Scalar::F32, writesScales(c));
  w.pass(w.given(c.given));
}

/// What of the state and of the call's sizes there is.
void passSizes(KernelWriter &w) {
  for (const char *name : {"layer", "batchMax", "context", "seq", "maskStride"})
    w.i32(name);
  w.f32("scale");
}

void passPast(KernelWriter &w) {
  w.in("past", Scalar::I32);
  w.in("keyMask", Scalar::I32);
}

/// Of the kernels without tensor cores.
void passPlain(KernelWriter &w, const AttentionConfig &c) {
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  w.out("out", c.quantise ? Scalar::I8 : c.x);
  passPast(w);
}

/// Of the kernels that split keys: where parts of a sum meet.
void passParts(KernelWriter &w) {
  w.out("partial", Scalar::F32);
  w.value("unsigned *", "counters");
}

/// Causal tiles grow with their index: the longest start first.
constexpr const char *longestFirst = "gridDim.x - 1 - blockIdx.x";

void attentionMembers(KernelWriter &w, const AttentionConfig &c) {
  w.type("X", c.x);
  w.type("Y", c.quantise ? Scalar::I8 : c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.flag("Append", c.append);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
}
} // namespace

KernelSource kvAppend(StringRef name, const KvAppendConfig &c) {
  KernelWriter w(name, "templates/attention/kv_append/kv_append.cuh", "tile::kvAppend");
  w.type("X", c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.constant("Threads", c.threads);
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  w.in("past", Scalar::I32);
  for (const char *name : {"layer", "batchMax", "context", "seq"})
    w.i32(name);
  w.pass("blockIdx.x");
  return w.finish(c.threads);
}

unsigned attentionRingBytes(const AttentionConfig &c) {
  int v = std::min<int>(16 / scalarBytes(c.x), c.aligned ? 16 / scalarBytes(c.kv) : 4);
  while (c.headDim % v != 0)
    v /= 2;
  const int vectors = c.headDim / v, unroll = vectors > 32 ? 2 : 4;
  int lanes = 1;
  while (lanes < std::min(vectors, 32))
    lanes *= 2;
  const unsigned row = c.headDim * scalarBytes(c.kv) + (c.kv == Scalar::I8 ? 4 : 0);
  return c.warps * c.ring * 2 * (32 / lanes * unroll) * row;
}

static void decodeMembers(KernelWriter &w, const AttentionConfig &c) {
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.flag("Cluster", c.cluster);
  if (c.cluster)
    w.cluster(c.splits, 1);
}

KernelSource attentionDecode(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/decode/attention_decode.cuh", "tile::attentionDecode");
  decodeMembers(w, c);
  w.flag("Aligned", c.aligned);
  w.flag("Last", c.last);
  w.constant("Ring", c.ring);
  passPlain(w, c);
  w.in("length", Scalar::I32, c.last);
  passParts(w);
  passSizes(w);
  w.pass("blockIdx.x, blockIdx.y, blockIdx.z");
  const unsigned shared = attentionRingBytes(c);
  w.pass(shared ? "(char *)dynamicShared" : "nullptr");
  w.pass(w.given(c.given));
  w.check("DecodeKeys", "ringBytes", shared);
  return w.finish(32 * c.warps, shared);
}

KernelSource attentionDecodeMma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/decode_mma/attention_decode_mma.cuh",
                 "tile::attentionDecodeMma");
  decodeMembers(w, c);
  w.constant("Queries", c.queries);
  passPlain(w, c);
  passParts(w);
  passSizes(w);
  w.pass("blockIdx.x, blockIdx.y, blockIdx.z");
  w.pass(w.given(c.given));
  return w.finish(32 * c.warps, 0, c.blocks);
}

KernelSource attentionPrefillMma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_mma/attention_prefill_mma.cuh",
                 "tile::attentionPrefillMma");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  passOut(w, c);
  passPast(w);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z, (__half *)dynamicShared");
  const unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 8) * 2;
  w.check("AttentionMma", "sharedBytes", shared);
  return w.finish(32 * c.warps, shared);
}

KernelSource attentionPrefillWgmma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_wgmma/attention_prefill_wgmma.cuh",
                 "tile::attentionPrefillWgmma");
  w.type("Y", c.quantise ? Scalar::I8 : Scalar::F16);
  w.constant("Heads", c.heads);
  w.constant("KeySplit", c.splits);
  const int stages = c.splits > 1 ? 3 : 2; // one group leaves room for four blocks
  w.constant("Stages", stages);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
  w.map("qkvMap");
  w.map("kvMap");
  w.out("kv", c.kv);
  passOut(w, c);
  passPast(w);
  passSizes(w);
  w.i32("backwards");
  w.pass("dynamicShared");
  const int units = hasAttentionPairs(c) ? 2 : 1;
  w.checkSizes("AttentionWgmma");
  return w.finish(128 * c.splits, (units + 2 * stages * c.splits) * 64 * 64 * 2 + 1024,
                  4 / c.splits);
}

KernelSource attentionPrefillSimt(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_simt/attention_prefill_simt.cuh",
                 "tile::attentionPrefillSimt");
  attentionMembers(w, c);
  w.constant("TQ", c.tq);
  w.constant("TK", c.tk);
  passPlain(w, c);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z, (float *)dynamicShared");
  w.pass(w.given(c.given));
  const unsigned quads = (c.headDim + 3) / 4, stride = 4 * (quads + (quads % 2 == 0));
  const unsigned shared =
      4 * (16 * c.tq * stride + 16 * c.tk * stride + 16 * c.tq * (16 * c.tk + 4));
  w.check("AttentionSimt", "sharedBytes", shared);
  return w.finish(256, shared);
}

KernelSource attentionPrefillTf32(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_tf32/attention_prefill_tf32.cuh",
                 "tile::attentionPrefillTf32");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.constant("Splits", c.splits);
  if (c.splits > 1)
    w.cluster(1, c.splits);
  passPlain(w, c);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z / " + Twine(c.splits) + ", blockIdx.z % " + Twine(c.splits));
  w.pass("(float *)dynamicShared");
  w.pass(w.given(c.given));
  w.checkSizes("AttentionTf32");
  return w.finish(c.warps * c.keys, (16 * c.warps + 4 * c.keys) * (c.headDim + 4) * 4);
}

} // namespace gpt2c
