// sample: next[row] = the token that SampleRow `rows[row]` chooses from logits[row, 0 .. Vocab), as
// runtime/SampledChoice.h defines it, to the bit: `greedy[row]`, the largest adjusted logit, or the
// Gumbel maximum over the candidates that min-p, top-k and top-p leave. -1: there is a NaN, -2: all
// are minus infinity.
//
// Nothing is sorted. A cluster of `Blocks` blocks holds a row; a threshold is found
// by bisection over the order of floats: how many logits, or what weight of them, is at least the
// middle? Counts and weights are integers, so no order of sums shows. The blocks meet once with
// each question: meet().
//
// What is reported beside the choice, log probabilities of it and of the best tokens, is of the logits
// as they were given: the sum of exponentials is in double precision, in an order of its own, and the
// best are found one by one. The report is there before the choice is.
//
// Of the Gumbel scores an approximation is computed in single precision, whose error is bounded,
// and only what may win by it in double precision.
//
// Config: Vocab, Blocks, Threads, SharedBytes (most of a block for its logits). Kernel: logits
// f32[rows,Vocab], which adjustments change, greedy i32[rows], rows SampleRow[rows], adjustments
// Adjustment[], which a row with a report changes, next i32[rows], reports LogprobReport[rows], of
// which rows without one are not written. next and reports may be in host memory.
// Grid: (Blocks, rows); block: Threads; cluster: Blocks. Bytes: 4 rows Vocab.
#pragma once

#include "templates/sample/sample_math.cuh"

namespace gpt2c {

/// As the runtime writes them.
struct SampleRow {
  enum { Given, Sampled, Largest };
  double inverseTemperature, topP, repetition, frequency, presence;
  float logMinP;
  int topK;
  u64 seed;
  i64 position;
  int mode, firstAdjustment, adjustments, report;
};
static_assert(sizeof(SampleRow) == 80);
struct Adjustment {
  int id, count;
  double bias;
};
static_assert(sizeof(Adjustment) == 16);
struct LogprobReport {
  double logprob;
  int count, unused;
  struct {
    int token, unused;
    double logprob;
  } best[20];
};
static_assert(sizeof(LogprobReport) == 336);

namespace tile {

/// What threads add up or compare.
struct Tally {
  u64 a;
  unsigned b;
};
struct SumOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) { return {p.a + q.a, p.b + q.b}; }
};
/// The largest a; b is whether anybody has one.
struct LargestOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    return {p.a > q.a ? p.a : q.a, p.b | q.b};
  }
};
/// a has the bits of a double.
struct RealSumOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    const double sum = __longlong_as_double((i64)p.a) + __longlong_as_double((i64)q.a);
    return {(u64)__double_as_longlong(sum), 0};
  }
};
/// The largest a, and its smallest b.
struct BestOf {
  static __device__ __forceinline__ Tally none() { return {0, ~0u}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    return p.a > q.a || (p.a == q.a && p.b < q.b) ? p : q;
  }
};

