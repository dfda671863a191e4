// How decode steps run: as launches of a graph, or all of a step as one persistent kernel, and in
// which form (docs/kernels/persistent.md). A form is taken where it is estimated to be no slower
// than the graph, or where it is asked for; whether a kernel has it is its record's word.
#pragma once

#include "schedule/DecoderShape.h"
#include "schedule/Kernel.h"
#include "schedule/Target.h"

#include <optional>
#include <string>

namespace gpt2c {

/// Each op as a launch of a CUDA graph; or, for few sequences, all of them as one persistent
/// kernel; or as estimated to be faster.
enum class DecodeMode { Graph, Persistent, Auto };

/// What a plan wants of its persistent steps of some sequences.
struct StepWish {
  bool asked = true;  ///< they are asked for, whatever is faster
  bool stages = true; ///< with a stage for each op they may be faster
  /// Weights of the layers' products, and of the vocabulary's, may be read packed.
  bool packs = false, packsLast = false;
  bool packsAsked = false; ///< they are, where they may be, whatever is faster
};

/// What a step may want of a persistent kernel.
enum class DecodeAbility : uint8_t {
  Grouped,    ///< it has what no stage has
  FloatSteps, ///< weights of a byte that are no integers
  Nibbles,    ///< weights of four bits
  Groups,     ///< groups of weights that share a scale
  ByteZeros,  ///< zero points of weights of a byte
  OwnLast,    ///< a vocabulary whose weights are of another type than those of the layers
  Pages,      ///< a state in pages
  Ranks       ///< sums and choices over ranks that share every layer
};
constexpr llvm::StringRef nameOf(DecodeAbility a) {
  return a == DecodeAbility::Grouped      ? "heads that turn or share keys, a gated MLP, or bf16"
         : a == DecodeAbility::FloatSteps ? "weights of a byte that are no integers"
         : a == DecodeAbility::Nibbles    ? "weights of four bits"
         : a == DecodeAbility::Groups     ? "weights in groups with a scale each"
         : a == DecodeAbility::ByteZeros  ? "weights of a byte with zero points"
         : a == DecodeAbility::OwnLast    ? "weights of the vocabulary in a type of their own"
         : a == DecodeAbility::Pages      ? "a state in pages"
                                          : "ranks that share every layer";
}

/// A step as the persistent kernels are asked about it.
struct DecodeProblem {
  using Ability = DecodeAbility;
  const DecoderShape *shape = nullptr; ///< null: it is no chain of layers
  int64_t rows = 1;                    ///< sequences
  DType type = DType::F32;             ///< of what ops hand on
  /// It has what no stage has: bf16, heads that turn or share keys, a gated MLP.
  bool grouped = false;
  bool paged = false; ///< over the state of @extend:
  DType pageType = DType::F32;
  int64_t pageTokens = 0, pageColumns = 0; ///< columns of the table; 0: they are no constant
  int64_t ranks = 1;                       ///< that share every layer: the shape is that of one
  Target target = {};
  bool asked = true;  ///< for, whatever is faster
  bool stages = true; ///< a stage for each op may be faster
  /// Weights of the layers, and of the vocabulary, are there in 12 bits an element, too.
  bool packs = false, packsLast = false;
  bool packsAsked = false; ///< these are read, whatever is faster

  Abilities<DecodeAbility> wants() const {
    return Abilities<DecodeAbility>{}
        .addIf(grouped, DecodeAbility::Grouped)
        .addIf(shape && (shape->weights == DType::F8E4M3 || shape->lastWeights == DType::F8E4M3),
               DecodeAbility::FloatSteps)
        .addIf(shape && (infoOf(shape->weights).bits < 8 || infoOf(shape->lastWeights).bits < 8),
               DecodeAbility::Nibbles)
        .addIf(shape && (shape->weightGroup > 0 || shape->lastGroup > 0), DecodeAbility::Groups)
        .addIf(shape && shape->weightZeros, DecodeAbility::ByteZeros)
        .addIf(shape && shape->lastWeights != shape->weights, DecodeAbility::OwnLast)
        .addIf(paged, DecodeAbility::Pages)
        .addIf(ranks > 1, DecodeAbility::Ranks);
  }
};
inline const Target &targetOf(const DecodeProblem &p) { return p.target; }

struct DecodeLaunch; // what builds a step
using DecodeKernel = Kernel<DecodeProblem, DecodeLaunch>;
using DecodeCandidate = Candidate<DecodeProblem, DecodeLaunch>;

/// The problem of a step of @decode; `extend`: over whose state it is, or null.
DecodeProblem decodeProblem(const Function &decode, const DecoderShape *shape, int64_t rows,
                            const Function *extend, const Target &target, StepWish wish);

/// Whether a step of weights of few bits is one with the floats that these stand for: `floats` is
/// that step, and a kernel of it takes less than that of `step`, or where this has none no longer
/// than its launches.
bool isStepOfFloats(const DecodeProblem &step, const DecodeProblem &floats,
                    llvm::ArrayRef<const DecodeKernel *> kernels);

/// The most sequences of each version of the persistent step.
constexpr int64_t persistentRows[] = {1, 2, 4, 8, 16};

class DecodeForms {
public:
  /// `decode`: null where there is none. `optimised`: the plan has dependent launches and fused
  /// norms, beside which the persistent kernel was measured. `packs`: matrices of bf16 are there in
  /// 12 bits an element, too.
  DecodeForms(const Function *decode, DecodeMode mode, const Target &target, bool optimised,
              bool packs = false);

  /// Why steps are launches of a graph; empty: they may be one kernel.
  const std::string &graph() const { return graph_; }
  bool areAsked() const { return mode_ == DecodeMode::Persistent; }
  /// For that many sequences in places of their own.
  StepWish of(int64_t rows) const { return of(rows, weights_.bytesOfLayer); }
  /// The same were its layers' weights of so many bytes each.
  StepWish of(int64_t rows, int64_t bytesOfLayer) const;
  /// Whether a step of `rows` sequences may be faster in some form: in clusters, or by stages.
  bool mayBeFaster(int64_t rows, bool inClusters) const { return of(rows).stages || inClusters; }
  /// Whether the graph is no slower where a form is refused.
  bool missNothing() const { return !areAsked() && weights_.bytesOfLayer > fasterBytes; }

private:
  /// The most sequences, and bytes of a layer's weights, for which stages are no slower than
  /// launches: a product of more has time to hide what a launch takes.
  static constexpr int64_t fasterRows = 2, fasterBytes = 28'000'000;

  DecodeMode mode_;
  bool packs_;
  DecoderWeights weights_;
  std::string graph_;
};

/// What decoder @decode is, and in which form each version of its persistent step runs, or why none
/// does: a line each. `widened`: its form with the floats that int8 weights stand for, which is
/// asked where @decode has none; or null. `estimates`: with what each is estimated to take.
void printDecodeSteps(Function &decode, Function *widened, const DecodeForms &forms,
                      int64_t maxBatch, const Target &target,
                      llvm::ArrayRef<const DecodeKernel *> kernels, bool estimates,
                      llvm::raw_ostream &os);

} // namespace gpt2c
