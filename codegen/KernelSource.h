// Instances of the kernel templates: config struct and entry point as CUDA text, and what a launch
// needs to know. One function per template; the meaning of a config is in the header of its .cuh
// file.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Storage type of a tensor in a kernel.
enum class Scalar { F32, F16, I8, I32 };
constexpr unsigned scalarBytes(Scalar s) { return s == Scalar::F16 ? 2 : s == Scalar::I8 ? 1 : 4; }

/// One kernel. `params` names the parameters in order, so that a plan can describe the arguments.
struct KernelSource {
  std::string name;
  std::vector<std::string> headers;
  std::string text;
  std::vector<std::string> params;
  std::vector<std::string> optional; ///< those of them that may be null
  unsigned threads = 0;
  unsigned sharedBytes = 0;
};

/// How a kernel that quantises its result by a scale that is given does it: q = x yInverse, or with
/// a zero point q = x yInverse + yZero, rounded and within int8 (templates/device/int8.cuh).
/// Parameters are named so and follow those of the result.
enum class Given { None, Scale, ScaleAndZero };

/// What happens to a sum before it is stored, in order. Stages with an operand take it, most of
/// them its pointer, as the next parameter, named e0, e1, ... in order.
struct EpilogueStage {
  enum Kind {
    // with an operand
    AddBias,
    AddMatrix,
    MulMatrix,
    AddLastRows,  ///< as AddMatrix, row length[row] - 1 of the `seq` that each has
    ScaleRow,     ///< by f32[M]
    ScaleColumn,  ///< by f32[N]
    ScaleAll,     ///< by f32[1]
    ScaleByValue, ///< by a parameter
    // without
    Scale,
    GeluTanh,
    GeluTanhHalf, ///< for results in f16 and int8
    GeluErf,
    Relu,
    Silu,
    Sigmoid,
    Tanh,
    // last, for results in int8: integers in steps of a scale that is a parameter (`Given`)
    QuantiseByScale,
    QuantiseByScaleAndZero
  };
  Kind kind;
  Scalar operand = Scalar::F32; ///< AddBias, AddMatrix, MulMatrix, AddLastRows
  float value = 0;              ///< Scale
};
constexpr bool hasOperand(const EpilogueStage &s) { return s.kind <= EpilogueStage::ScaleByValue; }
using Epilogue = std::vector<EpilogueStage>;
inline Given givenOf(const Epilogue &e) {
  return e.empty()                                                ? Given::None
         : e.back().kind == EpilogueStage::QuantiseByScale        ? Given::Scale
         : e.back().kind == EpilogueStage::QuantiseByScaleAndZero ? Given::ScaleAndZero
                                                                  : Given::None;
}

struct LinearMmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, bk = 32, warpsM = 2, warpsN = 4, stages = 4, splitK = 1;
  Scalar x = Scalar::F16; ///< F16 or I8, of both operands
  int xGroup = 0, yGroup = 0;
};
KernelSource linearMma(llvm::StringRef name, const LinearMmaConfig &config,
                       const Epilogue &epilogue);

/// On sm_90a by wgmma, elsewhere as linearMma computes the same tile; k a multiple of 8.
struct LinearWgmmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 3, splitK = 1;
};
constexpr unsigned wgmmaSharedBytes(const LinearWgmmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 64 * 2 + 1024;
}
KernelSource linearWgmma(llvm::StringRef name, const LinearWgmmaConfig &config,
                         const Epilogue &epilogue);

/// int8 operands, k a multiple of 16. On sm_90a by wgmma, elsewhere as linearMma computes the same
/// tile. With yGroup, or with an epilogue that ends in QuantiseByScale, the result is int8.
struct LinearInt8Config {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 3, splitK = 1, xGroup = 0, yGroup = 0;
};
constexpr unsigned int8SharedBytes(const LinearInt8Config &c) {
  return c.stages * (c.bm + c.bn) * 128 + 1024;
}
KernelSource linearInt8(llvm::StringRef name, const LinearInt8Config &config,
                        const Epilogue &epilogue);

