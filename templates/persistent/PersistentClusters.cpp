// Stages of a step as halves of layers for thread block clusters:
// templates/persistent/persistent_clusters.cuh.
#include "templates/persistent/PersistentBuilder.h"
#include "templates/persistent/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

using namespace persistent;

namespace {
/// Words of stages, as in templates/persistent/persistent_tokens.cuh, persistent_linear.cuh and
/// persistent_attention.cuh.
enum EmbedWord { EmbedTokens = 6, EmbedPositions, EmbedPositionCount, EmbedY, EmbedScales };
enum LinearWord {
  LinearWeights = 2,
  LinearX = 6,
  LinearY,
  LinearMaxima,
  LinearGain,
  LinearEpsilon,
  LinearSums,
  LinearBias,
  LinearScales,
  LinearResidual
};
enum AttentionWord {
  AttentionQkv = 6,
  AttentionKv,
  AttentionOut,
  AttentionMaxima,
  AttentionLayer,
  AttentionBatchMax,
  AttentionContext,
  AttentionScale
};
/// Stages of a layer: the products, and attention behind the first of them.
enum { Qkv, Attention, Projection, Hidden, Output, LayerStages };
} // namespace

/// Replaces the stages by two for each layer, where the plan is for sm_90a alone and the step is
/// one that clusters can run: heads of 64, one cluster each, an MLP four times as wide as the rest,
/// every weight in one type.
bool PersistentBuilder::formClusters() {
  auto &steps = out_.steps;
  const size_t layers = (steps.size() - 2) / LayerStages;
  if (!b_.pool().target.hopper() || (rows_ > clusterBlocks && rows_ != 2 * clusterBlocks) ||
      steps.size() != 2 + layers * LayerStages ||
      linears_.size() != 1 + layers * (LayerStages - 1) || linears_[0].step != 1)
    return false;
  auto form = [&](size_t layer, int stage) -> const PersistentLinear & {
    return linears_[layer * (LayerStages - 1) + stage - (stage > Attention)].form;
  };
  auto args = [&](size_t layer, int stage) -> auto & {
    return steps[1 + layer * LayerStages + stage]->args;
  };
  const PersistentLinear &qkv = form(0, Qkv), &hidden = form(0, Hidden),
                         &logits = linears_.back().form;
  const int64_t width = logits.k;
  const int64_t context = attention_->operand(0)->type.shape[4].constant().value_or(0);
  const int64_t slots = clusterSlots();
  if (!logits.logits || headDim_ != clusterHeadDim || heads_ * headDim_ != width || heads_ < 12 ||
      heads_ > mostClusters || width % 256 != 0 || context > clusterKeys * clusterBlocks * heads_ ||
      context == 0 ||
      // A step's weights are more than the ring holds, so a key is read long after it was written.
      vocabulary_ < unitRows * heads_ * clusterBlocks * slots || logits.norm == "None" ||
      logits.activation != "none" || !hasFunction(hidden.activation))
    return false;

  // The values between the stages are those of one chain.
  auto index = [](const plan::ArgT &a) { return a.kind == plan::ArgKind::Scratch ? a.index : -1; };
  auto same = [&](const PersistentLinear &a, const PersistentLinear &b) {
    return a.weights == b.weights && a.norm == b.norm && a.activation == b.activation;
  };
  int x = index(*steps[0]->args[EmbedY]);
  for (size_t l = 0; l < layers; ++l) {
    const auto &q = args(l, Qkv), &a = args(l, Attention), &p = args(l, Projection),
               &h = args(l, Hidden), &o = args(l, Output);
    for (int stage : {Qkv, Projection, Hidden, Output}) {
      const PersistentLinear &f = form(l, stage);
      const bool first = stage == Qkv || stage == Hidden;
      if (f.weights != logits.weights || f.gain != (first && qkv.gain) || f.logits ||
          (f.norm != "None") != first || f.residual == first ||
          f.parts != (stage == Projection && splits_ > 1) ||
          f.k != (stage == Output ? 4 * width : width) ||
          (stage != Hidden && f.activation != "none"))
        return false;
    }
    if (!same(form(l, Qkv), qkv) || !same(form(l, Hidden), hidden) || qkv.norm != hidden.norm ||
        linears_[l * (LayerStages - 1) + 2].units * unitRows != 4 * width || x < 0 ||
        index(*q[LinearX]) != x || index(*a[AttentionQkv]) != index(*q[LinearY]) ||
        index(*p[LinearX]) != index(*a[AttentionOut]) || index(*p[LinearResidual]) != x ||
        index(*h[LinearX]) != index(*p[LinearY]) || index(*o[LinearX]) != index(*h[LinearY]) ||
        index(*o[LinearResidual]) != index(*p[LinearY]))
      return false;
    x = index(*o[LinearY]);
  }
  if (index(*steps.back()->args[LinearX]) != x)
    return false;

  auto old = std::move(steps);
  auto costs = std::move(costs_);
  steps.clear();
  costs_.clear();
  channelBytes_ = 0;
  copies_ = 1;
  clusters_ = heads_;
  // Each block has as many groups of the vocabulary as its ring holds.
  if (rows_ == 1)
    spareClusters_ =
        std::min(mostClusters, vocabulary_ / (unitRows * clusterBlocks * slots)) - heads_;
  const plan::ArgT none = StepBuilder::null();
  /// Addends of n columns, if only zeros.
  auto addends = [&](const plan::ArgT &bias, int64_t n) {
    return bias.kind == plan::ArgKind::Weight
               ? bias
               : weight(Tensor::of<float>(std::vector<float>(n), {n}));
  };
  // One stage of those from `first` on.
  auto merge = [&](size_t first, size_t count, std::vector<plan::ArgT> words) {
    std::vector<llvm::StringRef> what, nodes;
    Dim bytes(0), flops(0);
    for (size_t i = first; i < first + count; ++i) {
      what.push_back(old[i]->op);
      for (const std::string &node : old[i]->nodes)
        nodes.push_back(node);
      bytes = bytes + costs[i].first;
      flops = flops + costs[i].second;
    }
    addRecord(llvm::join(what, "+"), heads_ * clusterBlocks, std::move(words), nodes, bytes, flops);
    for (size_t i = first; i < first + count; ++i)
      if (old[i]->past_bytes) {
        steps.back()->past_bytes = std::move(old[i]->past_bytes);
        steps.back()->past_flops = std::move(old[i]->past_flops);
      }
  };
  auto half = [&](const PersistentLinear &form, const auto &first, const auto &second, int64_t n) {
    plan::ArgT partials = none;
    partials.kind = plan::ArgKind::Scratch;
    partials.index =
        int(newChannel(heads_ * width * (rows_ == 1 ? 4 : clusterRows() * byteSize(DType::F16))));
    return std::vector<plan::ArgT>{StepBuilder::f32(form.normScale),
                                   *first[LinearWeights],
                                   *first[LinearSums],
                                   addends(*first[LinearBias], n),
                                   *first[LinearScales],
                                   *first[LinearGain],
                                   *first[LinearEpsilon],
                                   *second[LinearWeights],
                                   addends(*second[LinearBias], width),
                                   *second[LinearScales],
                                   partials};
  };
  const auto &e = old[0]->args;
  merge(0, 1,
        {none, *e[EmbedTokens], none, none, *e[EmbedScales], none, none, *e[EmbedPositions], none,
         none, none, none, none, none, *e[EmbedPositionCount]});
  for (size_t l = 0; l < layers; ++l) {
    const size_t at = 1 + l * LayerStages;
    auto words = half(form(l, Qkv), old[at + Qkv]->args, old[at + Projection]->args, 3 * width);
    for (int word :
         {AttentionKv, AttentionLayer, AttentionBatchMax, AttentionContext, AttentionScale})
      words.push_back(*old[at + Attention]->args[word]);
    merge(at, 3, std::move(words));
    merge(at + Hidden, 2,
          half(form(l, Hidden), old[at + Hidden]->args, old[at + Output]->args, 4 * width));
  }
  const auto &v = old.back()->args;
  merge(old.size() - 1, 1,
        {StepBuilder::f32(logits.normScale), *v[LinearWeights], *v[LinearSums],
         addends(*v[LinearBias], vocabulary_), *v[LinearScales], *v[LinearGain], *v[LinearEpsilon],
         *v[LinearY]});
  addStep();
  emitClusterKernel(qkv, hidden, logits);
  return true;
}

