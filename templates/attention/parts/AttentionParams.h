// Members and parameters that the kernels of attention share.
#pragma once

#include "codegen/KernelWriter.h"
#include "templates/attention/parts/SplitKeys.h"

namespace gpt2c {

/// Whether scales are written.
inline bool writesScales(const AttentionConfig &c) { return c.quantise && c.given == Given::None; }

/// Where the value goes: for the kernels on tensor cores with its scales and what it is quantised
/// with.
inline void passOut(KernelWriter &w, const AttentionConfig &c) {
  w.out("out", valueType(c));
  w.out("outScale", Scalar::F32, writesScales(c));
  w.pass(w.given(c.given));
}

/// What of the state and of the call's sizes there is; with pages as in state_rows.cuh.
inline void passSizes(KernelWriter &w, bool paged = false) {
  for (const char *name : {"layer", paged ? "layers" : "batchMax", "context", "seq",
                           paged ? "tableStride" : "maskStride"})
    w.i32(name);
  w.f32("scale");
}

inline void passPast(KernelWriter &w, bool paged = false) {
  w.in("past", Scalar::I32);
  w.in(paged ? "tables" : "keyMask", Scalar::I32);
}

/// Of the kernels without tensor cores.
inline void passPlain(KernelWriter &w, const AttentionConfig &c) {
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  w.out("out", valueType(c));
  passPast(w, c.pageTokens > 0);
}

/// Of the kernels that split keys: where parts of a sum meet.
inline void passParts(KernelWriter &w) {
  w.out("partial", Scalar::F32);
  w.value("unsigned *", "counters");
}

/// The rotary embedding of queries and new keys, if there is one, and their norm.
inline void ropeMembers(KernelWriter &w, const AttentionConfig &c) {
  w.constant("RopePairs", c.ropePairs);
  w.flag("RopeInterleaved", c.ropeInterleaved);
  w.type("Table", c.ropeTable);
  w.flag("HeadNorm", c.headNorm);
}
inline void passRope(KernelWriter &w, const AttentionConfig &c) {
  const bool present = c.ropePairs > 0;
  w.in("cosines", c.ropeTable, present);
  w.in("sines", c.ropeTable, present);
  w.value("int", "places", present, "1");
  w.in("gains", Scalar::F32, c.headNorm);
  w.value("float", "gainEpsilon", c.headNorm, "0.0f");
}

/// Causal tiles grow with their index: the longest start first.
inline constexpr const char *longestFirst = "gridDim.x - 1 - blockIdx.x";

inline void attentionMembers(KernelWriter &w, const AttentionConfig &c) {
  w.type("X", c.x);
  w.type("Y", valueType(c));
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.flag("Append", c.append);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
  w.constant("Window", c.window);
  if (c.softCap > 0)
    w.real("SoftCap", c.softCap);
  if (c.alibi)
    w.flag("Alibi", true);
}

/// Of the kernels that split keys over a cluster.
inline void decodeMembers(KernelWriter &w, const SplitKeysConfig &c) {
  attentionMembers(w, c);
  w.constant("PageTokens", c.pageTokens);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.flag("Cluster", c.cluster);
  if (c.cluster)
    w.cluster(c.splits, 1);
}

} // namespace gpt2c