/// On sm_90a alone; k a multiple of 8. `persistent`: a block takes tile after tile (bm is 128,
/// splitK 1), else one; a residual in f16 that a persistent one adds behind nothing but a bias is
/// read by a tensor map instead of a pointer (takesResidualByMap). With normParts the layer norm of
/// x is taken out of the sums, with `statistics` those of y are written, in parts of
/// statisticsWidth columns, which divide n (templates/linear/parts/row_statistics.cuh). int8
/// weights (k a multiple of 16, not persistent) have a ring of rawStages of their own, and the norm
/// a gain and a shift. `columnsFirst`: blocks that follow each other have the same rows, not the
/// same columns.
struct LinearTmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, blocks = 1;
  bool persistent = false;
  int n = 0, k = 0;
  int normParts = 0, normWidth = 0;
  bool statistics = false;
  Scalar w = Scalar::F16, p = Scalar::F32; ///< p: of the norm's gain
  int rawStages = 0;
  bool columnsFirst = false;
};
constexpr int statisticsWidth(const LinearTmaConfig &c) { return c.bn / c.splitK; }
/// Whether rows of a persistent block's tiles leave in lines of 64 columns.
constexpr bool storesLines(const LinearTmaConfig &c) {
  return c.persistent && c.y == Scalar::F16 && c.n % 64 == 0 && c.bn % 64 == 0;
}
constexpr unsigned tmaSharedBytes(const LinearTmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 64 * 2 + c.rawStages * c.bn * 128 +
         (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + (storesLines(c) ? 8 * 16 * 128 : 0) + 1024;
}
bool takesResidualByMap(const LinearTmaConfig &config, const Epilogue &epilogue);
KernelSource linearTma(llvm::StringRef name, const LinearTmaConfig &config,
                       const Epilogue &epilogue);

/// linearTma for int8 operands: k a multiple of 16, slabs have 128 columns of K. The scales of a
/// row, or of groups of 64 or 128 elements of it, are parameters. `stationary`: a block keeps 128
/// rows without groups and takes one of `parts` of the columns, whose tiles divide n. `gelu` of the
/// epilogue's result is what y quantises, by `given` where there is no yGroup; no groups of x.
/// `residual`: the matrix rMap is added behind the epilogue; bn is a multiple of 64 that divides n,
/// no split K, no `stationary`. `alone`: no two blocks share a multiprocessor.
struct LinearInt8TmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, xGroup = 0, yGroup = 0, blocks = 1;
  bool rowScale = false, stationary = false, gelu = false, residual = false;
  int n = 0, k = 0;
  int parts = 1;             ///< stationary
  Given given = Given::None; ///< gelu without yGroup
  bool alone = false;
};
constexpr unsigned int8TmaSharedBytes(const LinearInt8TmaConfig &c) {
  if (!c.stationary)
    return c.stages * (c.bm + c.bn) * 128 + (c.residual ? c.bm * c.bn * 2 : 0) +
           (c.xGroup > 0 ? c.bm * (c.k / c.xGroup) * 4 : 0) +
           (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + 1024;
  return (c.k + 127) / 128 * c.bm * 128 + c.stages * c.bn * 128 +
         (c.y == Scalar::F16 ? 16 * 1024 : 0) + 1024;
}
KernelSource linearInt8Tma(llvm::StringRef name, const LinearInt8TmaConfig &config,
                           const Epilogue &epilogue);

struct LinearSimtConfig {
  Scalar x = Scalar::F32, w = Scalar::F32, y = Scalar::F32;
  int bm = 128, bn = 128, bk = 8, tm = 8, tn = 8, splitK = 1;
};
KernelSource linearSimt(llvm::StringRef name, const LinearSimtConfig &config,
                        const Epilogue &epilogue);

/// fp32 operands by 3xTF32, k a multiple of 4; blocks: that many share a multiprocessor. With
/// `wgmma` on sm_90a alone: bm is 64 or 128, and warpsM and warpsN have no meaning.
struct LinearTf32Config {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 96, warpsM = 4, warpsN = 2, stages = 4, splitK = 1, blocks = 1;
  bool wgmma = false;
};
constexpr unsigned tf32SharedBytes(const LinearTf32Config &c) {
  return c.wgmma ? c.stages * (c.bm + 2 * c.bn) * 32 * 4 + 1024 : c.stages * (c.bm + c.bn) * 32 * 4;
}
KernelSource linearTf32(llvm::StringRef name, const LinearTf32Config &config,
                        const Epilogue &epilogue);

enum class FusedNorm { None, Layer, Rms };
struct LinearRowDotConfig {
  Scalar x = Scalar::F16, w = Scalar::F16, y = Scalar::F16, p = Scalar::F32;
  int rows = 1, cols = 2, kSplit = 1, warps = 8, k = 0;
  FusedNorm norm = FusedNorm::None;
};
/// Columns of Y that one block computes.
constexpr int rowDotColumns(const LinearRowDotConfig &c) { return c.warps / c.kSplit * c.cols; }
KernelSource linearRowDot(llvm::StringRef name, const LinearRowDotConfig &config,
                          const Epilogue &epilogue);

/// fp16 rows, fp16 or int8 weights; rows of weights are a multiple of 16 bytes.
struct LinearSkinnyConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, kSplit = 8, warps = 8, k = 0;
  FusedNorm norm = FusedNorm::None;
  Scalar w = Scalar::F16;
  int wGroup = 0;  ///< int8: elements of K that share a scale of their own
  int xGroup = -1; ///< int8: x is quantised in groups of 64, 128, 256 or whole rows (0)
};
constexpr int skinnyColumns(const LinearSkinnyConfig &c) { return c.warps / c.kSplit * 16; }
/// Shared memory for the rows that a fused norm needs.
constexpr unsigned skinnyRowBytes(const LinearSkinnyConfig &c) {
  if (c.xGroup >= 0)
    return c.rows * ((c.k + 127) / 128 * 128 + 64 + 4 * (c.xGroup > 0 ? c.k / c.xGroup : 1));
  return c.rows * ((c.k + 63) / 64 * 64 + (c.w == Scalar::I8 ? 8 : 32)) * 2;
}
KernelSource linearSkinny(llvm::StringRef name, const LinearSkinnyConfig &config,
                          const Epilogue &epilogue);