/// Rows of x: of several sequences always as many as a cluster has blocks, or a multiple of it.
int64_t PersistentBuilder::clusterRows() const {
  return rows_ == 1 ? 1 : std::max(rows_, clusterBlocks);
}
/// Slots of 8 rows of weights that fill shared memory beside what it has of several sequences: as
/// many as keys and values of one tile for each warp take, or a multiple.
int64_t PersistentBuilder::clusterSlots() const {
  const int64_t slot = unitRows * linears_.back().form.k * byteSize(linears_.back().form.weights),
                round = 2 * heads_ * clusterKeys * headDim_ * byteSize(type_),
                groups = (clusterRows() + clusterBlocks - 1) / clusterBlocks,
                others = std::max<int64_t>(28, 4 + 15 * groups) * 1024;
  return (sharedBytes - others) / round * round / slot;
}

void PersistentBuilder::emitClusterKernel(const PersistentLinear &qkv,
                                          const PersistentLinear &hidden,
                                          const PersistentLinear &logits) {
  // Four more warps than those of the heads: see Layout.
  threads_ = 32 * (heads_ + 4);
  shared_ = sharedBytes;
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  const bool several = rows_ > 1;
  k.headers = {several ? "templates/persistent/persistent_cluster_batch.cuh"
                       : "templates/persistent/persistent_clusters.cuh",
               "templates/linear/parts/epilogue.cuh"};
  k.params = {"records", "count"};
  const Value *table = embed_->operand(1), *scales = embed_->operand(5);
  {
    Config config(k.text, k.name + "Step");
    config.type("T", cudaType(type_))
        .type("W", cudaType(logits.weights))
        .type("Embedding", cudaType(table->type.dtype))
        .number("Groups", scales ? scales->type.shape.back().constant().value_or(0) : 0)
        .flag("Position", embed_->operand(2))
        .number("D", logits.k)
        .number("Heads", heads_)
        .number("Vocab", vocabulary_)
        .number("Slots", clusterSlots())
        .number("Records", out_.steps.size())
        .norm("Norm", qkv.norm)
        .flag("Gain", qkv.gain)
        .norm("FinalNorm", logits.norm)
        .flag("FinalGain", logits.gain)
        .activation(hidden.activation);
    if (several)
      config.number("Sequences", rows_);
  }
  llvm::raw_string_ostream os(k.text);
  os << "static_assert(sizeof(clusters::Shared<" << k.name << "Step>) <= " << shared_
     << " && clusters::Layout<" << k.name << "Step>::threads == " << threads_
     << " && clusters::ranks == " << clusterBlocks << ");\n"
     << "extern \"C\" __global__ void\n#if __CUDA_ARCH__ >= 900\n__cluster_dims__(" << clusterBlocks
     << ", 1, 1)\n#endif\n__launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  clusters::" << (several ? "runRows" : "run") << "<" << k.name
     << "Step>(dynamicShared, records, count);\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
