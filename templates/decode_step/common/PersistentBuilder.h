// What builds @generate, shared by the files that lower its kinds of stages.
#pragma once

#include "ir/Function.h"
#include "schedule/DecoderShape.h"
#include "templates/decode_step/common/PersistentRecords.h"
#include "templates/decode_step/common/PersistentStep.h"
#include "templates/decode_step/shares/SharesDivision.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Twine.h"

#include <optional>
#include <string>

namespace gpt2c {

/// What only the host decides; what it shares with the kernels is in
/// templates/decode_step/common/records.h.
namespace persistent {
/// Sequences without thread block clusters: columns of an instruction's operand.
constexpr int64_t mostRows = 8;
/// Copies of each channel, bytes of the ring that are filled at once: by measurement.
constexpr int64_t copies = 4, inFlight = 50'000;
/// Of the last axis; 0 where it is symbolic.
inline int64_t widthOf(const Value *v) { return v->type.shape.back().constant().value_or(0); }
} // namespace persistent

class PersistentBuilder {
public:
  /// `paged`: @extend, whose state the step is over; null: that of @decode.
  PersistentBuilder(PlanPool &pool, plan::FunctionT &out, Function &f, SymbolBounds bounds,
                    int64_t rows, StepWish wish, const Function *paged = nullptr)
      : b_(pool, out, std::move(bounds)), out_(out), f_(f), rows_(rows), wish_(wish), paged_(paged),
        target_(pool.target) {}

  llvm::Error run();

  // For the records of the kernels, once its ops are stages
  /// The stages become two of each layer: in clusters of a head each, or of shares.
  llvm::Error emitClusters(const std::optional<shares::Division> &division);
  llvm::Error emitStages();

private:
  /// Blocks that rounds and ranges of keys are made for.
  int64_t processors() const { return target_.multiprocessors; }
  /// Of shared memory, beside the kernels' own variables.
  int64_t sharedBytes() const { return int64_t(target_.sharedBytes) - 1024; }

  llvm::Error unsupported(const llvm::Twine &why) const;
  llvm::Error unsupported(const Op &op, const llvm::Twine &why) const;

  // Ports and values
  void addPorts();
  int outputOf(const Value *v, llvm::StringRef name) const;
  static Value *source(Value *v);
  int64_t newChannel(int64_t bytes);
  int64_t channelFor(Value *v, int64_t copies = 1);
  std::optional<int64_t> channelOf(Value *v) const;

  // Stages
  using Stage = persistent::Stage<persistent::HostWords>;
  /// `kind`: persistent::StageKind.
  Stage stage(int kind, int64_t units);
  void addStage(llvm::StringRef what, int64_t units, const persistent::StageRecord &record,
                llvm::ArrayRef<llvm::StringRef> nodes, const Dim &bytes, const Dim &flops);
  void addStage(llvm::StringRef what, int64_t units, const persistent::StageRecord &record, Op &op);
  persistent::HostWords::Integer integer(const Dim &d) { return words_.integer(b_.i32(d)); }
  persistent::HostWords::Pair pair(int64_t low, int64_t high);
  llvm::Error lower(Op &op);
  llvm::Error lowerEmbed(Op &op);
  llvm::Error checkNorm(Op &op);
  llvm::Error lowerLinear(Op &op);
  llvm::Error lowerAttention(Op &op);
  llvm::Error lowerRope(Op &op);
  llvm::Error lowerGated(Op &op);
  void joinStage(Op &op);
  /// Notes that the step has a form in shares alone, because of an op.
  void needShares(const Op &op, const llvm::Twine &why);
  llvm::Error checkChoice(Op &op);
  void addStep();

