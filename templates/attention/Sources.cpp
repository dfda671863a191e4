// The sources of attention and of the KV state.
#include "templates/attention/Attention.h"

#include "codegen/KernelWriter.h"

using namespace llvm;

namespace gpt2c {

namespace {
/// Whether scales are written.
bool writesScales(const AttentionConfig &c) { return c.quantise && c.given == Given::None; }

/// Returns what the value is quantised with.
std::string attentionParams(KernelWriter &w, const AttentionConfig &c, bool decode) {
  w.constPointer(c.x, "qkv");
  w.pointer(c.kv, "kv");
  w.pointer(c.quantise ? Scalar::I8 : c.x, "out");
  if (writesScales(c))
    w.param("float *", "outScale");
  w.params("const int *", {"past", "keyMask"});
  if (c.last)
    w.param("const int *", "length");
  if (decode) {
    w.param("float *", "partial");
    w.param("unsigned *", "counters");
  }
  w.params("int", {"layer", "batchMax", "context", "seq", "maskStride"});
  w.param("float", "scale");
  return w.given(c.given);
}

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
  KernelWriter w(name, "templates/attention/kv_append/kv_append.cuh");
  w.type("X", c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.constant("Threads", c.threads);
  w.constPointer(c.x, "qkv");
  w.pointer(c.kv, "kv");
  w.param("const int *", "past");
  w.params("int", {"layer", "batchMax", "context", "seq"});
  return w.finish(c.threads, 0, "",
                  "tile::kvAppend<" + w.config() +
                      ">(qkv, kv, past, layer, batchMax, context, seq, blockIdx.x);");
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
  KernelWriter w(name, "templates/attention/decode/attention_decode.cuh");
  decodeMembers(w, c);
  w.flag("Aligned", c.aligned);
  w.flag("Last", c.last);
  w.constant("Ring", c.ring);
  const std::string given = attentionParams(w, c, true);
  const unsigned shared = attentionRingBytes(c);
  return w.finish(32 * c.warps, shared,
                  "DecodeKeys<" + w.config() + ">::ringBytes == " + Twine(shared),
                  "tile::attentionDecode<" + w.config() + ">(qkv, kv, out, past, keyMask, " +
                      (c.last ? "length" : "nullptr") +
                      ", partial, counters, layer, batchMax, context, seq, maskStride, scale, "
                      "blockIdx.x, blockIdx.y, blockIdx.z, " +
                      (shared ? "(char *)dynamicShared" : "nullptr") + ", " + given + ");");
}

KernelSource attentionDecodeMma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/decode_mma/attention_decode_mma.cuh");
  decodeMembers(w, c);
  w.constant("Queries", c.queries);
  const std::string given = attentionParams(w, c, true);
  return w.finish(32 * c.warps, 0, "",
                  "tile::attentionDecodeMma<" + w.config() +
                      ">(qkv, kv, out, past, keyMask, partial, counters, layer, batchMax, context, "
                      "seq, maskStride, scale, blockIdx.x, blockIdx.y, blockIdx.z, " +
                      given + ");",
                  c.blocks);
}

/// The output of the kernels on tensor cores.
static std::string outArguments(const AttentionConfig &c, const std::string &given) {
  return (writesScales(c) ? "out, outScale, " : "out, nullptr, ") + given;
}

KernelSource attentionPrefillMma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_mma/attention_prefill_mma.cuh");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  const std::string given = attentionParams(w, c, false);
  unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 8) * 2;
  return w.finish(
      32 * c.warps, shared, "AttentionMma<" + w.config() + ">::sharedBytes == " + Twine(shared),
      // Causal tiles grow with their index: the longest start first.
      "tile::attentionPrefillMma<" + w.config() + ">(qkv, kv, " + outArguments(c, given) +
          ", past, keyMask, layer, batchMax, context, seq, maskStride, "
          "scale, gridDim.x - 1 - "
          "blockIdx.x, blockIdx.y, blockIdx.z, (__half *)dynamicShared);");
}

KernelSource attentionPrefillWgmma(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_wgmma/attention_prefill_wgmma.cuh");
  w.type("Y", c.quantise ? Scalar::I8 : Scalar::F16);
  w.constant("Heads", c.heads);
  w.constant("KeySplit", c.splits);
  const int stages = c.splits > 1 ? 3 : 2; // one group leaves room for four blocks
  w.constant("Stages", stages);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
  for (const char *map : {"qkvMap", "kvMap"})
    w.param("const __grid_constant__ TensorMap", map);
  w.pointer(c.kv, "kv");
  w.pointer(c.quantise ? Scalar::I8 : Scalar::F16, "out");
  if (writesScales(c))
    w.param("float *", "outScale");
  w.params("const int *", {"past", "keyMask"});
  w.params("int", {"layer", "batchMax", "context", "seq", "maskStride"});
  w.param("float", "scale");
  w.param("int", "backwards");
  const std::string given = w.given(c.given);
  const int units = hasAttentionPairs(c) ? 2 : 1;
  unsigned threads = 128 * c.splits, shared = (units + 2 * stages * c.splits) * 64 * 64 * 2 + 1024;
  std::string t = "AttentionWgmma<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::attentionPrefillWgmma<" + w.config() + ">(qkvMap, kvMap, kv, " +
                      outArguments(c, given) +
                      ", past, keyMask, layer, batchMax, context, seq, maskStride, "
                      "scale, backwards, dynamicShared);",
                  4 / c.splits);
}

KernelSource attentionPrefillSimt(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_simt/attention_prefill_simt.cuh");
  attentionMembers(w, c);
  w.constant("TQ", c.tq);
  w.constant("TK", c.tk);
  const std::string given = attentionParams(w, c, false);
  unsigned quads = (c.headDim + 3) / 4, stride = 4 * (quads + (quads % 2 == 0));
  unsigned shared = 4 * (16 * c.tq * stride + 16 * c.tk * stride + 16 * c.tq * (16 * c.tk + 4));
  return w.finish(256, shared, "AttentionSimt<" + w.config() + ">::sharedBytes == " + Twine(shared),
                  "tile::attentionPrefillSimt<" + w.config() +
                      ">(qkv, kv, out, past, keyMask, layer, batchMax, context, seq, maskStride, "
                      "scale, gridDim.x - 1 - "
                      "blockIdx.x, blockIdx.y, blockIdx.z, (float *)dynamicShared, " +
                      given + ");");
}

KernelSource attentionPrefillTf32(StringRef name, const AttentionConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_tf32/attention_prefill_tf32.cuh");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.constant("Splits", c.splits);
  if (c.splits > 1)
    w.cluster(1, c.splits);
  const std::string given = attentionParams(w, c, false);
  unsigned threads = c.warps * c.keys;
  unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 4) * 4;
  std::string t = "AttentionTf32<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::attentionPrefillTf32<" + w.config() +
                      ">(qkv, kv, out, past, keyMask, layer, batchMax, context, seq, maskStride, "
                      "scale, gridDim.x - 1 - "
                      "blockIdx.x, blockIdx.y, blockIdx.z / " +
                      Twine(c.splits) + ", blockIdx.z % " + Twine(c.splits) +
                      ", (float *)dynamicShared, " + given + ");");
}

} // namespace gpt2c
