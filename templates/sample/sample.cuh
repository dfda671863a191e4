// sample: next[row] = the token that SampleRow `rows[row]` chooses from logits[row, 0 .. Vocab), as
// runtime/sampling/SampledChoice.h defines it, to the bit: `greedy[row]`, the largest adjusted
// logit, or the Gumbel maximum over the candidates that min-p, top-k and top-p leave. -1: there is
// a NaN, -2: all are minus infinity.
//
// A cluster of `Blocks` blocks holds a row in shared memory. Nothing is sorted: a threshold is
// found by bisection over the order of floats: how many logits, or what weight of them, is at least
// the middle? Counts and weights are integers, so no order of sums shows. The blocks meet once with
// each question: meet(). With a small top-k few logits are looked at a second time:
// sample_quick.cuh.
//
// Of the Gumbel scores an approximation is computed in single precision, whose error is bounded,
// and only what may win by it in double precision.
//
// Code that runs once misses the instruction cache; the rehearsal warms it. Where the kernel before
// leaves multiprocessors idle and lets this one start early, few rows rehearse: a block goes the
// way of a small top-k before the logits are there, in the same code, with values of its own, and
// leaves nothing.
//
// A token that a row's mask forbids has a logit of minus infinity: sample_mask.cuh.
//
// Config: Vocab, Blocks, Threads, Held (a block keeps its logits in shared memory, else it reads
// them again), Rehearsed (grids of up to so many rows rehearse; 0: none).
// Kernel: logits f32[rows,Vocab], which masks and adjustments change, greedy i32[rows],
// rows SampleRow[rows], masks u32[]: of each row the word that its mask begins at, 0: it has none,
// then masks of Vocab bits; null: no row has one; adjustments Adjustment[], which a row with a
// report changes, next i32[rows], reports LogprobReport[rows], of which rows without one are not
// written.
// masks, next and reports may be in host memory.
// Grid: (Blocks, rows); block: Threads; cluster: Blocks; dynamic shared:
// RowSampler<C>::sharedBytes. Bytes: 4 rows Vocab.
#pragma once

#include "templates/sample/sample_quick.cuh"

