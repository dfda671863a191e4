// The kernel of a step of any shape in thread block clusters: persistent_shares.cuh.
#include "templates/persistent/PersistentBuilder.h"
#include "templates/persistent/PersistentConfig.h"

namespace gpt2c {

using namespace persistent;

/// How the step is divided if it is one of one sequence in fp16 that this form can run.
std::optional<shares::Division> PersistentBuilder::chooseDivision() {
  if (rows_ != 1 || type_ != DType::F16 || groups() != 0 || !haveLayers())
    return std::nullopt;
  const LinearStageConfig &logits = linears_.back().form;
  if (!logits.Logits || logits.W != Element::F16 || heads_ * headDim_ != logits.K ||
      context() == 0 || logits.Norm == NormKind::None || logits.Function != Activation::None)
    return std::nullopt;
  const shares::Division shape = {.width = logits.K,
                                  .heads = int(heads_),
                                  .headDim = int(headDim_),
                                  .hidden = int(hiddenWidth()),
                                  .vocabulary = int(vocabulary_)};
  return shares::divide(shape, int(context()), int(3 + 2 * layers()), sharedBytes);
}

void PersistentBuilder::emitSharesKernel(const shares::Division &division,
                                         const LinearStageConfig &qkv,
                                         const LinearStageConfig &hidden,
                                         const LinearStageConfig &logits) {
  threads_ = shares::threads;
  shared_ = sharedBytes;
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  k.headers = {"templates/persistent/persistent_shares.cuh"};
  k.params = {"records", "count"};
  const SharesConfig config = {.Position = embed_->operand(ops::Embed::Positions) != nullptr,
                               .D = division.width,
                               .Heads = division.heads,
                               .HeadDim = division.headDim,
                               .Hidden = division.hidden,
                               .Vocab = division.vocabulary,
                               .Ranks = division.ranks,
                               .Clusters = division.clusters,
                               .LeastClusters = division.leastClusters,
                               .FirstChunks = division.firstChunks,
                               .LastChunks = division.lastChunks,
                               .SlotBytes = division.slotBytes,
                               .Slots = division.slots,
                               .Records = int(records_.size()),
                               .Norm = qkv.Norm,
                               .Gain = qkv.Gain,
                               .FinalNorm = logits.Norm,
                               .FinalGain = logits.Gain,
                               .Function = hidden.Function};
  k.text = define(k.name + "Step", config);
  llvm::raw_string_ostream os(k.text);
  const std::string step = "persistent::SharesOf<" + k.name + "Step>";
  os << "static_assert(sizeof(shares::Shared<" << step << ">) <= " << shared_
     << " && shares::threads == " << threads_ << ");\n"
     << "extern \"C\" __global__ void\n#if __CUDA_ARCH__ >= 900\n__cluster_dims__("
     << division.ranks << ", 1, 1)\n#endif\n__launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  shares::run<" << step << ">(dynamicShared, records, count);\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
