// Attention over the KV state: its kernels, the choice among them, its launches.
#pragma once

#include "codegen/Lowering.h"
#include "templates/quantize/Quantize.h"

namespace gpt2c {

struct KvAppendConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0, threads = 128;
  int kvHeads = 0; ///< of the state; 0: heads
};

KernelSource kvAppend(llvm::StringRef name, const KvAppendConfig &config);

struct AttentionConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0;
  /// Of the state, each read by heads / kvHeads of the queries, without append; 0: heads. Decode,
  /// prefill mma and simt.
  int kvHeads = 0;
  bool append = true, causal = true, mask = false;
  bool last = false; ///< decode: each sequence's last query alone; no ring, no append with int8
  bool aligned =
      true;       ///< decode, an int8 state: its heads begin at multiples of 8 bytes, else of 4
  int warps = 4;  ///< decode, prefill mma
  int splits = 1; ///< decode, prefill wgmma, prefill tf32
  bool cluster = false; ///< decode: the splits, at most 8, are a thread block cluster
  bool bulk = false;    ///< decode: rows of the state may be copied in bulk, they are 16-byte units
  int ring = 0;         ///< decode, bulk: chunks of the state that a warp has on their way
  int blocks = 3;       ///< decode, mma: that have room on a multiprocessor
  int queries = 1;      ///< decode, mma: most of a sequence, at most `warps`
  int keys = 64;        ///< prefill mma: keys of a tile
  /// The value is int8. Without a given scale: prefill mma and wgmma, head_dim a multiple of 32, a
  /// scale for each head.
  bool quantise = false;
  Given given = Given::None;
  int tq = 4, tk = 4; ///< prefill simt: queries and keys of a tile, in sixteenths
};

/// Shared memory of attention_decode.
unsigned attentionRingBytes(const AttentionConfig &config);

KernelSource attentionDecode(llvm::StringRef name, const AttentionConfig &config);

/// f16 with a bulk state in f16 or int8, append; head_dim a multiple of 16, of 32 for int8, at most
/// 128.
KernelSource attentionDecodeMma(llvm::StringRef name, const AttentionConfig &config);

KernelSource attentionPrefillMma(llvm::StringRef name, const AttentionConfig &config);

/// Whether a block of attentionPrefillWgmma may have two tiles of queries.
constexpr bool hasAttentionPairs(const AttentionConfig &c) { return c.splits == 4; }

/// On sm_90a alone: head_dim 64, x and kv in f16, append; `splits` warpgroups share the keys.
KernelSource attentionPrefillWgmma(llvm::StringRef name, const AttentionConfig &config);

/// fp32 by 3xTF32; head_dim a multiple of 8, at most 128; `warps` times 16 queries, `keys` a
/// multiple of 32.
KernelSource attentionPrefillTf32(llvm::StringRef name, const AttentionConfig &config);

KernelSource attentionPrefillSimt(llvm::StringRef name, const AttentionConfig &config);

/// A kernel of attention over the KV state.
enum class AttentionKernel { Decode, DecodeMma, Mma, Simt, Wgmma, Tf32 };
struct AttentionChoice {
  AttentionKernel kernel;
  AttentionConfig config;
};
std::string nameOf(const AttentionChoice &c);
/// Configurations of the same kernel, the given one first, for up to `rows` queries of all
/// sequences.
std::vector<AttentionChoice> attentionCandidates(const AttentionChoice &model, int64_t rows,
                                                 const Target &target = {});

/// Where attention writes its value: in the type of qkv, or with `scale` or `given` as int8.
struct AttentionOutput {
  plan::ArgT out;
  std::optional<plan::ArgT> scale; ///< one for each query and head
  GivenScale given;
};

/// Whether the kernel of append_attention can find a scale for each head of its value.
bool attentionQuantises(StepBuilder &b, const Op &op);
llvm::Error launchAttention(StepBuilder &b, Op &op, AttentionOutput to);
llvm::Error lowerAppendAttention(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op);

} // namespace gpt2c
