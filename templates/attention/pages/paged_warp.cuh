// Of attention_pages.cuh: what a block has in shared memory, a head of the state in pages, and a
// warp with 16 queries that goes through tiles of keys.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/attention/parts/tf32_products.cuh"
#include "templates/attention/score.cuh"
#include "templates/device/common.cuh"
#include "templates/device/mma.cuh"

namespace gpt2c {

template <typename C> struct AttentionPages {
  using X = typename C::X;
  static constexpr bool wide = sizeof(X) == 4;
  static constexpr bool bytes = Operand<typename C::Kv>::scaled; // of the state
  static constexpr int warps = C::Warps * C::Groups, threads = 32 * warps;
  static constexpr int queries = 16 * C::Warps;
  static constexpr int mostSplits = 8;
  static constexpr int chunk = 16 / sizeof(X); // elements that are copied at once
  /// What products take of a row: those behind HeadDim are zeros.
  static constexpr int padded = (C::HeadDim + 2 * chunk - 1) / (2 * chunk) * (2 * chunk);
  static constexpr int rowStride = padded + chunk; // no bank conflicts
  /// Queries that are read where they lie for each tile: outputs leave no registers for them.
  static constexpr bool queriesStay = wide || padded > 128;
  // What every GPU has room for.
  static constexpr int room = 99 * 1024;
  static constexpr int longElements(int tile) {
    return (queries + C::Groups * 4 * tile) * rowStride;
  }
  static constexpr bool fitsLong(int tile) { return longElements(tile) * (int)sizeof(X) <= room; }
  static constexpr int longTile = !wide && fitsLong(64) ? 64 : fitsLong(32) ? 32 : 16;
  /// With tiles of that many keys and that many buffers for each warp.
  static constexpr int shortElements(int tile, int buffers) {
    return (16 + warps * 2 * buffers * tile) * rowStride;
  }
  static constexpr bool fits(int tile, int buffers) {
    return shortElements(tile, buffers) * (int)sizeof(X) <= room;
  }
  static constexpr int shortTile = !wide && fits(32, 2) ? 32 : 16;
  static constexpr int shortBuffers = fits(shortTile, 2) ? 2 : 1;
  static constexpr int sharedBytes =
      maxInt(longElements(longTile), shortElements(shortTile, shortBuffers)) * sizeof(X);
  static_assert(C::HeadDim % 8 == 0 && C::HeadDim <= 256 && C::PageTokens % longTile == 0);
  // What warps and groups add up takes the place of the tiles.
  static_assert(warps * 16 * (C::HeadDim + 2) * 4 <= sharedBytes);
  static_assert((C::HeadDim / 2 + 4) * 32 * C::Warps * 4 <= sharedBytes);
};

/// Where a layer's keys and values of a head are: those before position `past` in the state, page
/// by page, later ones in the rows of the call, one behind the other; of a state of bytes all are
/// there, since what a row becomes in it is what its keys and values are.
template <typename C> struct PagedHead {
  using X = typename C::X;
  using Kv = typename C::Kv;
  static constexpr int rowElements = (C::Heads + 2 * C::KvHeads) * C::HeadDim;
  static constexpr int toValue = C::KvHeads * C::HeadDim; // from a key in a row
  Kv *kv;
  const int *table;
  int layer, layers, head;
  int past;
  const X *rows; // of keys; that of position 0, were it there

  /// Key (0) or value (1) `position`, from `past` on.
  __device__ __forceinline__ const X *fresh(int part, int position) const {
    return rows + (i64)position * rowElements + part * toValue;
  }

  /// The rows of keys (0) or values (1) in the page of a position, and behind them their scales.
  __device__ __forceinline__ Kv *block(int part, int position) const {
    const i64 page = table[position / C::PageTokens];
    const i64 of = ((page * layers + layer) * 2 + part) * C::KvHeads + head;
    return kv + of * C::PageTokens * kvRow<Kv>(C::HeadDim);
  }
  /// Row `position` of keys (0) or values (1).
  __device__ __forceinline__ Kv *row(int part, int position) const {
    return block(part, position) + position % C::PageTokens * C::HeadDim;
  }
};

namespace tile {

/// Whether element c of a row in shared memory is one of the head's.
template <typename C> __device__ __forceinline__ constexpr bool isColumn(int c) {
  return AttentionPages<C>::padded == C::HeadDim || c < C::HeadDim;
}

/// The keys (0) or values (1) of bytes from j0 on as X to shared memory, zeros from `limit` on.
template <typename C, int Keys, int Threads>
__device__ __forceinline__ void dequantisePagedPart(typename C::X *to, int part,
                                                    const PagedHead<C> &head, int j0, int limit,
                                                    int thread) {
  using L = AttentionPages<C>;
  using Kv = typename C::Kv;
  constexpr int chunks = L::padded / L::chunk, all = Keys * chunks;
  constexpr int ahead = ceilDiv(all, Threads) < 4 ? ceilDiv(all, Threads) : 4; // loads on their way
  Kv *block = head.block(part, j0);
  const Kv *from = block + j0 % C::PageTokens * C::HeadDim;
  const float *scales = kvScales(block, C::PageTokens, C::HeadDim) + j0 % C::PageTokens;
#pragma unroll 1
  for (int first = thread; first < all; first += ahead * Threads) {
    Pack<Kv, L::chunk> bytes[ahead];
    float scale[ahead];
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      const int id = first + i * Threads, r = id / chunks, c = id % chunks * L::chunk;
      const bool valid = id < all && j0 + r < limit && isColumn<C>(c);
      bytes[i] = loadPack<L::chunk>(from + (valid ? r * C::HeadDim + c : 0));
      scale[i] = valid ? scales[r] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      const int id = first + i * Threads, r = id / chunks, c = id % chunks * L::chunk;
      float a[L::chunk];
#pragma unroll
      for (int e = 0; e < L::chunk; e++)
        a[e] = scale[i] == 0.0f ? 0.0f : bytes[i].get(e) * scale[i];
      if (id < all)
        storeFloats<L::chunk>(to + r * L::rowStride + c, a);
    }
  }
}

/// loadPagedTile of a state in X.
template <typename C, int Keys, int Threads>
__device__ __forceinline__ void copyPagedTile(typename C::X *k, typename C::X *v,
                                              const PagedHead<C> &head, int j0, int limit,
                                              int thread) {
  using L = AttentionPages<C>;
  constexpr int chunks = L::padded / L::chunk;
  const typename C::X *fromK = head.row(0, j0), *fromV = head.row(1, j0);
#pragma unroll 4
  for (int id = thread; id < Keys * chunks; id += Threads) {
    const int r = id / chunks, c = id % chunks * L::chunk;
    const bool valid = j0 + r < limit && isColumn<C>(c);
    const int at = valid ? r * C::HeadDim + c : 0;
    const bool fresh = valid && j0 + r >= head.past;
    const typename C::X *fromRow = head.fresh(0, j0 + r) + c;
    copyAsync16(k + r * L::rowStride + c, fresh ? fromRow : fromK + at, valid);
    copyAsync16(v + r * L::rowStride + c, fresh ? fromRow + head.toValue : fromV + at, valid);
  }
}

/// Keys and values from j0 on to shared memory by `Threads` threads, zeros from `limit` on. The
/// tile lies in one page. Before position `past` it needs nothing that the kernel before wrote. Of
/// a state of bytes they are there when it returns, else when copies have been waited for.
template <typename C, int Keys, int Threads>
__device__ __forceinline__ void loadPagedTile(typename C::X *k, typename C::X *v,
                                              const PagedHead<C> &head, int j0, int limit,
                                              int thread) {
  using L = AttentionPages<C>;
  if constexpr (L::bytes) {
    dequantisePagedPart<C, Keys, Threads>(k, 0, head, j0, limit, thread);
    dequantisePagedPart<C, Keys, Threads>(v, 1, head, j0, limit, thread);
  } else {
    copyPagedTile<C, Keys, Threads>(k, v, head, j0, limit, thread);
  }
}

/// loadPagedPart of a state in X.
template <typename C, int Keys, int Threads>
__device__ __forceinline__ void copyPagedPart(typename C::X *to, int part, const PagedHead<C> &head,
                                              int j0, int limit, int thread) {
  using L = AttentionPages<C>;
  constexpr int chunks = L::padded / L::chunk;
  const typename C::X *from = head.row(part, j0);
#pragma unroll 4
  for (int id = thread; id < Keys * chunks; id += Threads) {
    const int r = id / chunks, c = id % chunks * L::chunk;
    const bool valid = j0 + r < limit && isColumn<C>(c), fresh = valid && j0 + r >= head.past;
    copyAsync16(to + r * L::rowStride + c,
                fresh ? head.fresh(part, j0 + r) + c : from + (valid ? r * C::HeadDim + c : 0),
                valid);
  }
}

/// loadPagedTile of keys (0) or values (1) alone.
template <typename C, int Keys, int Threads>
__device__ __forceinline__ void loadPagedPart(typename C::X *to, int part, const PagedHead<C> &head,
                                              int j0, int limit, int thread) {
  using L = AttentionPages<C>;
  if constexpr (L::bytes)
    return dequantisePagedPart<C, Keys, Threads>(to, part, head, j0, limit, thread);
  else
    copyPagedPart<C, Keys, Threads>(to, part, head, j0, limit, thread);
}

/// The products of a warp: s = Q K^T, and o = keep o + s V.
template <typename C, typename X> struct PagedProducts { // of two-byte floats
  static constexpr int depth = AttentionPages<C>::padded / 16,
                       stride = AttentionPages<C>::rowStride;
  static constexpr bool stay = AttentionPages<C>::queriesStay;
  const X *at; // in shared memory, where the lane reads
  unsigned q[stay ? 1 : depth][4];

  __device__ __forceinline__ void loadQueries(const X *shared, int lane) {
    at = shared + lane % 16 * stride + lane / 16 * 8;
    if constexpr (!stay)
#pragma unroll
      for (int i = 0; i < depth; i++)
        loadMatrix4(q[i], at + i * 16);
  }
  template <int Tiles>
  __device__ __forceinline__ void multiplyKeys(float (&s)[Tiles][4], const X *k, int lane) const {
    const X *kLane = k + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[j][e] = 0.0f;
#pragma unroll
    for (int i = 0; i < depth; i++)
      if constexpr (stay) {
        unsigned a[4];
        loadMatrix4(a, at + i * 16);
        multiplyPart(s, a, kLane + i * 16);
      } else {
        multiplyPart(s, q[i], kLane + i * 16);
      }
  }
  /// 16 elements of each row.
  template <int Tiles>
  __device__ __forceinline__ void multiplyPart(float (&s)[Tiles][4], const unsigned (&a)[4],
                                               const X *kLane) const {
#pragma unroll
    for (int j = 0; j < Tiles / 2; j++) {
      unsigned b[4];
      loadMatrix4(b, kLane + j * 16 * stride);
      Mma<X>::multiply(s[2 * j], a, b[0], b[1]);
      Mma<X>::multiply(s[2 * j + 1], a, b[2], b[3]);
    }
  }
  template <int Tiles>
  __device__ __forceinline__ void addValues(float (&o)[2 * depth][4], const float (&s)[Tiles][4],
                                            const float (&keep)[2], const X *v, int lane) const {
#pragma unroll
    for (int d = 0; d < 2 * depth; d++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[d][e] *= keep[e / 2];
    const X *vLane = v + lane % 16 * stride + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < Tiles / 2; j++) {
      const unsigned a[4] = {Mma<X>::pack(s[2 * j][0], s[2 * j][1]),
                             Mma<X>::pack(s[2 * j][2], s[2 * j][3]),
                             Mma<X>::pack(s[2 * j + 1][0], s[2 * j + 1][1]),
                             Mma<X>::pack(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < depth; d++) {
        unsigned b[4];
        loadMatrix4Transposed(b, vLane + j * 16 * stride + d * 16);
        Mma<X>::multiply(o[2 * d], a, b[0], b[1]);
        Mma<X>::multiply(o[2 * d + 1], a, b[2], b[3]);
      }
    }
  }
};

template <typename C> struct PagedProducts<C, float> {
  static constexpr int depth = C::HeadDim / 8, stride = AttentionPages<C>::rowStride;
  const float *q; // in shared memory, where the lane reads

  __device__ __forceinline__ void loadQueries(const float *shared, int lane) {
    q = shared + lane % 16 * stride + lane / 16 * 4;
  }
  template <int Tiles>
  __device__ __forceinline__ void multiplyKeys(float (&s)[Tiles][4], const float *k,
                                               int lane) const {
#pragma unroll
    for (int i = 0; i < depth; i++) {
      unsigned bits[4];
      loadMatrix4(bits, q + i * 8);
      tf32::Split<4> queries;
#pragma unroll
      for (int e = 0; e < 4; e++)
        queries.set(e, bits[e]);
      tf32::Split<2> keys[Tiles];
      loadKeysTf32<stride>(keys, k, i, lane);
      if (i == 0)
        multiplyTf32<true>(s, queries, keys);
      else
        multiplyTf32<false>(s, queries, keys);
    }
  }
  template <int Tiles>
  __device__ __forceinline__ void addValues(float (&o)[depth][4], const float (&s)[Tiles][4],
                                            const float (&keep)[2], const float *v,
                                            int lane) const {
    addValuesTf32<stride>(o, s, keep, v, lane);
  }
};

/// What sums of one set of keys, and of another, count in those of both. Another one whose keys no
/// query sees changes nothing, bit for bit; nothing here is left to how the compiler contracts
/// products.
struct PagedShares {
  float mine, theirs;

  /// `top` becomes the maximum of both.
  static __device__ __forceinline__ PagedShares of(float &top, float other, float factor) {
    const float most = fmaxf(top, other);
    const float base = most == negativeInfinity() ? 0.0f : __fmul_rn(most, factor);
    const PagedShares shares = {most == top ? 1.0f : exp2f(fmaf(top, factor, -base)),
                                most == other ? 1.0f : exp2f(fmaf(other, factor, -base))};
    top = most;
    return shares;
  }
  __device__ __forceinline__ float add(float a, float b) const {
    return fmaf(a, mine, __fmul_rn(b, theirs));
  }
};

/// What 16 queries of a warp have of the keys they have seen: outputs and sums of weights relative
/// to `top`, the scores' maximum.
template <typename C> struct PagedState {
  static constexpr int floats = C::HeadDim / 2 + 4; // of a lane
  float o[AttentionPages<C>::padded / 8][4] = {};   // behind HeadDim is nothing
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};

  __device__ __forceinline__ float get(int i) const {
    return i < 2 ? top[i] : i < 4 ? sum[i - 2] : o[(i - 4) / 4][i % 4];
  }
  /// Float i of the lane becomes to[i * stride].
  __device__ __forceinline__ void leave(float *to, int stride) const {
#pragma unroll
    for (int i = 0; i < floats; i++)
      to[i * stride] = get(i);
  }
  /// Adds the state of other keys, of which float i is of(i).
  template <typename Floats> __device__ __forceinline__ void add(Floats &&of, float factor) {
    PagedShares shares[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      shares[half] = PagedShares::of(top[half], of(half), factor);
      sum[half] = shares[half].add(sum[half], of(2 + half));
    }
#pragma unroll
    for (int i = 0; i < C::HeadDim / 2; i++)
      o[i / 4][i % 4] = shares[i % 4 / 2].add(o[i / 4][i % 4], of(4 + i));
  }
};

/// 16 queries of a warp that goes through tiles of keys. Exact: a tile that none of a query's keys
/// are in changes nothing of what it has, bit for bit.
template <typename C, bool Exact = false> struct PagedWarp : PagedState<C> {
  using X = typename C::X;
  using PagedState<C>::o, PagedState<C>::top, PagedState<C>::sum;
  PagedProducts<C, X> products;
  float factor; // of scores whose exponentials are base 2

  /// A tile of keys from j0 on; query r of the 16 sees keys up to position + r. Calls keysRead()
  /// behind the last look at k, and valuesWait() ahead of the first at v.
  template <int Keys, typename Read, typename Wait>
  __device__ __forceinline__ void attend(const X *k, const X *v, int j0, int position, int lane,
                                         Read &&keysRead, Wait &&valuesWait) {
    float s[Keys / 8][4], keep[2];
    products.multiplyKeys(s, k, lane);
    keysRead();
    if (j0 + Keys > position + 1 || (C::Window > 0 && j0 <= position + 15 - C::Window))
      hide(s, j0, position, lane);
    softmax(s, keep);
    valuesWait();
    products.addValues(o, s, keep, v, lane);
  }
  template <int Keys>
  __device__ __forceinline__ void attend(const X *k, const X *v, int j0, int position, int lane) {
    auto nothing = [] {};
    attend<Keys>(k, v, j0, position, lane, nothing, nothing);
  }

private:
  template <int Tiles>
  __device__ __forceinline__ void hide(float (&s)[Tiles][4], int j0, int position, int lane) const {
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = j0 + j * 8 + lane % 4 * 2 + e % 2, at = position + lane / 4 + e / 2 * 8;
        if (!Score<C>::sees(at, key))
          s[j][e] = negativeInfinity();
      }
  }
  /// Scores become weights; `keep` rescales what is accumulated so far.
  template <int Tiles>
  __device__ __forceinline__ void softmax(float (&s)[Tiles][4], float (&keep)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = top[half];
#pragma unroll
      for (int j = 0; j < Tiles; j++)
        m = fmaxf(m, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      m = warpReduce<Max, 4>(m);
      const float base = m == negativeInfinity() ? 0.0f : m * factor;
      // The product is not rounded where it is subtracted from, `base` is.
      keep[half] = Exact && m == top[half] ? 1.0f : exp2f(top[half] * factor - base);
      top[half] = m;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < Tiles; j++) {
        s[j][half * 2] = exp2f(fmaf(s[j][half * 2], factor, -base));
        s[j][half * 2 + 1] = exp2f(fmaf(s[j][half * 2 + 1], factor, -base));
        part += s[j][half * 2] + s[j][half * 2 + 1];
      }
      sum[half] = sum[half] * keep[half] + part;
    }
  }
};

} // namespace tile
} // namespace gpt2c