template <typename C> class RowSampler {
public:
  static constexpr int groups = ceilDiv(ceilDiv(C::Vocab, 4), C::Blocks *C::Threads);
  /// A block keeps its logits in shared memory, else it reads them again.
  static constexpr bool held = groups * C::Threads * 16 <= C::SharedBytes;

  __device__ __forceinline__ RowSampler(float *logits, const SampleRow &how, unsigned rank)
      : logits(logits), how(how), rank(rank), inverse(__double2float_rn(how.inverseTemperature)) {}

  /// The token, in every thread of the cluster. `report` is written where the row asks for it and
  /// there is a token.
  __device__ __forceinline__ int choose(Adjustment *adjustments, LogprobReport *report) {
    const bool reports = how.report >= 0;
    Tally most;
    double logSum = 0;
    if (reports) {
      most = survey();
      if (!most.b)
        logSum = reportBest((unsigned)most.a, report);
    }
    if (how.adjustments > 0) {
      adjust(adjustments);
      barrier();
    }
    if (!reports || how.adjustments > 0)
      most = survey();
    const int token = tokenOf(most);
    if (reports && token >= 0) {
      const float logit = givenLogit(adjustments, token);
      if (writes())
        report->logprob = __dsub_rn((double)logit, logSum);
    }
    return token;
  }
  /// Of all threads of the cluster one tells the result.
  __device__ __forceinline__ bool writes() const { return rank == 0 && threadIdx.x == 0; }

  /// Whoever ends before the others have read its tallies takes them away.
  __device__ __forceinline__ void end() {
    if constexpr (C::Blocks > 1)
      barrier();
  }

private:
  /// `most`: of survey().
  __device__ __forceinline__ int tokenOf(Tally most) {
    highest = sampling::floatOf((unsigned)most.a);
    if (most.b || (how.mode == SampleRow::Sampled && highest == -negativeInfinity()))
      return -1;
    if (highest == negativeInfinity())
      return -2;
    if (how.mode == SampleRow::Largest)
      return firstOf(highest);
    return gumbelMaximum(leastCandidate((unsigned)most.a));
  }

  //===-- the row ---------------------------------------------------------------------------===//

  __device__ __forceinline__ int idOf(int group) const {
    return 4 * ((group * C::Blocks + (int)rank) * C::Threads + (int)threadIdx.x);
  }
  /// Minus infinity stands for what is no logit; minus 0 becomes 0.
  __device__ __forceinline__ void load(int id, float *v) const {
    if constexpr (C::Vocab % 4 == 0) {
      float4 four = make_float4(0, 0, 0, 0);
      if (id < C::Vocab)
        four = __ldcg(reinterpret_cast<const float4 *>(logits + id));
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++)
        v[j] = id + j < C::Vocab ? __ldcg(logits + id + j) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
      v[j] = id + j < C::Vocab ? __fadd_rn(v[j], 0.0f) : negativeInfinity();
  }
  /// Of each group of a thread, which alone reads what it has written.
  static __device__ __forceinline__ float4 *values() {
    __shared__ float4 ofBlock[held ? groups * C::Threads : 1];
    return ofBlock;
  }
  /// Reads the logits: the order of the largest, and whether there is a NaN.
  __device__ __forceinline__ Tally survey() {
    Tally most = LargestOf::none();
#pragma unroll 4
    for (int i = 0; i < groups; i++) {
      float v[4];
      load(idOf(i), v);
      if constexpr (held)
        values()[i * C::Threads + (int)threadIdx.x] = make_float4(v[0], v[1], v[2], v[3]);
#pragma unroll
      for (int j = 0; j < 4; j++)
        most = LargestOf::of(most, {sampling::orderOf(v[j]), v[j] != v[j]});
    }
    return meet<LargestOf>(most);
  }
  /// A loop: code that runs once comes from far, an instruction of it costs more than one that runs
  /// again.
  template <typename Body> __device__ __forceinline__ void forGroups(Body body) const {
#pragma unroll 1
    for (int i = 0; i < groups; i++) {
      float v[4];
      if constexpr (held) {
        const float4 four = values()[i * C::Threads + (int)threadIdx.x];
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      } else {
        load(idOf(i), v);
      }
      body(idOf(i), v);
    }
  }

  /// A row with a report leaves each logit as it was in the place of its bias.
  __device__ __forceinline__ void adjust(Adjustment *adjustments) {
    for (int i = (int)rank * C::Threads + (int)threadIdx.x; i < how.adjustments;
         i += C::Blocks * C::Threads) {
      const Adjustment a = adjustments[how.firstAdjustment + i];
      if (a.id < 0 || a.id >= C::Vocab)
        continue;
      const float given = __ldcg(logits + a.id);
      if (how.report >= 0)
        adjustments[how.firstAdjustment + i].bias = given;
      double x = __dadd_rn((double)given, a.bias);
      if (a.count >= 0)
        x = x > 0 ? __ddiv_rn(x, how.repetition) : __dmul_rn(x, how.repetition);
      if (a.count > 0)
        x = __dsub_rn(x, __dadd_rn(__dmul_rn(how.frequency, (double)a.count), how.presence));
      __stcg(logits + a.id, __double2float_rn(x));
    }
  }

  //===-- the report ------------------------------------------------------------------------===//

  /// The best tokens of what survey() read, whose largest has that order. Gives log(sum(exp)).
  __device__ __forceinline__ double reportBest(unsigned largest, LogprobReport *report) {
    const float top = sampling::floatOf(largest);
    double sum = 0;
    forGroups([&](int, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        sum += expf(v[j] - top);
    });
    const Tally all = meet<RealSumOf>({(u64)__double_as_longlong(sum), 0});
    const double logSum = logSumOf(top, __longlong_as_double((i64)all.a));
    const int count = minInt(how.report, C::Vocab);
    Tally last = {~u64{0}, 0};
#pragma unroll 1
    for (int n = 0; n < count; n++) {
      Tally best = BestOf::none();
      forGroups([&](int id, const float *v) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const Tally t = {sampling::orderOf(v[j]), (unsigned)(id + j)};
          if (id + j < C::Vocab && (t.a < last.a || (t.a == last.a && t.b > last.b)))
            best = BestOf::of(best, t);
        }
      });
      last = meet<BestOf>(best);
      if (writes()) {
        report->best[n].token = (int)last.b;
        report->best[n].logprob = __dsub_rn((double)sampling::floatOf((unsigned)last.a), logSum);
      }
    }
    if (writes())
      report->count = count;
    return logSum;
  }
  /// top + log(sum), no number where sum is none: plus infinity is among the logits.
  static __device__ __forceinline__ double logSumOf(float top, double sum) {
    return sum != sum ? sum : __dadd_rn((double)top, sampling::logOf(sum));
  }
  /// The logit of a token before adjust().
  __device__ __forceinline__ float givenLogit(const Adjustment *adjustments, int token) {
    Tally found = LargestOf::none();
    for (int i = (int)rank * C::Threads + (int)threadIdx.x; i < how.adjustments;
         i += C::Blocks * C::Threads) { // the thread's own
      const Adjustment &a = adjustments[how.firstAdjustment + i];
      if (a.id == token)
        found = {sampling::orderOf((float)a.bias), 1};
    }
    found = meet<LargestOf>(found);
    return found.b ? sampling::floatOf((unsigned)found.a) : __ldcg(logits + token);
  }

  //===-- what blocks tell each other -------------------------------------------------------===//

  static __device__ __forceinline__ void barrier() {
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1)
      clusterBarrier();
    else
