// From the last stage of the pipeline to a plan file.
#pragma once

#include "codegen/Reasons.h"
#include "ir/Function.h"
#include "runtime/plan/Arch.h"
#include "runtime/plan/PlanWriter.h"
#include "schedule/DecodeForm.h"
#include "schedule/cost/Tuning.h"
#include "schedule/products/SumOrders.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <map>

namespace gpt2c {

/// How products of fp32 operands are computed: on tensor cores, each as three products of TF32, or
/// by fused multiply-adds in the order of K (templates/device/tf32.cuh has the bounds).
enum class Fp32Math { Tf32x3, Ffma };

struct CodegenOptions {
  /// "sm_90a" for machine code, "compute_80" for PTX. Empty: no kernels, the plan runs on the CPU
  /// device only.
  std::vector<std::string> archs;
  std::string cudaPath; // where NVRTC is looked for first
  int64_t maxBatch = 8;
  /// Tokens of a sequence where there is no KV state to say how many.
  int64_t context = 1024;
  /// Least and greatest values of symbols of exported graphs, by name; others get what their use in
  /// the inputs suggests.
  std::map<std::string, std::pair<int64_t, int64_t>> symbolBounds;
  /// Refuse a KV state larger than this many bytes; 0: no limit.
  uint64_t kvBudget = 0;
  std::string precision;
  std::vector<std::string> flags; // recorded in the plan
  std::string compilerVersion;
  std::string tokenizer; // blob; empty: none
  int eosToken = -1;
  /// Programmatic dependent launch: a step's launch overlaps the end of the step before it (sm_90
  /// and later).
  bool dependentLaunch = true;
  /// A product with few rows computes the norm in front of it itself.
  bool fuseNorm = true;
  /// Attention of decode steps over pages takes keys of prefixes that sequences share from a launch
  /// that reads them once.
  bool sharedPrefixes = true;
  DecodeMode decode = DecodeMode::Graph;
  Fp32Math fp32Math = Fp32Math::Tf32x3;
  /// What a row of @extend becomes depends on its sequence alone, not on other rows, their number
  /// or how it was cut. There are no kernels for other functions then.
  bool batchInvariant = false;
  /// Matrices of bf16 are in the plan in 12 bits an element, without loss.
  bool packWeights = false;
  unsigned threads = 2;
  /// Where compiled kernels are kept from one plan to the next; empty: nowhere.
  std::string kernelCache;
  /// What estimates are in proportion to.
  TargetRates rates;
  /// Takes one of the configurations that may compute an op; none: the cost model's.
  Chooser choose;
  /// Told how many of all images are compiled.
  std::function<void(size_t done, size_t all)> progress;
};

/// Where a plan's images came from.
struct KernelBuildStats {
  unsigned compiled = 0, cached = 0;
  unsigned damaged = 0;       ///< entries of the cache that had to be compiled again
  bool failedToStore = false; ///< the cache cannot be written
};

/// A plan ready to be written: the contents refer to the storage beside them.
class GeneratedPlan {
public:
  rt::PlanContents contents;
  /// Functions that got no GPU kernels, with the reason.
  Reasons hostOnly;
  /// Why @extend got none, although there is one; it is left to the CPU device.
  Reasons noRows;
  /// Why decode steps run as a graph although a persistent kernel would be faster; empty: they
  /// don't, or nothing is known.
  Reasons graphDecode;
  /// What is so of functions of several ranks.
  Reasons onRanks;
  /// Why single tokens over pages do not run as decode does; empty: they do.
  Reasons otherSteps;
  KernelBuildStats kernels;
  /// Where weights are packed, what became of those of products and tables.
  struct Packing {
    size_t matrices = 0;            ///< that are packed
    uint64_t bytes = 0, packed = 0; ///< of those
    /// Why others keep what they have, and their names.
    std::map<std::string, std::vector<std::string>> kept;
  };
  Packing packing;
  /// Of a batch-invariant plan: what one order of sums costs in each version of @extend.
  std::vector<SumOrders::Estimate> orderCosts;

private:
  friend class PlanGenerator;
  std::vector<Tensor> weights_;
  std::vector<std::vector<char>> images_;
  std::string irText_, tokenizer_;
};

/// Errors: KernelCompilation, Unsupported (an architecture), OutOfMemory (the KV budget).
llvm::Expected<std::unique_ptr<GeneratedPlan>> generatePlan(const Module &module,
                                                            const CodegenOptions &options);

/// What to compile for one device: "sm_90a"; Hopper needs the suffix for its own instructions.
std::string archOf(rt::ComputeCapability capability);

/// Architectures compiled for by default: those of the design that `supported` says NVRTC knows,
/// and PTX for newer ones.
std::vector<std::string> defaultArchs(llvm::function_ref<bool(llvm::StringRef)> supported);

} // namespace gpt2c