namespace gpt2c::tile {

template <typename C> class RowSampler : public RowQuick<C> {
  using Base = RowQuick<C>;

public:
  static constexpr int sharedBytes = C::Held ? Base::singles * C::Threads * 4 : 0;

  __device__ __forceinline__ RowSampler(float *logits, const SampleRow &how, unsigned rank,
                                        float *held, const unsigned *mask, bool rehearses)
      : Base(logits, how, rank, held, rehearses), mask(mask),
        inverse(__double2float_rn(how.inverseTemperature)) {}

  /// Whether few logits are looked at a second time.
  static __device__ __forceinline__ bool isQuick(const SampleRow &how, const unsigned *mask) {
    return mask == nullptr && how.report < 0 && how.adjustments == 0 &&
           how.mode == SampleRow::Sampled && how.topK > 0 &&
           how.topK <= minInt(Base::mostK, C::Vocab - 1);
  }
  /// The token, in the thread that writes it. `report` is written where the row asks for it and
  /// there is a token. A rehearsal, of what isQuick() alone, writes nothing.
  __device__ __forceinline__ int choose(Adjustment *adjustments, LogprobReport *report) {
    const SampleRow &how = this->how;
    const bool reports = how.report >= 0;
    if (isQuick(how, mask))
      return chooseQuickly();
    Tally most;
    double logSum = 0;
    if (reports) {
      most = this->survey();
      if (!most.b)
        logSum = this->reportBest((unsigned)most.a, report);
    }
    const bool reads = !reports || how.adjustments > 0 || mask != nullptr;
    // What is adjusted is what the mask has left of it.
    const bool forbids = mask != nullptr && (!C::Held || how.adjustments > 0);
    if (forbids) {
      this->forbid(mask);
      this->barrier();
    }
    if (how.adjustments > 0) {
      this->adjust(adjustments);
      this->barrier();
    }
    const int token = reads ? tokenOf(read(!forbids)) : tokenOf(most);
    if (reports && token >= 0) {
      const float logit = this->givenLogit(adjustments, token);
      if (this->writes())
        report->logprob = __dsub_rn((double)logit, logSum);
    }
    return token;
  }

private:
  using Top = typename RowValues<C>::Top;

  __device__ __forceinline__ int chooseQuickly() {
    this->beginList();
    Top top = Base::read();
    // A rehearsal has all that there may be: different threads, and one with several.
    if (C::Rehearsed > 0 && this->rehearses) {
      top.first = (float)threadIdx.x;
      top.second = threadIdx.x + 1 == C::Threads ? top.first : negativeInfinity();
    }
    const bool pushed = this->push(top, this->how.topK);
    const Tally most = this->template meet<LargestOf>(
        {sampling::orderOf(top.first), (top.isNumber ? 0u : 1u) | (pushed ? 0u : 2u)});
    const bool whole = most.b == 0 && this->isWhole();
    if (whole && most.a != sampling::orderOf(__int_as_float(0x7f800000)))
      return this->chooseFromList(sampling::floatOf((unsigned)most.a));
    if (C::Rehearsed > 0 && this->rehearses)
      return 0;
    return tokenOf(Tally{most.a, most.b & 1});
  }
  /// What the thread has of the logits, of those in the mask where it is `masked`.
  __device__ __forceinline__ Top read(bool masked) {
    if constexpr (C::Held)
      if (masked && mask != nullptr)
        return this->readAllowed(mask);
    return Base::read();
  }
  /// The largest is found at one meeting.
  __device__ __forceinline__ int tokenOf(const Top &top) {
    const unsigned order = sampling::orderOf(top.first);
    if (this->how.mode != SampleRow::Largest)
      return tokenOf(this->template meet<LargestOf>({order, !top.isNumber}));
    constexpr u64 noNumber = ~u64{0};
    const Tally best =
        this->template meet<BestOf>({top.isNumber ? order : noNumber, (unsigned)top.id});
    if (best.a == noNumber)
      return -1;
    return sampling::floatOf((unsigned)best.a) == negativeInfinity() ? -2 : (int)best.b;
  }
  __device__ __forceinline__ int tokenOf(const Tally &most) {
    if (most.b)
      return -1;
    highest = sampling::floatOf((unsigned)most.a);
    if (highest == negativeInfinity())
      return -2;
    if (this->how.mode == SampleRow::Largest)
      return firstOf(highest);
    if (highest == __int_as_float(0x7f800000))
      return -1;
    return gumbelMaximum(leastCandidate((unsigned)most.a));
  }

  //===-- candidates ------------------------------------------------------------------------===//

  __device__ __forceinline__ float scaled(float v) const {
    return __fmul_rn(__fsub_rn(v, highest), inverse);
  }

  /// How many logits are of an order in [from, to), and their weight.
  template <bool Weighted> __device__ __forceinline__ Tally between(unsigned from, unsigned to) {
    const float low = sampling::floatOf(from), high = sampling::floatOf(to);
    Tally t = SumOf::none();
    this->forGroups([&](int, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (v[j] >= low && v[j] < high) {
          t.b++;
          if constexpr (Weighted)
            t.a += sampling::weightOf(scaled(v[j]));
        }
    });
    return this->template meet<SumOf>(t);
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
    const SampleRow &how = this->how;
    unsigned least = sampling::orderOf(negativeInfinity()) + 1;
    const unsigned end = largest + 1;
    if (how.logMinP <= 0) {
      // The least is the largest of what its order lacks to 2^32 - 1.
      unsigned lacks = ~largest;
      this->forGroups([&](int, const float *v) {
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (scaled(v[j]) >= how.logMinP)
            lacks = max(lacks, ~sampling::orderOf(v[j]));
      });
      least = ~(unsigned)this->template meet<LargestOf>({lacks, 0}).a;
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
    this->forGroups([&](int id, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (v[j] == value)
          best = BestOf::of(best, {1, (unsigned)(id + j)});
    });
    return (int)this->template meet<BestOf>(best).b;
  }

  __device__ __forceinline__ int gumbelMaximum(float least) {
    const sampling::Draw draw = sampling::drawOf(this->how);
    float first = negativeInfinity(), second = first, logit = 0;
    int at = 0;
    this->forGroups([&](int id, const float *v) {
      if (!(v[0] >= least || v[1] >= least || v[2] >= least || v[3] >= least))
        return;
      const uint4 w = sampling::randomWords(draw.seed, draw.position, (unsigned)id / 4);
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float score =
            v[j] >= least ? sampling::nearScore(v[j], inverse, words[j]) : negativeInfinity();
        const bool better = score > first;
        second = better ? first : fmaxf(second, score);
        first = better ? score : first;
        at = better ? id + j : at;
        logit = better ? v[j] : logit;
      }
    });
    const unsigned order =
        (unsigned)this->template meet<LargestOf>({sampling::orderOf(first), 0}).a;
    const float enough = sampling::enoughOf(sampling::floatOf(order));
    // Of one candidate mostly: several that may win are looked for again.
    u64 best = 0;
    if (!(second < enough)) {
      this->forGroups([&](int id, const float *v) {
#pragma unroll 1
        for (int j = 0; j < 4; j++) {
          const float x = j == 0 ? v[0] : j == 1 ? v[1] : j == 2 ? v[2] : v[3];
          if (!(x >= least))
            continue;
          const unsigned word = sampling::randomWord(draw.seed, draw.position, id + j);
          if (!(sampling::nearScore(x, inverse, word) < enough))
            best = max(best, draw.key(x, id + j));
        }
      });
    } else if (!(first < enough)) {
      best = draw.key(logit, at);
    }
    return sampling::tokenOf(this->template meet<LargestOf>({best, 0}).a);
  }

  const unsigned *const mask; ///< null: any token may be chosen
  const float inverse;
  float highest = 0;
};

template <typename C>
__device__ __forceinline__ void sample(float *logits, const int *greedy, const int *rows,
                                       const int *masks, int *adjustments, int *next, int *reports,
                                       void *held) {
  const i64 row = blockIdx.y;
  const unsigned rank = blockIdx.x;
  // An input of the call, of which the kernel before writes nothing.
  const SampleRow how = reinterpret_cast<const SampleRow *>(rows)[row];
  const int maskAt = masks != nullptr ? masks[row] : 0;
  const unsigned *const mask =
      maskAt != 0 ? reinterpret_cast<const unsigned *>(masks) + maskAt : nullptr;
  bool rehearses =
      C::Rehearsed > 0 && gridDim.y <= C::Rehearsed && RowSampler<C>::isQuick(how, mask);
#pragma unroll 1
  for (;;) {
    if (!rehearses) {
      waitForPredecessor();
      releaseSuccessor();
    }
    int token;
    if (how.mode == SampleRow::Given) {
      token = greedy[row];
    } else {
      RowSampler<C> sampler(logits + row * C::Vocab, how, rank, static_cast<float *>(held), mask,
                            rehearses);
      LogprobReport *report = reinterpret_cast<LogprobReport *>(reports) + row;
      token = sampler.choose(reinterpret_cast<Adjustment *>(adjustments), report);
      if (how.report >= 0 && sampler.writes())
        __threadfence_system(); // who sees the choice sees the report
      sampler.leave();
    }
    if (!rehearses) {
      if (rank == 0 && threadIdx.x == 0)
        next[row] = token;
      return;
    }
    // Not known to the compiler, which would have code of its own for the second turn.
    int again;
    asm volatile("mov.u32 %0, 0;" : "=r"(again)::"memory");
    rehearses = again;
  }
}

} // namespace gpt2c::tile
