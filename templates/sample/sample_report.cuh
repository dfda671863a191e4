// The report beside the choice of sample.cuh: log probabilities of it and of the best tokens, of
// the logits as they were given. The sum of exponentials is in double precision, in an order of its
// own, and the best are found one by one. The report is there before the choice is.
#pragma once

#include "templates/sample/sample_mask.cuh"

namespace gpt2c::tile {

template <typename C> class RowReport : public RowMask<C> {
  using Base = RowMask<C>;

public:
  using Base::Base;

protected:
  /// A row with a report leaves each logit as it was in the place of its bias.
  __device__ __forceinline__ void adjust(Adjustment *adjustments) {
    const SampleRow &how = this->how;
    for (int i = ownAdjustment(); i < how.adjustments; i += C::Blocks * C::Threads) {
      const Adjustment a = adjustments[how.firstAdjustment + i];
      if (a.id < 0 || a.id >= C::Vocab)
        continue;
      const float given = __ldcg(this->logits + a.id);
      if (how.report >= 0)
        adjustments[how.firstAdjustment + i].bias = given;
      double x = __dadd_rn((double)given, a.bias);
      if (a.count >= 0)
        x = x > 0 ? __ddiv_rn(x, how.repetition) : __dmul_rn(x, how.repetition);
      if (a.count > 0)
        x = __dsub_rn(x, __dadd_rn(__dmul_rn(how.frequency, (double)a.count), how.presence));
      __stcg(this->logits + a.id, __double2float_rn(x));
    }
  }
  /// The best tokens of what was read, whose largest has that order. Gives log(sum(exp)).
  __device__ __forceinline__ double reportBest(unsigned largest, LogprobReport *report) {
    const float top = sampling::floatOf(largest);
    double sum = 0;
    this->forGroups([&](int, const float *v) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        sum += expf(v[j] - top);
    });
    const Tally all = this->template meet<RealSumOf>({(u64)__double_as_longlong(sum), 0});
    const double logSum = logSumOf(top, __longlong_as_double((i64)all.a));
    const int count = minInt(this->how.report, C::Vocab);
    Tally last = {~u64{0}, 0};
#pragma unroll 1
    for (int n = 0; n < count; n++) {
      Tally best = BestOf::none();
      this->forGroups([&](int id, const float *v) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const Tally t = {sampling::orderOf(v[j]), (unsigned)(id + j)};
          if (id + j < this->end && (t.a < last.a || (t.a == last.a && t.b > last.b)))
            best = BestOf::of(best, t);
        }
      });
      last = this->template meet<BestOf>(best);
      if (this->writes()) {
        report->best[n].token = (int)last.b;
        report->best[n].logprob = __dsub_rn((double)sampling::floatOf((unsigned)last.a), logSum);
      }
    }
    if (this->writes())
      report->count = count;
    return logSum;
  }
  /// The logit of a token before adjust().
  __device__ __forceinline__ float givenLogit(const Adjustment *adjustments, int token) {
    const SampleRow &how = this->how;
    Tally found = LargestOf::none();
    for (int i = ownAdjustment(); i < how.adjustments; i += C::Blocks * C::Threads) {
      const Adjustment &a = adjustments[how.firstAdjustment + i];
      if (a.id == token)
        found = {sampling::orderOf((float)a.bias), 1};
    }
    found = this->template meet<LargestOf>(found);
    return found.b ? sampling::floatOf((unsigned)found.a) : __ldcg(this->logits + token);
  }

private:
  /// The first one of the thread.
  __device__ __forceinline__ int ownAdjustment() const {
    return (int)this->rank * C::Threads + (int)threadIdx.x;
  }
  /// top + log(sum), no number where sum is none: plus infinity is among the logits.
  static __device__ __forceinline__ double logSumOf(float top, double sum) {
    return sum != sum ? sum : __dadd_rn((double)top, sampling::logOf(sum));
  }
};

} // namespace gpt2c::tile