  // Constants of linears
  plan::ArgT weight(const Tensor &t);
  /// What `make` makes of constants, of which part(t) is what a rank has: that of each rank.
  using PartOf = llvm::function_ref<Tensor(const Tensor &)>;
  Tensor ofRanks(llvm::function_ref<Tensor(PartOf)> make);
  plan::ArgT scaledGain(const Tensor &gain, float &scale, const Tensor *&stored);
  /// Of a product's weights: scales and zero points of groups, or null.
  struct GroupTerms {
    const Tensor *scales = nullptr, *zeros = nullptr;
  };
  Tensor groupScales(const GroupTerms &of, const Tensor &w, int64_t group);
  Tensor addends(const Tensor *bias, const Tensor *shift, const Tensor &w, const Tensor *scales,
                 const GroupTerms &groups);
  const Tensor *addNormTerms(Op &norm, const Tensor &w, const GroupTerms &groups,
                             persistent::LinearStageConfig &form,
                             persistent::LinearTerms<persistent::HostWords> &terms);

  // The kernel
  void setKernel(KernelSource kernel);
  llvm::Error chooseSizes();
  void emitKernel();
  /// Scales of a row of an int8 table of tokens; 0: it has none.
  int groups() const;
  int64_t slotPitch(persistent::Element weights) const;
  /// Rows beyond one leave three times the sums to finish, and no registers for more warps.
  int64_t finishers() const { return rows_ == 1 ? 1 : 3; }

  /// Why no form runs the step.
  llvm::Error refused(const DecodeProblem &p) const;

  // Thread block clusters
  bool hasBias() const;
  Tensor gainsOfHeads();
  const persistent::LinearStageConfig &formOf(size_t layer, int stage) const;
  void emitClusterKernel(const persistent::LinearStageConfig &qkv,
                         const persistent::LinearStageConfig &hidden,
                         const persistent::LinearStageConfig &logits);
  void emitSharesKernel(const shares::Division &division, const persistent::LinearStageConfig &qkv,
                        const persistent::LinearStageConfig &hidden,
                        const persistent::LinearStageConfig &logits);

  struct Product {
    size_t step;
    persistent::LinearStageConfig form;
    int64_t units;
    Value *y;
    bool gated = false; ///< of two columns each, form.Function of the first times the second
    /// Weights in 12 bits, and the words of their groups, where they are packed.
    struct Packed {
      persistent::HostWords::Pointer weights, words;
    };
    std::optional<Packed> packed = {};
  };
  std::optional<Product::Packed> packedOf(const Op &linear);
  StepBuilder b_;
  plan::FunctionT &out_;
  Function &f_;
  const int64_t rows_;
  const StepWish wish_;
  const Function *paged_;
  const Target &target_;
  std::optional<DecoderShape> shape_; ///< none: it is no chain of layers
  DecodeProblem problem_;
  llvm::DenseMap<Value *, int64_t> channels_; ///< offsets
  llvm::DenseMap<Value *, int64_t> maxima_;   ///< of values in parts
  int64_t channelBytes_ = 0;                  ///< of one copy
  persistent::RecordArguments words_;
  std::vector<persistent::StageRecord> records_; ///< of the steps
  std::vector<Product> linears_;
  std::vector<persistent::LinearStageConfig> forms_;
  Op *embed_ = nullptr, *attention_ = nullptr;
  Op *rope_ = nullptr;      ///< of all layers; null: heads do not turn
  std::string needsShares_; ///< why; empty: they do not
  int nextOutput_ = -1;
  int tokensInput_ = 0, stepInput_ = 0; ///< of @generate
  DType type_ = DType::F32;
  int64_t heads_ = 0, keyHeads_ = 0, headDim_ = 0, splits_ = 1, chunk_ = 0;
  int64_t slotBytes_ = 0, reduceBytes_ = 0, slots_ = 0, shared_ = 0;
  int64_t members_ = 1; ///< ranks whose kernels share the step
  int64_t copies_ = persistent::copies, clusters_ = 0, clusterSize_ = 0, spareClusters_ = 0,
          threads_ = 0, vocabulary_ = 0;
  std::vector<std::pair<Dim, Dim>> costs_; ///< bytes and operations of the stages
};

} // namespace gpt2c