#endif
      __syncthreads();
  }
  template <typename Op> static __device__ __forceinline__ Tally ofWarp(Tally t) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      t = Op::of(t,
                 {__shfl_xor_sync(fullWarp, t.a, offset), __shfl_xor_sync(fullWarp, t.b, offset)});
    return t;
  }
  static __device__ __forceinline__ Tally tallyOf(const ulonglong2 *shared, unsigned block) {
    ulonglong2 v = *shared;
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1) {
      unsigned address;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(address)
                   : "r"(sharedAddress(shared)), "r"(block));
      asm volatile("ld.shared::cluster.v2.u64 {%0, %1}, [%2];"
                   : "=l"(v.x), "=l"(v.y)
                   : "r"(address)
                   : "memory");
    }
#endif
    return {v.x, (unsigned)v.y};
  }
  static __device__ __forceinline__ ulonglong2 *tallies() {
    __shared__ ulonglong2 ofWarps[2 * (C::Threads / 32)];
    return ofWarps;
  }
  /// The tallies of all threads of the cluster, in each of them. Two sets of slots take turns: who
  /// writes a set again has met everybody since, and so everybody has read it.
  template <typename Op> __device__ __forceinline__ Tally meet(Tally mine) {
    constexpr int warps = C::Threads / 32;
    ulonglong2 *slots = tallies() + turn * warps;
    mine = ofWarp<Op>(mine);
    if (threadIdx.x % 32 == 0)
      slots[threadIdx.x / 32] = make_ulonglong2(mine.a, mine.b);
    barrier();
    Tally all = Op::none();
    for (int i = (int)threadIdx.x % 32; i < C::Blocks * warps; i += 32)
      all = Op::of(all, tallyOf(slots + i % warps, i / warps));
    turn ^= 1;
    return ofWarp<Op>(all);
  }

  //===-- candidates ------------------------------------------------------------------------===//

  __device__ __forceinline__ float scaled(float v) const {
    return __fmul_rn(__fsub_rn(v, highest), inverse);
  }

  /// How many logits are of an order in [from, to), and their weight.
  template <bool Weighted> __device__ __forceinline__ Tally between(unsigned from, unsigned to) {
    const float low = sampling::floatOf(from), high = sampling::floatOf(to);
    Tally t = SumOf::none();
    forGroups([&](int, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (v[j] >= low && v[j] < high) {
          t.b++;
          if constexpr (Weighted)
            t.a += sampling::weightOf(scaled(v[j]));
        }
    });
    return meet<SumOf>(t);
  }

  /// An order `from` such that `reached` is true for the tally of all logits at least of it, and
  /// for no smaller set of this form. `begin` gets the tally of the given `from`, of which it
  /// is true. Both say whether to go on.
  template <bool Weighted, typename Begin, typename Reached>
  __device__ __forceinline__ unsigned bisect(unsigned from, unsigned to, Begin begin,
                                             Reached reached) {
    Tally all = SumOf::none(), above = SumOf::none(); // of what is at least `from` and `to`
    bool goOn = true;
    for (unsigned middle = from;;) {
      const Tally t = SumOf::of(above, between<Weighted>(middle, to));
      if (middle == from) {
        all = t;
        goOn = begin(t);
      } else if (reached(t, goOn)) {
        from = middle;
        all = t;
      } else {
        to = middle;
        above = t;
      }
      if (!goOn || to - from <= 1 || all.b - above.b <= 1)
        return from;
      middle = from + (to - from) / 2;
    }
  }

  __device__ __forceinline__ float leastCandidate(unsigned largest) {
    unsigned least = sampling::orderOf(negativeInfinity()) + 1;
    const unsigned end = largest + 1;
    if (how.logMinP <= 0) {
      // The least is the largest of what its order lacks to 2^32 - 1.
      unsigned lacks = ~largest;
      forGroups([&](int, const float *v) {
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (scaled(v[j]) >= how.logMinP)
            lacks = max(lacks, ~sampling::orderOf(v[j]));
      });
      least = ~(unsigned)meet<LargestOf>({lacks, 0}).a;
    }
    if (how.topK > 0 && how.topK < C::Vocab) {
      const unsigned k = (unsigned)how.topK;
      least = bisect<false>(
          least, end, [&](const Tally &t) { return t.b > k; },
          [&](const Tally &t, bool &goOn) {
            goOn = t.b != k;
            return t.b >= k;
          });
    }
    if (how.topP < 1) {
      double wanted = 0;
      least = bisect<true>(
          least, end,
          [&](const Tally &t) {
            wanted = __dmul_rn(how.topP, (double)t.a);
            return true;
          },
          [&](const Tally &t, bool &) { return (double)t.a >= wanted; });
    }
    return sampling::floatOf(least);
  }

  //===-- the choice ------------------------------------------------------------------------===//

  __device__ __forceinline__ int firstOf(float value) {
    Tally best = BestOf::none();
    forGroups([&](int id, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (v[j] == value)
          best = BestOf::of(best, {1, (unsigned)(id + j)});
    });
    return (int)meet<BestOf>(best).b;
  }

  __device__ __forceinline__ Tally scoreOf(int id, float v, unsigned word) const {
    const double z = __dmul_rn(__dsub_rn((double)v, (double)highest), how.inverseTemperature);
    const double score = __dadd_rn(z, sampling::gumbelOf(word));
    return {sampling::orderOf(score), (unsigned)id};
  }
  __device__ __forceinline__ unsigned randomWord(int id) const {
    const uint4 w = sampling::randomWords(how.seed, how.position, (unsigned)id / 4);
    return id % 4 == 0 ? w.x : id % 4 == 1 ? w.y : id % 4 == 2 ? w.z : w.w;
  }
  __device__ __forceinline__ float nearScore(float v, unsigned word) const {
    return scaled(v) + sampling::gumbelNear(word);
  }

  __device__ __forceinline__ int gumbelMaximum(float least) {
    // Who may win is within 3.2 + 22.9 of the highest logit, scaled: there z is exact within 2^-22
    // of 26.1, and so is what is added to it.
    constexpr float error = sampling::gumbelError + 26.1f / (1 << 21);
    float first = negativeInfinity(), second = first, logit = 0;
    unsigned drawn = 0;
    int at = 0;
    forGroups([&](int id, const float *v) {
      if (!(v[0] >= least || v[1] >= least || v[2] >= least || v[3] >= least))
        return;
      const uint4 w = sampling::randomWords(how.seed, how.position, (unsigned)id / 4);
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float score = v[j] >= least ? nearScore(v[j], words[j]) : negativeInfinity();
        const bool better = score > first;
        second = better ? first : fmaxf(second, score);
        first = better ? score : first;
        at = better ? id + j : at;
        logit = better ? v[j] : logit;
        drawn = better ? words[j] : drawn;
      }
    });
    const unsigned order = (unsigned)meet<LargestOf>({sampling::orderOf(first), 0}).a;
    const float enough = sampling::floatOf(order) - 2 * error;
    // Of one candidate mostly: several that may win are looked for again.
    Tally best = BestOf::none();
    const int candidates = second >= enough ? 4 * groups : first >= enough ? 1 : 0;
