// The choice of one token by sampling, as data: what it depends on besides the logits, in the form
// in which a device gets it, and the same choice made on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpt2c::rt {

/// What a row of logits is told before a token is chosen; ids of a row are different from each
/// other. Penalties act on tokens that the text has: count >= 0.
struct Adjustment {
  int32_t id = -1;    ///< below 0: nothing
  int32_t count = -1; ///< how often the answer has the token; below 0: the text does not have it
  double bias = 0;    ///< added before penalties
};
static_assert(sizeof(Adjustment) == 16);

/// Parameters of the choice behind one row of logits: those of SamplingParams, ready for use. The
/// kernels of @sample read it (templates/sample/sample.cuh has the same struct).
struct SampleRow {
  enum Mode : int32_t {
    Given,   ///< the greedy choice that was made already
    Sampled, ///< by the temperature
    Largest, ///< of the adjusted logits, the lowest id of equals
  };
  double inverseTemperature = 1, topP = 1;
  double repetition = 1, frequency = 0, presence = 0;
  float logMinP = 0; ///< of minP > 0; 1: none
  int32_t topK = 0;
  uint64_t seed = 0;
  int64_t position = 0; ///< tokens before the one that is chosen
  int32_t mode = Given;
  int32_t firstAdjustment = 0, adjustments = 0; ///< where they are among those of a call
  /// How many of the most probable tokens are reported beside the choice; below 0: nothing is, and
  /// not of the choice either. At most mostReported.
  int32_t report = -1;
};
static_assert(sizeof(SampleRow) == 80);
inline constexpr int64_t sampleRowWords = sizeof(SampleRow) / sizeof(int32_t);

struct TokenLogprob {
  int32_t token;
  double logprob;
};

/// The most tokens of a report that a device makes.
inline constexpr int32_t mostReported = 20;

/// log softmax of the logits as the model gives them, before anything of a SampleRow acts. The
/// kernels of @sample write it.
struct LogprobReport {
  double logprob = 0; ///< of the choice
  int32_t count = 0;
  int32_t unused = 0;
  TokenLogprob best[mostReported] = {}; ///< best first, the lower id first of equals
};
static_assert(sizeof(LogprobReport) == 336);

/// Which tokens may be chosen. A device asks for it once for each choice, on the thread that begins
/// the call, as late as it can: it may take as long as a part of the call.
class TokenMask {
public:
  /// Bit id % 32 of word id / 32 is set for tokens that may follow, words for the whole vocabulary;
  /// empty: any may. `carried`: the token that the call carries, below 0 where it carries none. The
  /// bits hold until the next call.
  virtual std::span<const uint32_t> allowedBehind(int32_t carried) = 0;

protected:
  ~TokenMask() = default;
};

/// A row with its adjustments and its mask, which a caller keeps.
struct SampledChoice {
  /// Devices have room for so many of each sequence.
  static constexpr int64_t mostAdjustments = 2048;
  SampleRow row;
  std::span<const Adjustment> adjustments = {};
  /// Whether a token that is added to the text changes the adjustments.
  bool penalises = false;
  TokenMask *mask = nullptr; ///< null: any token may be chosen

  /// Among few candidates, and nothing else: a device looks at few logits more than once.
  bool isAmongFew() const {
    return row.mode == SampleRow::Sampled && row.topK > 0 && row.topK <= 128 && row.report < 0 &&
           adjustments.empty() && !penalises && !mask;
  }
  /// By the temperature alone, and nothing is reported: a device makes the choice where it computes
  /// the logits.
  bool isByTemperature() const {
    return row.mode == SampleRow::Sampled && row.topK <= 0 && row.topP >= 1 && row.logMinP > 0 &&
           row.report < 0 && adjustments.empty() && !penalises && !mask;
  }
};

/// Counts `token` as one more of the answer: in its adjustment, or in the last one, which is free
/// (its id is below 0) where the text may not have the token yet.
void addToken(std::span<Adjustment> adjustments, int32_t token);

/// What chooseToken() returns where there is no token to choose.
inline constexpr int32_t choiceOfNaN = -1;     ///< a NaN, or plus infinity where it is sampled
inline constexpr int32_t choiceOfNothing = -2; ///< every logit that may be chosen is minus infinity

/// The choice, which a device makes of the same logits, too, to the bit. `greedy` is what
/// SampleRow::Given stands for. `allowed`, of a row that is not Given: as of TokenMask.
///
/// Logits of tokens that may not be chosen become minus infinity, but for NaN. Logits are adjusted
/// in double precision and rounded to single precision once, x[i]. z[i] is (x[i] - max x) *
/// inverseTemperature in single precision. Candidates are what is left by
///  - min-p: z[i] >= logMinP,
///  - top-k: x[i] at least the k-th largest,
///  - top-p: x[i] at least the largest t for which the weights of the candidates with x[i] >= t sum
///    to topP times the sum of all candidates' weights; a weight is weightOf(z[i]), an integer, so
///    sums are exact and have no order. Candidates equal to the last one needed are kept.
/// The largest x[i] * inverseTemperature + gumbelOf(word) in double precision wins, as far as
/// scoreOrder() tells, the lowest id of equals; `word` is the random one of (seed, position, i).
int32_t chooseToken(const SampleRow &row, std::span<const Adjustment> adjustments,
                    std::span<const float> logits, int32_t greedy,
                    std::span<const uint32_t> allowed = {});

/// log(sum(exp(x))).
double logSumExp(std::span<const float> x);
/// The `count` best of logits with their log probabilities, at most all.
std::vector<TokenLogprob> mostProbable(std::span<const float> logits, double logSum, int32_t count);
/// What a device reports beside the choice of `token`, up to the rounding of its sums.
LogprobReport reportOf(const SampleRow &row, std::span<const float> logits, int32_t token);

} // namespace gpt2c::rt