/// fp16 rows, fp16 or int8 weights; k a multiple of 8.
struct LinearRowsConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, groups = 1, warps = 8, splits = 1, k = 0;
  FusedNorm norm = FusedNorm::None;
  Scalar w = Scalar::F16;
  int wGroup = 0;     ///< int8: elements of K that share a scale of their own, a multiple of 32
  bool pairs = false; ///< n is even
};
constexpr int rowsColumns(const LinearRowsConfig &c) { return 16 * c.groups; }
constexpr unsigned rowsSharedBytes(const LinearRowsConfig &c) {
  return 4 * (c.warps * c.groups * c.rows * 20 + (c.splits > 1 ? c.rows * 16 * c.groups : 0) +
              (c.norm != FusedNorm::None ? c.warps * 2 * c.rows : 0));
}
KernelSource linearRows(llvm::StringRef name, const LinearRowsConfig &config,
                        const Epilogue &epilogue);

/// Both products of an MLP in fp16 for up to 32 rows, with the norm before them, from sm_90 on; d
/// and hidden are multiples of 256, at most 1024 and 4096.
struct MlpClusterConfig {
  Scalar p = Scalar::F16; ///< type of the biases
  int d = 0, hidden = 0;
  std::string activation;     ///< a name that persistent::activationNamed() knows
  int heads = 0, headDim = 0; ///< of attention whose state it may bring into L2; 0: none
};
constexpr unsigned mlpThreads = 288;
constexpr unsigned mlpSharedBytes(const MlpClusterConfig &c) {
  return (c.d / 8 + 32) * 288 * 2 + 8 * 32 * 36 * 4 + c.d * 16 + 32 * 8 + 16;
}
KernelSource mlpCluster(llvm::StringRef name, const MlpClusterConfig &config);

/// fp16 rows, fp16 or int8 weights, sm_90a alone; k a multiple of 8. Blocks of `rows` rows.
struct LinearClusterConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, groups = 1, parts = 1, splits = 4, k = 0;
  FusedNorm norm = FusedNorm::None;
  Scalar w = Scalar::F16;
  bool pairs = false;      ///< n is even
  bool statistics = false; ///< those of 64 columns of y are written; n is a multiple of 64
};
constexpr int clusterColumns(const LinearClusterConfig &c) { return 64 * c.groups; }
constexpr int clusterThreads(const LinearClusterConfig &c) { return 128 * c.groups * c.parts; }
unsigned clusterSharedBytes(const LinearClusterConfig &c);
KernelSource linearCluster(llvm::StringRef name, const LinearClusterConfig &config,
                           const Epilogue &epilogue);

