// What the blocks of shares/shares.cuh do in every stage: the ring, x, products and what is
// sent to other blocks.
#pragma once

#include "templates/decode_step/shares/block.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

template <typename C> struct Step : persistent::RingPlace<C::Slots>, Member<C>, Marker<C> {
  using Ring = persistent::RingPlace<C::Slots>;
  using Ring::slot, Ring::lap, Ring::advance;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  static constexpr int ranks = C::Ranks;

  SharedOf<C> &shared;
  const Place<C> place;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int token = 0;     ///< the step's input
  unsigned turn = 0; ///< layers since the launch
  int own = 0;       ///< of the block's sequences that whose heads are made; of one always 0
  i64 offset = 0;    ///< from a channel's address to this step's area
  float2 residual[L::passes];

  /// Hides from the compiler that what follows from the thread's place stays the same: it would
  /// keep more addresses than there are registers.
  __device__ __forceinline__ void refresh() {
    unsigned number; // unsigned: divisions are shifts
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    warp = number / 32;
    lane = number % 32;
    g = number % 32 / 4;
    t = number % 4;
  }
  /// Barriers of the computing warps and the helper, or of some of them.
  template <int Id, int Warps> __device__ __forceinline__ static void sync() {
    __syncwarp();
    asm volatile("barrier.sync.aligned %0, %1;" ::"n"(Id), "n"(Warps * 32) : "memory");
  }
  /// The same of who does not wait.
  template <int Id, int Warps> __device__ __forceinline__ static void arrive() {
    __syncwarp();
    asm volatile("barrier.arrive.aligned %0, %1;" ::"n"(Id), "n"(Warps * 32) : "memory");
  }
  /// Waits for what the blocks of the cluster send, as often as `turn` says.
  __device__ __forceinline__ void waitArrival(Arrival at, unsigned turn) const {
    persistent::barrierWait(shared.arrived[at], turn & 1);
    __syncwarp();
    if (threadIdx.x == 0)
      shared.arrived[at].expect(place.bytesOf(at));
  }

  /// Of a cluster without heads, whose loading warps wait for it: else their copies, which have
  /// time while others attend, would stand in the way of partial sums.
  __device__ __forceinline__ void noteReceived() const {
    if (!place.hasHead && threadIdx.x == 0)
      shared.received = turn + 1;
  }

  // The ring
  // -----------------------------------------------------------------------------------------------

  struct Slot {
    int number;
    unsigned lap;
  };
  /// The slot i behind the next one. `Near`: i is less than there are slots.
  template <bool Near = false> __device__ __forceinline__ Slot slotAt(int i) const {
    if constexpr (Near)
      return {Ring::slotAt(i), Ring::lapAt(i)};
    else
      return {Ring::farSlotAt(i), Ring::farLapAt(i)};
  }
  __device__ __forceinline__ void waitSlot(const Slot &of) const {
    this->timed([&] { persistent::barrierWait(shared.full[of.number], of.lap); });
    __syncwarp();
  }
  /// The end of a phase of the layer; of one that reads the ring: and how long it waited there.
  __device__ __forceinline__ void note(Mark m) const { this->mark(markedLayer(), m); }
  __device__ __forceinline__ void note(Mark m, Mark waited) const {
    note(m);
    this->markWaited(markedLayer(), waited);
  }
  __device__ __forceinline__ int markedLayer() const { return turn % SharedOf<C>::layers; }
  /// What the warp has read is given back: it arrives `times` times of those of all readers.
  __device__ __forceinline__ void release(const Slot &of, int times) const {
    __syncwarp();
    if (lane == 0)
      shared.empty[of.number].arrive(times);
  }
  /// Where tile `tile` of P is in its slot.
  template <typename P>
  __device__ __forceinline__ const char *tileIn(const Slot &of, int tile) const {
    return shared.ring[of.number] + (unsigned)tile % P::each * P::tileBytes;
  }

  // Products: 16 rows of weights of a warp, of which lane (g, t) has 2 g and 2 g + 1
  // -----------------------------------------------------------------------------------------------

  /// Sums of a tile, in chains that do not wait for each other.
  using TileSum = float[4][4];
  /// Adds the product of a tile of P with x. Lane t has 16 bytes of each 64 of its rows, for which
  /// x(i, n, j, q) gives vectors (4 i + t) n + j of 16 bytes, j < n, of row group q of X::groups.
  /// Of two groups each has two of the chains. Its first column is `column` of what the block has
  /// of the rows.
  template <typename P, typename X>
  __device__ __forceinline__ void accumulate(TileSum &sum, const char *tile, X x,
                                             int column = 0) const {
    if constexpr (P::packed) {
      accumulatePacked<P>(sum, tile, x, column);
    } else if constexpr (P::step > 0) {
      accumulateGroups<P>(sum, tile, x);
    } else {
      const char *const rows = tile + 2 * g * P::pitch + t * 16;
#pragma unroll
      for (int i = 0; i < bytesOf(P::padded, P::bits) / 64; i++) {
        const uint4 a = *reinterpret_cast<const uint4 *>(rows + i * 64),
                    b = *reinterpret_cast<const uint4 *>(rows + P::pitch + i * 64);
        constexpr bool two = X::groups == 2;
        if constexpr (P::bits == 8) {
          using Weight = typename P::Weight;
          const uint4 low[2] = {halvesOf<Weight>(a.x, a.y), halvesOf<Weight>(b.x, b.y)},
                      high[2] = {halvesOf<Weight>(a.z, a.w), halvesOf<Weight>(b.z, b.w)};
#pragma unroll
          for (int q = 0; q < X::groups; q++) {
            multiply(sum, 2 * q, low[0], low[1], x(i, 2, 0, q));
            multiply(sum, two ? 2 * q : 2, high[0], high[1], x(i, 2, 1, q));
          }
        } else {
#pragma unroll
          for (int q = 0; q < X::groups; q++)
            multiply(sum, two ? 2 * q : i % 2 * 2, a, b, x(i, 1, 0, q));
        }
      }
    }
  }
  /// The same of packed weights, in the order of unpacked ones: lane t has eight columns of each
  /// 32, which need not be a block. Exceptions of some blocks at a time have one place in the code:
  /// a layer has to fit into the instruction cache.
  template <typename P, typename X>
  __device__ __forceinline__ void accumulatePacked(TileSum &sum, const char *tile, const X &x,
                                                   int column) const {
    constexpr int blocks = P::padded / packedBlock, ofGroup = P::group / packedBlock,
                  together = ofOneGroup<P, 4> ? 4 : 2, blockBytes = bytesOf(packedBlock, P::bits);
    const int begin = (firstColumn<P>() + column) / 8;
    int own = t, block = begin / 4 % ofGroup;
    const char *rows = tile + 2 * g * P::pitch;
    const char *const words = rows + bytesOf(P::stored, P::bits);
    if constexpr (P::stored > P::padded) {
      const int at = begin % 4 + t;
      own = at % 4;
      rows += at / 4 * blockBytes;
      block += at / 4;
    }
    auto groupOf = [&](int i, int odd) {
      return PackedGroup<T>{*reinterpret_cast<const unsigned *>(
          words + (unsigned)(block + i) / ofGroup * 4 + odd * P::pitch)};
    };
    auto eighthOf = [&](int i) { return (unsigned)(block + i) % ofGroup * 4 + own; };
    constexpr bool shared = ofOneGroup<P, together>;
#pragma unroll(X::isIndexed ? ceilDiv(blocks, together) : 1)
    for (int first = 0; first < blocks; first += together) {
      auto blockAt = [&](int j) {
        return blocks % together == 0 ? first + j : min(first + j, blocks - 1);
      };
      uint4 v[2 * together]; // of both rows
      PackedGroup<T> of[2 * together];
      bool exceptions = false;
#pragma unroll
      for (int n = 0; n < 2 * together; n++) {
        const int i = blockAt(n / 2);
        of[n] = shared && n >= 2 ? of[n - 2] : groupOf(i, n % 2);
        v[n] = packedEight(rows + i * blockBytes + n % 2 * P::pitch, own, of[n]);
        if (!shared || n < 2)
          exceptions |= of[n].mayHave(eighthOf(i), shared ? together : 1);
      }
      if (exceptions)
#pragma unroll 1
        for (int n = 0; n < 2 * together; n++) {
          const int i = blockAt(n / 2);
          groupOf(i, n % 2).mend(v, n, eighthOf(i), packedWords<P>());
        }
#pragma unroll
      for (int j = 0; j < together; j++)
        if (blocks % together == 0 || first + j < blocks)
#pragma unroll
          for (int q = 0; q < X::groups; q++)
            multiply(sum, X::groups == 2 ? 2 * q : j % 2 * 2, v[2 * j], v[2 * j + 1],
                     x(first + j, 1, 0, q));
    }
  }
  /// Whether each `blocks` blocks of P's chunks are of one group.
  template <typename P, int Blocks>
  static constexpr bool ofOneGroup =
      P::stored == P::padded && P::group % (Blocks * packedBlock) == 0 &&
      P::columns % (Blocks * packedBlock) == 0 &&
      (P::isLast || (P::isFirst    ? L::slice
                     : P::isOfHead ? C::HeadsEach * C::HeadDim
                                   : 1) %
                            (Blocks * packedBlock) ==
                        0);
  static __device__ __forceinline__ uint4 packedEight(const char *block, int eighth,
                                                      PackedGroup<T> of) {
    return PackedGroup<T>::eight(
        *reinterpret_cast<const uint2 *>(block + eighth * 8),
        *reinterpret_cast<const unsigned *>(block + packedBlock + eighth * 4), of.factors());
  }
  /// The first column of a whole row that the block has.
  template <typename P> __device__ __forceinline__ int firstColumn() const {
    if constexpr (P::isLast)
      return 0;
    else if constexpr (P::isFirst)
      return place.rank * L::slice;
    else
      return P::isOfHead ? place.queryRow(0) : place.hidden.begin;
  }
  /// Words of the layer's weights.
  template <typename P> __device__ __forceinline__ const unsigned *packedWords() const {
    const float *of;
    if constexpr (P::isLast) {
      of = shared.vocabulary().first.scales;
    } else {
      const int layer = turn % SharedOf<C>::layers;
      const HalfRecord<Words> &half = P::isOfHead ? shared.headOf(layer).half : shared.mlpOf(layer);
      of = P::isFirst ? half.first.scales : half.scales;
    }
    return reinterpret_cast<const unsigned *>(of);
  }
  /// The same of weights in groups: lane t has 8 of each 32 columns of its rows. What `step`
  /// columns sum up to is multiplied by their scale, of whose word the last four bits are the zero
  /// point of weights of four bits, and 8.
  template <typename P, typename X>
  __device__ __forceinline__ void accumulateGroups(TileSum &sum, const char *tile, X x) const {
    constexpr int steps = P::step / 32, bytes = bytesOf(P::step, P::bits);
    const char *from = tile + g * P::pitch + t * P::bits,
               *scale = tile + g * P::pitch + bytesOf(P::padded, P::bits);
    // Of a few columns at a time, that there are registers for.
    constexpr int together = X::isIndexed ? P::words : steps < 4 ? 4 / steps : 1;
#pragma unroll together
    for (int i = 0; i < P::words; i++, from += bytes, scale += 4, x.skip(steps)) {
      const GroupScale<P> a(scale), b(scale + halfTile<P>);
      float part[X::groups][2][4] = {};
#pragma unroll
      for (int j = 0; j < steps; j++) {
        const char *const at = from + j * bytesOf(32, P::bits);
        const uint4 low = eightOf(a, at), high = eightOf(b, at + halfTile<P>);
#pragma unroll
        for (int q = 0; q < X::groups; q++)
          multiplyTwo(part[q], low, high, x(j, 1, 0, q));
      }
#pragma unroll
      for (int q = 0; q < X::groups; q++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          sum[2 * q][e] =
              fmaf(part[q][0][e] + part[q][1][e], e < 2 ? a.scale : b.scale, sum[2 * q][e]);
    }
  }
  /// From an even row of weights in groups to the odd one behind it.
  template <typename P> static constexpr int halfTile = tileRows / 2 * P::pitch;
  template <typename P> struct GroupScale {
    float scale;
    unsigned bias = 0; ///< of four bits
    __device__ __forceinline__ explicit GroupScale(const char *at) {
      const unsigned word = *reinterpret_cast<const unsigned *>(at);
      scale = __uint_as_float(P::bits < 8 ? word & ~15u : word);
      if constexpr (P::bits < 8)
        bias = Operand<typename P::Weight>::template biasOf<T>((int)(word & 15) - 8);
    }
  };
  /// Eight columns of a row.
  template <typename P>
  static __device__ __forceinline__ uint4 eightOf(const GroupScale<P> &of, const char *at) {
    if constexpr (P::bits < 8) {
      return Operand<typename P::Weight>::template pairs<T>(*reinterpret_cast<const unsigned *>(at),
                                                            of.bias);
    } else {
      const uint2 words = *reinterpret_cast<const uint2 *>(at);
      return halvesOf<typename P::Weight>(words.x, words.y);
    }
  }
  /// Eight columns of two rows times those of x, in chains `chain` and the next.
  static __device__ __forceinline__ void multiply(TileSum &sum, int chain, const uint4 &a,
                                                  const uint4 &b, const uint4 &v) {
    multiplyTwo(*reinterpret_cast<float(*)[2][4]>(sum + chain), a, b, v);
  }
  static __device__ __forceinline__ void multiplyTwo(float (&sum)[2][4], const uint4 &a,
                                                     const uint4 &b, const uint4 &v) {
    const unsigned low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
    Mma<T>::multiply(sum[0], low, v.x, v.y);
    Mma<T>::multiply(sum[1], high, v.z, v.w);
  }
  template <typename Weight>
  static __device__ __forceinline__ uint4 halvesOf(unsigned low, unsigned high) {
    const HalfPairs a = Operand<Weight>::halves(low), b = Operand<Weight>::halves(high);
    return {a.low, a.high, b.low, b.high};
  }
  /// The lane's two rows, in all lanes t.
  static __device__ __forceinline__ float2 rowsOf(const TileSum &sum) {
    return {sum[0][0] + sum[1][0] + (sum[2][0] + sum[3][0]),
            sum[0][2] + sum[1][2] + (sum[2][2] + sum[3][2])};
  }
  /// Of x in shared memory, whose groups of rows are Apart vectors from each other.
  template <int Groups = 1, int Apart = 0> struct StoredVector {
    static constexpr bool isIndexed = false;
    static constexpr int groups = Groups;
    const uint4 *from;
    int t;
    __device__ __forceinline__ uint4 operator()(int i, int n, int j, int q) const {
      return (from + t * n)[i * 4 * n + j + q * Apart];
    }
    /// Vectors of n = 1.
    __device__ __forceinline__ void skip(int i) { from += i * 4; }
  };
  __device__ __forceinline__ StoredVector<> vectorIn(const T *x) const {
    return {reinterpret_cast<const uint4 *>(x), t};
  }
  /// Of pairs of a head's dimensions, of which lane i has number i + 32 p in word[p].
  struct HeadVector {
    static constexpr bool isIndexed = true; ///< by constants alone
    static constexpr int groups = 1;
    unsigned word[L::pairs];
    int t, skipped = 0;
    __device__ __forceinline__ void skip(int i) { skipped += i; }
    __device__ __forceinline__ uint4 operator()(int i, int n, int j, int) const {
      const int first = (skipped + i) * n * 16 + j * 4; // pair of lane t = 0
      const unsigned w = word[first / 32 < L::pairs ? first / 32 : L::pairs - 1];
      const int from = first % 32 + t * n * 4;
      return {__shfl_sync(fullWarp, w, from), __shfl_sync(fullWarp, w, from + 1),
              __shfl_sync(fullWarp, w, from + 2), __shfl_sync(fullWarp, w, from + 3)};
    }
  };
  /// The warps' tiles of the `tiles` of P, the next ones in the ring, times x(chunk), each of which
  /// finish(row, sums) takes.
  template <typename P, typename X, typename Finish>
  __device__ __forceinline__ void multiply(int tiles, X &&x, Finish &&finish) const {
    constexpr int lap = L::template meeting<P>;
    if constexpr (lap > 0) {
#pragma unroll 1
      for (int begin = 0; begin < tiles; begin += lap) {
        if (begin > 0)
          sync<3, warps>();
        multiply<P>(begin, min(begin + lap, tiles), tiles, x, finish);
      }
    } else {
      multiply<P>(0, tiles, tiles, x, finish);
    }
  }
  /// Of them those from `begin` to `end`.
  template <typename P, typename X, typename Finish>
  __device__ __forceinline__ void multiply(int begin, int end, int tiles, X &&x,
                                           Finish &&finish) const {
    constexpr int share = arrivals / P::each;
    constexpr bool near = P::slots <= C::Slots;
    const int missing = ceilDiv(tiles, P::each) * P::each - tiles;
#pragma unroll 1
    for (int tile = begin + warp; tile < end; tile += warps) {
      TileSum sum = {};
#pragma unroll(P::packed ? 1 : P::chunks)
      for (int j = 0; j < P::chunks; j++) {
        const Slot s =
            slotAt<near>(P::chunks > 1 ? tile * P::chunks + j : (int)((unsigned)tile / P::each));
        waitSlot(s);
        accumulate<P>(sum, P::chunks > 1 ? shared.ring[s.number] : tileIn<P>(s, tile), x(j),
                      j * P::columns);
        release(s, tile == tiles - 1 ? share * (1 + missing) : share);
      }
      finish(tile * tileRows + 2 * g, sum);
    }
  }

  // x
  // -----------------------------------------------------------------------------------------------

  /// The first of two columns of the block's slice that this lane adds up, as do lanes 4 apart.
  __device__ __forceinline__ int column(int pass) const {
    return (pass * warps + warp) * 8 + 2 * t;
  }
  __device__ __forceinline__ bool inside(int pass) const { return column(pass) < place.columns; }
  template <typename Table>
  static __device__ __forceinline__ float2 pairAt(const Table &table, int row, int column) {
    return Mma<T>::unpack(*reinterpret_cast<const unsigned *>(table.template as<const T>() +
                                                              (i64)row * C::D + column));
  }
  /// Columns c and the next of a token at a position.
  static __device__ __forceinline__ float2 tokenPair(const ClusterEmbedRecord<Words> &r, int token,
                                                     int past, int c) {
    float2 v;
    using Embedding = typename C::Embedding;
    if constexpr (Operand<Embedding>::scaled) {
      const auto of = loadPack<2>(r.tokens.template as<const Embedding>() + (i64)token * C::D + c);
      const float scale = r.scales[(i64)token * C::Groups + c / (C::D / C::Groups)];
      v = {of.get(0) * scale, of.get(1) * scale};
    } else {
      v = pairAt(r.tokens, token, c);
    }
    if constexpr (C::Position) {
      const float2 of = pairAt(r.positions, max(0, min(past, r.positionCount - 1)), c);
      v.x += of.x;
      v.y += of.y;
    }
    return v;
  }
  __device__ __forceinline__ void embed(const ClusterEmbedRecord<Words> &r, int past) {
#pragma unroll
    for (int i = 0; i < L::passes; i++) {
      residual[i] = {};
      if (inside(i))
        residual[i] = tokenPair(r, token, past, place.rank * L::slice + column(i));
    }
  }
  /// Where a cluster's partial sums are in a channel: those of all `sources` follow each other for
  /// every 8 columns, which a warp reads.
  __device__ __forceinline__ char *partial(const HalfRecord<Words> &half, int sources, int source,
                                           int column) const {
    const int c = place.rank * L::slice + column;
    return reinterpret_cast<char *>(half.partials.word) + offset +
           ((c / 8 * sources + source) * 8 + c % 8) * 4;
  }
  /// Among members: the logit of a token to all of them, if it is wanted; ahead of the choice of
  /// this block, and behind that of all blocks.
  __device__ __forceinline__ void storeLogit(float *logits, i64 at, float v) const {
    if (logits == nullptr)
      return;
#pragma unroll
    for (int m = 0; m < C::Members; m++)
      *reinterpret_cast<float *>(reinterpret_cast<char *>(logits + at) + shared.peers.logits[m]) =
          v;
  }
  __device__ __forceinline__ void releaseLogits() const {
    if (shared.vocabulary().logits != nullptr)
      __threadfence_system();
  }
  __device__ __forceinline__ void acquireLogits() const { releaseLogits(); }
  /// Whether a launch behind this one may begin.
  __device__ __forceinline__ bool mayRelease() const {
    if constexpr (C::Members > 1)
      return Member<C>::exchange->apart; // else it would keep out what another member waits for
    else
      return true;
  }
  /// Takes the places of layer `n` of all, those of its halves, for what is published and received.
  __device__ __forceinline__ void enterLayer(unsigned n) {
    if constexpr (C::Members > 1)
      offset = Member<C>::enter(n) * (u64)shared.step().channelBytes;
  }
  /// The pair of columns that a lane has of an eighth of the partial sums of all members, each of
  /// which has those of `Sources` clusters.
  template <int Sources>
  __device__ __forceinline__ void receiveOfMembers(float2 (&sum)[L::passes],
                                                   const HalfRecord<Words> &half) {
    constexpr int all = C::Members * Sources, each = ceilDiv(all, 8), ///< of an eighth of the warp
        together = least(each, L::passes < 16 ? 16 / L::passes : 1);
#pragma unroll
    for (int begin = 0; begin < each; begin += together) {
      u64 v[L::passes][together];
#pragma unroll
      for (int i = 0; i < L::passes; i++)
#pragma unroll
        for (int j = 0; j < together; j++)
          v[i][j] = this->missing();
      const int first = g + 8 * begin;
      const char *const from = partial(half, all, first, column(0));
      this->await(
          v, [&](int i, int j) { return from + (i * warps * all + 8 * j) * 32; },
          [&](int i, int j) { return inside(i) && begin + j < each && first + 8 * j < all; },
          [&](int, int j) { return (first + 8 * j) / Sources; });
#pragma unroll
      for (int i = 0; i < L::passes; i++)
#pragma unroll
        for (int j = 0; j < together; j++) {
          sum[i].x += __uint_as_float((unsigned)v[i][j] & ~1u);
          sum[i].y += __uint_as_float((unsigned)(v[i][j] >> 32));
        }
    }
    this->round++;
  }
  /// Adds what `sources` clusters, at most Most, have published behind a half to the residual.
  template <int Most>
  __device__ __forceinline__ void receive(const HalfRecord<Words> &half, int sources) {
    constexpr int each = ceilDiv(Most, 8); ///< of an eighth of the warp
    float2 bias[L::passes] = {}, scale[L::passes];
    u64 v[L::passes][each] = {};
#pragma unroll
    for (int i = 0; C::Bias && i < L::passes; i++)
      bias[i] = persistent::loadEarly(half.bias + place.rank * L::slice +
                                      min(column(i), place.columns - 2));
#pragma unroll
    for (int i = 0; L::rowScales && i < L::passes; i++)
      scale[i] = persistent::loadEarly(half.scales + place.rank * L::slice +
                                       min(column(i), place.columns - 2));
    float2 ofMembers[L::passes] = {};
    if constexpr (C::Members > 1) {
      receiveOfMembers<Most>(ofMembers, half);
    } else {
      const char *const from = partial(half, sources, g, column(0));
      persistent::receivePieces(
          v, [&](int i, int j) { return from + (i * warps * sources + 8 * j) * 32; },
          [&](int i, int j) { return inside(i) && g + 8 * j < sources; });
    }
#pragma unroll
    for (int i = 0; i < L::passes; i++) {
      float2 sum = ofMembers[i];
      if constexpr (C::Members == 1) {
#pragma unroll
        for (int j = 0; j < each; j++) {
          sum.x += __uint_as_float((unsigned)v[i][j]);
          sum.y += __uint_as_float((unsigned)(v[i][j] >> 32));
        }
      }
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        sum.x += __shfl_xor_sync(fullWarp, sum.x, lanes);
        sum.y += __shfl_xor_sync(fullWarp, sum.y, lanes);
      }
      if constexpr (L::rowScales) {
        residual[i].x += fmaf(sum.x, scale[i].x, bias[i].x);
        residual[i].y += fmaf(sum.y, scale[i].y, bias[i].y);
      } else {
        residual[i].x += sum.x + bias[i].x;
        residual[i].y += sum.y + bias[i].y;
      }
    }
  }
  template <bool Gained>
  __device__ __forceinline__ void loadGain(const FirstProduct<Words> &product,
                                           float2 (&gain)[L::passes]) const {
#pragma unroll
    for (int i = 0; i < L::passes; i++) {
      gain[i] = {1.0f, 1.0f};
      if constexpr (Gained)
        gain[i] = Mma<T>::unpack(*reinterpret_cast<const unsigned *>(
            product.gain.template as<const T>() + place.rank * L::slice +
            min(column(i), place.columns - 2)));
    }
  }
  /// Leaves the slice in shared memory.
  __device__ __forceinline__ void store(const float2 (&gain)[L::passes]) {
    if (g == 0)
#pragma unroll
      for (int i = 0; i < L::passes; i++)
        if (inside(i)) {
          *reinterpret_cast<float2 *>(shared.plain + column(i)) = residual[i];
          *reinterpret_cast<unsigned *>(shared.x + column(i)) =
              Mma<T>::pack(residual[i].x * gain[i].x, residual[i].y * gain[i].y);
        }
  }

  // Statistics: of each slice sum, and sum of squared differences from its mean; those of all
  // slices make the row's (Chan, Golub, LeVeque 1979)
  // -----------------------------------------------------------------------------------------------

  /// Those of the block's slice to all blocks, by one warp.
  __device__ __forceinline__ void sendStatistics(const float2 *to, Arrival at,
                                                 NormKind norm) const {
    constexpr int each = ceilDiv(L::slice, 32);
    float v[each], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < each; i++) {
      v[i] = lane + 32 * i < place.columns ? shared.plain[lane + 32 * i] : 0.0f;
      sum += v[i];
    }
    sum = norm == NormKind::Layer ? warpReduce<Sum>(sum) : 0.0f;
    const float mean = __fdividef(sum, (float)place.columns);
#pragma unroll
    for (int i = 0; i < each; i++) {
      const float difference = lane + 32 * i < place.columns ? v[i] - mean : 0.0f;
      squares = fmaf(difference, difference, squares);
    }
    squares = warpReduce<Sum>(squares);
    if (lane < ranks)
      send(remote(sharedAddress(to + place.rank), lane), sum, squares,
           remote(shared.arrived[at].address(), lane));
  }
  /// One over the standard deviation, with the scale of the gain undone, and the mean.
  struct Moments {
    float scale, mean;
  };
  template <NormKind Norm = C::Norm>
  static __device__ __forceinline__ Moments moments(const float2 (&of)[ranks],
                                                    const FirstProduct<Words> &product) {
    if constexpr (Norm == NormKind::Rms) {
      float part[ranks];
#pragma unroll
      for (int i = 0; i < ranks; i++)
        part[i] = of[i].y;
      return {persistent::inverseRoot(fmaf(inPairs(part), 1.0f / C::D, product.epsilon)) *
                  product.normScale,
              0.0f};
    }
    float2 part[ranks];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      part[i] = of[i];
      sum += part[i].x;
    }
    const float mean = sum * (1.0f / C::D);
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      const float n = (float)sliceCount(C::D, ranks, i, L::weights),
                  difference = part[i].x * (1.0f / sliceCount(C::D, ranks, i, L::weights)) - mean;
      squares += fmaf(n * difference, difference, part[i].y);
    }
    return {persistent::inverseRoot(fmaf(squares, 1.0f / C::D, product.epsilon)) *
                product.normScale,
            mean};
  }

  /// The sum of v, or the largest, in the fewest steps behind each other.
  template <typename Op = Sum, int N>
  static __device__ __forceinline__ float inPairs(float (&v)[N]) {
#pragma unroll
    for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
      for (int i = 0; i + apart < N; i += 2 * apart)
        v[i] = Op::apply(v[i], v[i + apart]);
    return v[0];
  }

  // First and second products
  // -----------------------------------------------------------------------------------------------

  /// Rows `row` and the next of a first product behind its norm.
  struct Constants {
    float2 sums, bias, scales;
  };
  __device__ __forceinline__ Constants constants(const FirstProduct<Words> &product,
                                                 int row) const {
    return {C::Norm == NormKind::Layer ? persistent::loadEarly(product.sums + row) : float2{},
            C::Bias ? persistent::loadEarly(product.bias + row) : float2{},
            L::rowScales ? persistent::loadEarly(product.scales + row) : float2{}};
  }
  template <int Rows>
  static __device__ __forceinline__ float2 gather(const float (&sum)[ranks][Rows], int row,
                                                  const Constants &c, const Moments &m) {
    float x[ranks], y[ranks];
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      const float2 part = *reinterpret_cast<const float2 *>(&sum[i][row]);
      x[i] = part.x;
      y[i] = part.y;
    }
    float2 v = {inPairs(x), inPairs(y)}, scale = {m.scale, m.scale};
    if constexpr (C::Norm == NormKind::Layer)
      v = {v.x - m.mean * c.sums.x, v.y - m.mean * c.sums.y};
    if constexpr (L::rowScales)
      scale = {m.scale * c.scales.x, m.scale * c.scales.y};
    if constexpr (C::Bias)
      return {fmaf(v.x, scale.x, c.bias.x), fmaf(v.y, scale.y, c.bias.y)};
    else
      return {v.x * scale.x, v.y * scale.y};
  }
  /// The slice of x times the cluster's rows: sums to all blocks of it.
  template <typename P, typename Sums>
  __device__ __forceinline__ void first(Sums &sums, Arrival at, int tiles) {
    multiply<P>(
        tiles, [&](int chunk) { return vectorIn(shared.x + chunk * P::columns); },
        [&](int row, const TileSum &sum) {
          const float2 v = rowsOf(sum);
#pragma unroll
          for (int block = t; block < ranks; block += 4)
            send(remote(sharedAddress(&sums.sum[0][place.rank][row]), block), v.x, v.y,
                 remote(shared.arrived[at].address(), block));
        });
    advance(ceilDiv(tiles, P::each) * P::chunks);
  }
  /// Rows of the block's slice times what the cluster has, x(chunk), as its partial sums.
  template <typename P, typename X>
  __device__ __forceinline__ void second(const HalfRecord<Words> &half, int sources, X &&x) {
    multiply<P>(P::tiles, x, [&](int row, const TileSum &sum) {
      const float2 v = rowsOf(sum);
      if constexpr (C::Members > 1) {
        if (t == 0 && row < place.columns)
          this->publish(
              shared.peers,
              partial(half, C::Members * sources, this->member * sources + place.cluster, row),
              (u64)__float_as_uint(v.y) << 32 | (__float_as_uint(v.x) & ~1u) | this->bit);
      } else {
        if (t == 0 && row < place.columns)
          persistent::contributePair(partial(half, sources, place.cluster, row),
                                     (u64)persistent::channelWord(v.y) << 32 |
                                         persistent::channelWord(v.x));
      }
    });
    advance(P::slots);
  }
  /// Two hidden columns of the share, number 2 pair and the next, of one of the block's sequences.
  __device__ __forceinline__ float2 hiddenPair(const HalfRecord<Words> &half, int pair,
                                               const Constants &c, int sequence = 0) const {
    const auto &sums = shared.mlp.sum[sequence];
    const Moments m = moments(shared.mlp.statistics[sequence], half.first);
    float2 v = gather(sums, 2 * L::hiddenRows * pair, c, m);
    if constexpr (C::Gated) {
      const int row = 4 * pair + 2;
      const float2 next = gather(sums, row, constants(half.first, 2 * place.hidden.begin + row), m);
      float gate[2] = {v.x, next.x};
      C::Function::apply(gate);
      return {gate[0] * v.y, gate[1] * next.y};
    } else {
      float out[2] = {v.x, v.y};
      C::Function::apply(out);
      return {out[0], out[1]};
    }
  }
  /// The block's part of an MLP behind `receive` and `store`.
  __device__ __forceinline__ void mlp(const HalfRecord<Words> &half, const Constants &c) {
    const int pair = threadIdx.x;
    waitArrival(AtMlp, turn);
    note(Mark::mlp_sums_came);
    if (pair < L::Output::operand / 2) {
      float2 v = {};
      if (2 * pair < place.hidden.count)
        v = hiddenPair(half, pair, c);
      *reinterpret_cast<unsigned *>(shared.hidden + 2 * pair) = Mma<T>::pack(v.x, v.y);
    }
    sync<3, warps>();
    note(Mark::hidden_came);
    second<typename L::Output>(half, place.clusters, [&](int chunk) {
      return vectorIn(shared.hidden + chunk * L::Output::columns);
    });
    note(Mark::output_published, Mark::output_published_waited);
  }

  __device__ __forceinline__ void attention(const HeadRecord<Words> &head, Keys<C> k, int past,
                                            const Constants (&ofQ)[L::pairs]);
  __device__ __forceinline__ HeadVector query(const HeadRecord<Words> &head,
                                              const Constants (&ofQ)[L::pairs],
                                              const Moments &m) const;
  __device__ __forceinline__ void attendToLap(const Keys<C> &k, int past, float scale,
                                              const HeadVector &q, float2 (&out)[L::pairs],
                                              float &top, float &total);
  __device__ __forceinline__ void releaseKeys(const Keys<C> &k) const;
  __device__ __forceinline__ void attendToTiles(Keys<C> &k, int past, float scale,
                                                const HeadVector &q);
  __device__ __forceinline__ void attendToNew(const HeadRecord<Words> &head, const Keys<C> &k,
                                              int past);
  __device__ __forceinline__ void sendParts();
  __device__ __forceinline__ HeadVector mergedParts() const;
  __device__ __forceinline__ void noteAngles(const ClusterEmbedRecord<Words> &r, int past) const;
  __device__ __forceinline__ float2 turned(const HeadRecord<Words> &head, int at, int row, int d,
                                           const Moments &m, bool turns, float &squares) const;
  __device__ __forceinline__ float2 queryPair(const HeadRecord<Words> &head, int ofCluster, int d,
                                              const Moments &m, float &squares) const;
  __device__ __forceinline__ float headFactor(float squares) const;
  __device__ __forceinline__ void queryWords(unsigned (&word)[L::pairs],
                                             const HeadRecord<Words> &head, int ofCluster,
                                             const Moments &m) const;
  __device__ __forceinline__ void keyWords(unsigned (&key)[L::pairs], unsigned (&value)[L::pairs],
                                           const HeadRecord<Words> &head, int ofCluster,
                                           const Moments &m) const;
  __device__ __forceinline__ void groupToNew(const HeadRecord<Words> &head, const Keys<C> &k,
                                             int past);
  __device__ __forceinline__ void sendGroupParts();
  __device__ __forceinline__ void mergeGroupParts();
  __device__ __forceinline__ void attentionOfGroup(const HeadRecord<Words> &head, Keys<C> k,
                                                   int past);
  __device__ __forceinline__ void vocabulary(const VocabularyRecord<Words> &record, unsigned step);
  __device__ __forceinline__ void choose(const StepRecord<Words> &step, unsigned third);
  __device__ __forceinline__ void chooseOfMembers(const StepRecord<Words> &step, unsigned use);
  __device__ __forceinline__ void compute(int steps);
  __device__ __forceinline__ void help(int steps);
};
#endif
} // namespace gpt2c::shares
