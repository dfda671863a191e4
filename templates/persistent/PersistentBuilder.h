// What builds @generate, shared by the files that lower its kinds of stages.
#pragma once

#include "ir/Function.h"
#include "templates/persistent/PersistentStep.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Twine.h"

namespace gpt2c {

/// As in templates/persistent/persistent.cuh; the generated source asserts that they agree.
namespace persistent {
/// Sequences without thread block clusters: columns of an instruction's operand.
constexpr int64_t mostRows = 8;
constexpr int64_t warps = 8, unitRows = 8, mostRoundUnits = 4, maxBlocks = 256, recordBytes = 128;
/// Blocks that rounds and ranges of keys are made for.
constexpr int64_t processors = 132;
/// Blocks of a cluster, clusters of which an H200 holds that many, by measurement, columns of a
/// head, keys of a tile; as in templates/persistent/persistent_clusters.cuh.
constexpr int64_t clusterBlocks = 8, mostClusters = 15, clusterHeadDim = 64, clusterKeys = 16;
/// Copies of each channel, bytes of the ring that are filled at once: by measurement.
constexpr int64_t copies = 4, inFlight = 50'000;
/// Of the 227 KB that a block may have, what is left beside the kernel's own variables.
constexpr int64_t sharedBytes = 226 * 1024;
} // namespace persistent

/// What makes an instance of templates/persistent/persistent_linear.cuh.
struct PersistentLinear {
  DType weights = DType::F32;
  int64_t k = 0, tiles = 1;
  std::string norm = "None", activation = "none";
  bool gain = false, parts = false, bias = false, residual = false, logits = false;
  float normScale = 1; ///< that undoes the scale of the gain

  auto key() const {
    return std::tie(weights, k, tiles, norm, activation, gain, parts, bias, residual, logits,
                    normScale);
  }
};

class PersistentBuilder {
public:
  PersistentBuilder(PlanPool &pool, plan::FunctionT &out, Function &f, SymbolBounds bounds,
                    int64_t rows, bool clustersOnly)
      : b_(pool, out, std::move(bounds)), out_(out), f_(f), rows_(rows),
        clustersOnly_(clustersOnly) {}

  llvm::Error run();

private:
  llvm::Error unsupported(const llvm::Twine &why) const;
  llvm::Error unsupported(const Op &op, const llvm::Twine &why) const;

  // Ports and values
  void addPort(llvm::StringRef name, llvm::ArrayRef<Dim> shape);
  int outputOf(const Value *v, llvm::StringRef name) const;
  static Value *source(Value *v);
  int64_t newChannel(int64_t bytes);
  int64_t channelFor(Value *v, int64_t copies = 1);
  std::optional<int64_t> channelOf(Value *v) const;

  // Stages
  struct Words {
    int64_t kind = 0, units = 0, rows = 0, rowBytes = 0;
    plan::ArgT weights = StepBuilder::null();
    std::vector<plan::ArgT> own;
  };
  void addStage(llvm::StringRef what, Words words, llvm::ArrayRef<llvm::StringRef> nodes,
                const Dim &bytes, const Dim &flops);
  void addStage(llvm::StringRef what, Words words, Op &op);
  void addRecord(llvm::StringRef what, int64_t units, std::vector<plan::ArgT> words,
                 llvm::ArrayRef<llvm::StringRef> nodes, const Dim &bytes, const Dim &flops);
  llvm::Error lower(Op &op);
  llvm::Error lowerEmbed(Op &op);
  llvm::Error checkNorm(Op &op);
  llvm::Error lowerLinear(Op &op);
  llvm::Error lowerAttention(Op &op);
  llvm::Error checkChoice(Op &op);
  void addStep();

  // Constants of linears
  plan::ArgT weight(const Tensor &t);
  plan::ArgT scaledGain(const Tensor &gain, float &scale, const Tensor *&stored);

  // The kernel
  void setKernel(KernelSource kernel);
  llvm::Error chooseSizes();
  void emitKernel();
  std::string linearText(const std::string &name, const PersistentLinear &l) const;
  int64_t slotPitch(DType weights) const;
  /// Rows beyond one leave three times the sums to finish, and no registers for more warps.
  int64_t finishers() const { return rows_ == 1 ? 1 : 3; }

  // Thread block clusters
  bool formClusters();
  int64_t clusterRows() const;
  int64_t clusterSlots() const;
  void emitClusterKernel(const PersistentLinear &qkv, const PersistentLinear &hidden,
                         const PersistentLinear &logits);

  struct LinearStage {
    size_t step;
    PersistentLinear form;
    int64_t units;
  };

  StepBuilder b_;
  plan::FunctionT &out_;
  Function &f_;
  const int64_t rows_;
  const bool clustersOnly_;
  llvm::DenseMap<Value *, int64_t> channels_; ///< offsets
  llvm::DenseMap<Value *, int64_t> maxima_;   ///< of values in parts
  int64_t channelBytes_ = 0;                  ///< of one copy
  std::vector<LinearStage> linears_;
  std::vector<PersistentLinear> forms_;
  Op *embed_ = nullptr, *attention_ = nullptr;
  int nextOutput_ = -1, tokensInput_ = 0, stepInput_ = 0;
  DType type_ = DType::F32;
  int64_t heads_ = 0, headDim_ = 0, splits_ = 1, chunk_ = 0, records_ = 0;
  int64_t slotBytes_ = 0, reduceBytes_ = 0, slots_ = 0, shared_ = 0;
  int64_t copies_ = persistent::copies, clusters_ = 0, spareClusters_ = 0, threads_ = 0,
          vocabulary_ = 0;
  std::vector<std::pair<Dim, Dim>> costs_; ///< bytes and operations of the stages
};

} // namespace gpt2c