/// fp16 rows, fp16 or int8 weights; k a multiple of 32 or 64. With `best` it leaves what
/// argmaxParts reads. With `slots` it is linear_stream_ring, from sm_90 on: 1, 2 or 4 rows.
struct LinearStreamConfig {
  Scalar y = Scalar::F32, p = Scalar::F32;
  int rows = 8, warps = 8, k = 0;
  FusedNorm norm = FusedNorm::None;
  Scalar w = Scalar::F16;
  bool best = false;
  int columns = 4, slots = 0; ///< the ring of each warp: of that many columns in each slot
};
constexpr unsigned streamSharedBytes(const LinearStreamConfig &c) {
  if (c.slots > 0)
    return c.warps * c.slots * c.columns * c.k * scalarBytes(c.w);
  return c.rows * ((c.k + 63) / 64 * 64 + (c.w == Scalar::I8 ? 8 : 32)) * 2;
}
/// As many slots as a multiprocessor of sm_90 has room for.
constexpr int streamSlots(const LinearStreamConfig &c) {
  const int slot = c.warps * c.columns * c.k * int(scalarBytes(c.w));
  return slot > 0 ? 200 * 1024 / slot : 0;
}
KernelSource linearStream(llvm::StringRef name, const LinearStreamConfig &config,
                          const Epilogue &epilogue);

/// linearStream for more rows, bm in a tile, on sm_90a alone; k a multiple of 8, for int8 weights
/// of
/// 16. rawStages: those of int8 weights.
struct LinearStreamTmaConfig {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 192, stages = 5, rawStages = 0, n = 0, k = 0;
  Scalar w = Scalar::F16;
  bool best = false;
};
constexpr unsigned streamSharedBytes(const LinearStreamTmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 128 + c.rawStages * c.bn * 128 + 1024;
}
KernelSource linearStreamTma(llvm::StringRef name, const LinearStreamTmaConfig &config,
                             const Epilogue &epilogue);

/// y of int8 is quantised, with a scale for each row unless it is given. A block has one row, or
/// several of a warp each (threads 32).
struct LayerNormConfig {
  Scalar x = Scalar::F32, y = Scalar::F16, p = Scalar::F32;
  int d = 0, threads = 128;
  bool rms = false, residual = false;
  int rows = 1;
  Given given = Given::None;
};
KernelSource layerNorm(llvm::StringRef name, const LayerNormConfig &config);

/// Groups of d neighbouring elements; with `given` the scale is read, one for all.
struct QuantizeConfig {
  Scalar x = Scalar::F16;
  int d = 0, warps = 4;
  bool given = false;
};
KernelSource quantize(llvm::StringRef name, const QuantizeConfig &config);

/// Groups of d neighbouring elements; with `one` a single scale stands for all.
struct DequantizeConfig {
  Scalar y = Scalar::F16;
  int d = 0, threads = 256;
  bool one = false;
};
/// Elements that a thread computes.
constexpr int dequantizedElements(const DequantizeConfig &c) {
  int v = 16;
  while (c.d % v != 0)
    v /= 2;
  return v;
}
KernelSource dequantize(llvm::StringRef name, const DequantizeConfig &config);

/// `parts`: of the statistics of each row that are written
/// (templates/linear/parts/row_statistics.cuh).
struct EmbeddingConfig {
  Scalar w = Scalar::F16, p = Scalar::F16, y = Scalar::F16;
  int d = 0, threads = 128;
  bool position = true;
  int groups = 0; ///< scales of a row of the token table in int8; 0: it is not
  int parts = 0;
};
KernelSource embedding(llvm::StringRef name, const EmbeddingConfig &config);

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

struct GatherLastConfig {
  Scalar x = Scalar::F16;
  int d = 0, threads = 128;
};
KernelSource gatherLast(llvm::StringRef name, const GatherLastConfig &config);

struct ArgmaxConfig {
  Scalar x = Scalar::F32;
  int threads = 256;
};
KernelSource argmax(llvm::StringRef name, const ArgmaxConfig &config);
KernelSource argmaxParts(llvm::StringRef name);
KernelSource advance(llvm::StringRef name);

/// One module with all of `kernels`: their headers once, then their texts.
std::string moduleSource(llvm::ArrayRef<KernelSource> kernels);

} // namespace gpt2c
