// The kernel of a step of any shape in thread block clusters: shares/shares.cuh.
#include "runtime/cuda/ExchangeRecord.h"
#include "runtime/device/Backend.h"
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/Support/CommandLine.h"

namespace gpt2c {

using namespace persistent;

static llvm::cl::opt<bool> stepMarks(
    "step-marks",
    llvm::cl::desc("Blocks of decode steps in shares note when they did what: gpt2c-bench "
                   "--profile reads it (for work on those kernels; they take longer)"),
    llvm::cl::Hidden);

/// Words that a kernel's marks go to, and their names.
static std::string marksOf(const std::string &kernel, int records) {
  static_assert(persistent::maxBlocks == rt::KernelMarks::blocks);
  const std::string words = kernel + "_marks";
  return "extern \"C\" {\n__device__ unsigned " + words + "[persistent::maxBlocks * " +
         std::to_string((records - 3) / 2 + 1) + " * (int)shares::Mark::count];\n__device__ char " +
         kernel +
         "_markNames[] = GPT2C_SHARES_MARK_NAMES;\n}\n"
         "template <> struct gpt2c::shares::MarkWords<persistent::SharesOf<" +
         kernel + "Step>> {\n  static __device__ unsigned *words() { return " + words + "; }\n};\n";
}

void PersistentBuilder::emitSharesKernel(const shares::Division &division,
                                         const LinearStageConfig &qkv,
                                         const LinearStageConfig &hidden,
                                         const LinearStageConfig &logits) {
  threads_ = shares::threads;
  shared_ = sharedBytes();
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  const bool several = rows_ > 1;
  k.headers = {several ? "templates/decode_step/shares/rows.cuh"
                       : "templates/decode_step/shares/shares.cuh"};
  if (type_ == DType::BF16)
    k.headers.push_back("templates/device/elements_bf16.cuh");
  if (division.weights.isPacked() || division.last.isPacked())
    k.headers.push_back("templates/device/packed.cuh");
  k.params = {"records", "count"};
  const bool plain = !division.gated && !division.grouped();
  const SharesConfig config = {.T = elementOf(type_),
                               .W = qkv.W,
                               .WeightGroup = division.weights.group,
                               .Last = logits.W,
                               .LastGroup = division.last.group,
                               .Packed = division.weights.isPacked(),
                               .PackedLast = division.last.isPacked(),
                               .Embedding =
                                   elementOf(embed_->operand(ops::Embed::Tokens)->type.dtype),
                               .Groups = groups(),
                               .Position = embed_->operand(ops::Embed::Positions) != nullptr,
                               .D = division.width,
                               .Heads = division.heads,
                               .HeadDim = division.headDim,
                               .Hidden = division.hidden,
                               .Vocab = division.vocabulary,
                               .KeyHeads = division.keyHeads,
                               .Rotary = division.rotary,
                               .Neighbours = rope_ && rope_->boolAttr("interleaved"),
                               .HeadNorm = rope_ && rope_->operand(ops::Rope::Scale),
                               .Gated = division.gated,
                               .HeadsEach = division.headsEach,
                               .KeysEach = division.keysEach,
                               .Rows = division.rows,
                               .RowParts = division.rowParts,
                               .BusyShare = division.busyShare,
                               .Ranks = division.ranks,
                               .Clusters = division.clusters,
                               .LeastClusters = division.leastClusters,
                               .FirstChunks = division.firstChunks,
                               .ProjectionChunks = division.projectionChunks,
                               .OutputChunks = division.outputChunks,
                               .LastChunks = division.lastChunks,
                               .SlotBytes = division.slotBytes,
                               .Slots = division.slots,
                               .Records = int(records_.size()),
                               .Norm = qkv.Norm,
                               .Gain = qkv.Gain,
                               .Bias = plain || hasBias(),
                               .FinalNorm = logits.Norm,
                               .FinalGain = logits.Gain,
                               .FinalBias = plain || logits.Bias,
                               .Function = hidden.Function,
                               .PageColumns = int(problem_.pageColumns),
                               .Members = division.members,
                               .Tokens = int(shape_->tokens),
                               .Marks = stepMarks};
  k.text = define(k.name + "Step", config);
  if (stepMarks)
    k.text += marksOf(k.name, config.Records);
  if (division.members > 1)
    k.text +=
        "static_assert(sizeof(tile::Exchange) == " + std::to_string(sizeof(rt::ExchangeRecord)) +
        ");\n";
  llvm::raw_string_ostream os(k.text);
  const std::string step = "persistent::SharesOf<" + k.name + "Step>";
  os << "static_assert(sizeof(shares::SharedOf<" << step << ">) <= " << shared_
     << " && shares::threads == " << threads_ << ");\n"
     << "extern \"C\" __global__ void\n#if __CUDA_ARCH__ >= 900\n__cluster_dims__("
     << division.ranks << ", 1, 1)\n#endif\n__launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  shares::" << (several ? "runRows" : "run") << "<" << step
     << ">(dynamicShared, records, count);\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