#pragma unroll 1
    for (int i = 0; i < candidates; i++) {
      if (candidates > 1) {
        at = idOf(i / 4) + i % 4;
        logit = at < C::Vocab ? __fadd_rn(__ldcg(logits + at), 0.0f) : negativeInfinity();
        if (!(logit >= least))
          continue;
        drawn = randomWord(at);
        if (nearScore(logit, drawn) < enough)
          continue;
      }
      best = BestOf::of(best, scoreOf(at, logit, drawn));
    }
    return (int)meet<BestOf>(best).b;
  }
  float *logits;
  const SampleRow &how;
  const unsigned rank;
  const float inverse;
  float highest = 0;
  int turn = 0;
};

template <typename C>
__device__ __forceinline__ void sample(float *logits, const int *greedy, const int *rows,
                                       int *adjustments, int *next, int *reports) {
  const i64 row = blockIdx.y;
  const unsigned rank = blockIdx.x;
  waitForPredecessor();
  releaseSuccessor();
  const SampleRow how = reinterpret_cast<const SampleRow *>(rows)[row];
  int token;
  if (how.mode == SampleRow::Given) {
    token = greedy[row];
  } else {
    RowSampler<C> sampler(logits + row * C::Vocab, how, rank);
    LogprobReport *report = reinterpret_cast<LogprobReport *>(reports) + row;
    token = sampler.choose(reinterpret_cast<Adjustment *>(adjustments), report);
    if (how.report >= 0 && sampler.writes())
      __threadfence_system(); // who sees the choice sees the report
    sampler.end();
  }
  if (rank == 0 && threadIdx.x == 0)
    next[row] = token;
}

} // namespace tile
} // namespace gpt2c
