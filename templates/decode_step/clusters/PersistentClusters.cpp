// Stages of a step as halves of layers for thread block clusters:
// templates/decode_step/clusters/clusters.cuh and shares/shares.cuh.
#include "templates/decode_step/common/DecodeKernels.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

using namespace persistent;

/// Stages of a layer: the products, and attention behind the first of them.
enum LayerStage { Qkv, Attention, Projection, Hidden, Output, LayerStages };

/// The form of a product of a layer.
const LinearStageConfig &PersistentBuilder::formOf(size_t layer, int stage) const {
  return linears_[layer * (LayerStages - 1) + stage - (stage > Attention)].form;
}
/// Whether a linear of the layers adds a bias or the shift of a norm.
bool PersistentBuilder::hasBias() const {
  return llvm::any_of(linears_, [](const Product &l) { return !l.form.Logits && l.form.Bias; });
}

/// What queries and keys of each layer of the state are normed with.
Tensor PersistentBuilder::gainsOfHeads() {
  int64_t layers = 0;
  for (const DecoderLayer &l : shape_->layers)
    layers = std::max(layers, l.attention->intAttr("layer") + 1);
  const int64_t each = (heads_ + keyHeads_) * headDim_;
  std::vector<float> all(layers * each);
  return ofRanks([&](PartOf part) {
    for (const DecoderLayer &l : shape_->layers) {
      const Tensor gains = part(l.rope->operand(ops::Rope::Scale)->def()->constant);
      std::copy_n(gains.data<float>(), each, all.begin() + l.attention->intAttr("layer") * each);
    }
    return Tensor::of<float>(all, {layers, heads_ + keyHeads_, headDim_});
  });
}

llvm::Error PersistentBuilder::emitClusters(const std::optional<shares::Division> &division) {
  const LinearStageConfig qkv = formOf(0, Qkv), hidden = formOf(0, Hidden),
                          logits = linears_.back().form;
  const int64_t width = logits.K, hiddenColumns = shape_->hidden;
  const size_t count = shape_->layers.size();
  const bool gated = shape_->gated, zeros = !division || !(gated || division->grouped());
  const int64_t headGroups = division ? division->headGroups() : heads_;
  const auto old = std::exchange(records_, {});
  auto steps = std::exchange(out_.steps, {});
  const auto costs = std::exchange(costs_, {});
  channelBytes_ = 0;
  copies_ = 1;
  clusters_ = division ? division->leastClusters : heads_;
  clusterSize_ = division ? division->ranks : clusterBlocks;
  // Each block has as many groups of the vocabulary as its ring holds.
  if (division)
    spareClusters_ = division->clusters - clusters_;
  else if (rows_ == 1)
    spareClusters_ = std::min(target_.clusters(clusterBlocks),
                              vocabulary_ / (unitRows * clusterBlocks * clusterSlots(problem_))) -
                     heads_;
  // One stage of those from `first` on.
  auto merge = [&](size_t first, size_t count, const StageRecord &record) {
    std::vector<llvm::StringRef> what, nodes;
    Dim bytes(0), flops(0);
    for (size_t i = first; i < first + count; ++i) {
      what.push_back(steps[i]->op);
      for (const std::string &node : steps[i]->nodes)
        nodes.push_back(node);
      bytes = bytes + costs[i].first;
      flops = flops + costs[i].second;
    }
    addStage(llvm::join(what, "+"), clusters_ * clusterSize_, record, nodes, bytes, flops);
    for (size_t i = first; i < first + count; ++i)
      if (steps[i]->past_bytes) {
        out_.steps.back()->past_bytes = std::move(steps[i]->past_bytes);
        out_.steps.back()->past_flops = std::move(steps[i]->past_flops);
      }
  };
  /// Addends of n columns, if only zeros where others have some.
  auto addends = [&](HostWords::Pointer bias, int64_t n, bool wanted) {
    return words_[bias].kind != plan::ArgKind::Null || !wanted
               ? bias
               : words_.address(weight(Tensor::of<float>(std::vector<float>(n), {n})));
  };
  const bool ofLayers = zeros || hasBias();
  /// The weights of a step's product as the kernel reads them, with the words of packed ones.
  auto weightsOf = [&](size_t step, HostWords::Pointer weights, HostWords::Pointer scales) {
    const Product &l = *llvm::find_if(linears_, [&](const Product &p) { return p.step == step; });
    const bool isPacked =
        division && (l.form.Logits ? division->last : division->weights).isPacked();
    return isPacked ? *l.packed : Product::Packed{weights, scales};
  };
  auto product = [&](size_t step, const LinearStageConfig &form, HostWords::Pointer stored,
                     const LinearTerms<HostWords> &terms, int64_t n) {
    const auto [weights, scales] = weightsOf(step, stored, terms.scales);
    return FirstProduct<HostWords>{.normScale = words_.real(StepBuilder::f32(form.NormScale)),
                                   .weights = weights,
                                   .sums = terms.sums,
                                   .bias = addends(terms.bias, n, form.Logits ? zeros : ofLayers),
                                   .scales = scales,
                                   .gain = terms.gain,
                                   .epsilon = terms.epsilon};
  };
  /// Partial sums of a half of the layers: each layer's own or, among members, one that they take
  /// in turn.
  auto partials = [&](int64_t bytes, std::optional<int64_t> &shared) {
    if (members_ == 1)
      return newChannel(bytes);
    shared = shared ? *shared : newChannel(members_ * bytes);
    return *shared;
  };
  /// `n`: rows of the first product; `sources`: clusters that the second one has sums of.
  auto half = [&](size_t firstStep, const LinearStageConfig &form, size_t secondStep, int64_t n,
                  int64_t sources, std::optional<int64_t> &shared) {
    const auto &first = std::get<LinearRecord<HostWords>>(old[firstStep]),
               &second = std::get<LinearRecord<HostWords>>(old[secondStep]);
    const int64_t sum =
        rows_ == 1 ? 4 : (division ? division->rows : clusterRows(rows_)) * byteSize(DType::F16);
    // Of several sequences slices are whole tiles.
    const int64_t columns =
        division && rows_ > 1 ? clusterSize_ * ((division->slice() + 15) / 16 * 16) : width;
    const auto [weights, scales] = weightsOf(secondStep, second.stage.weights, second.terms.scales);
    return HalfRecord<HostWords>{
        .first = product(firstStep, form, first.stage.weights, first.terms, n),
        .weights = weights,
        .bias = addends(second.terms.bias, width, ofLayers),
        .scales = scales,
        .partials = words_.channel(partials(sources * columns * sum, shared))};
  };
  plan::ArgT cosines, sines, gains;
  cosines.kind = sines.kind = gains.kind = plan::ArgKind::Null;
  Dim angles(0);
  double gainEpsilon = 0;
  if (rope_) {
    Value *cos = rope_->operand(ops::Rope::Cos), *sin = rope_->operand(ops::Rope::Sin);
    cosines = weight(cos->def()->constant);
    sines = weight(sin->def()->constant);
    angles = cos->type.shape[0];
    gainEpsilon = rope_->floatAttr("epsilon");
    if (rope_->operand(ops::Rope::Scale))
      gains = weight(gainsOfHeads());
  }
  const auto &embed = std::get<EmbedRecord<HostWords>>(old.front());
  merge(0, 1,
        ClusterEmbedRecord<HostWords>{.unused0 = {},
                                      .tokens = embed.tokens,
                                      .unused2 = {},
                                      .scales = embed.scales,
                                      .unused5 = {},
                                      .positions = embed.positions,
                                      .cosines = words_.address(std::move(cosines)),
                                      .sines = words_.address(std::move(sines)),
                                      .unused10 = {},
                                      .gains = words_.address(std::move(gains)),
                                      .gainEpsilon = words_.real(StepBuilder::f32(gainEpsilon)),
                                      .angleCount = integer(angles),
                                      .positionCount = embed.positionCount});
  std::optional<int64_t> ofHeads, ofHidden;
  for (size_t l = 0; l < count; ++l) {
    const size_t at = 1 + l * LayerStages;
    const LinearStageConfig &first = linears_[l * (LayerStages - 1)].form,
                            &mlp = linears_[l * (LayerStages - 1) + 2].form;
    const auto &attention = std::get<AttentionRecord<HostWords>>(old[at + Attention]);
    merge(at, 3,
          HeadRecord<HostWords>{.half =
                                    half(at, first, at + Projection,
                                         (heads_ + 2 * keyHeads_) * headDim_, headGroups, ofHeads),
                                .kv = attention.kv,
                                .layer = attention.layer,
                                .batchMax = attention.batchMax,
                                .context = attention.context,
                                .scale = attention.scale});
    merge(at + Hidden, 2,
          half(at + Hidden, mlp, at + Output, (gated ? 2 : 1) * hiddenColumns,
               division ? division->clusters : heads_, ofHidden));
  }
  const auto &last = std::get<LogitsRecord<HostWords>>(old.back());
  merge(old.size() - 1, 1,
        VocabularyRecord<HostWords>{
            .first = product(old.size() - 1, logits, last.stage.weights, last.terms, vocabulary_),
            .logits = last.logits,
            // Shares choose greedily: behind them @sample draws.
            .choices = words_.address(division ? StepBuilder::null() : b_.choices()),
            .exchange =
                words_.address(members_ > 1 ? StepBuilder::exchange() : StepBuilder::null())});
  addStep();
  if (division)
    emitSharesKernel(*division, qkv, hidden, logits);
  else
    emitClusterKernel(qkv, hidden, logits);
  return llvm::Error::success();
}

void PersistentBuilder::emitClusterKernel(const LinearStageConfig &qkv,
                                          const LinearStageConfig &hidden,
                                          const LinearStageConfig &logits) {
  threads_ = 32 * (heads_ + clusterHelpers + clusterLoaders);
  shared_ = sharedBytes();
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  const bool several = rows_ > 1;
  k.headers = {several ? "templates/decode_step/clusters/batch.cuh"
                       : "templates/decode_step/clusters/clusters.cuh"};
  k.params = {"records", "count"};
  const ClustersConfig config = {
      .T = elementOf(type_),
      .W = logits.W,
      .Embedding = elementOf(embed_->operand(ops::Embed::Tokens)->type.dtype),
      .Groups = groups(),
      .Position = embed_->operand(ops::Embed::Positions) != nullptr,
      .D = logits.K,
      .Heads = int(heads_),
      .Vocab = int(vocabulary_),
      .Slots = int(clusterSlots(problem_)),
      .Records = int(records_.size()),
      .Norm = qkv.Norm,
      .Gain = qkv.Gain,
      .FinalNorm = logits.Norm,
      .FinalGain = logits.Gain,
      .Function = hidden.Function,
      .Sequences = int(rows_),
      .PageColumns = int(problem_.pageColumns),
  };
  k.text = define(k.name + "Step", config);
  llvm::raw_string_ostream os(k.text);
  const std::string step = "persistent::ClustersOf<" + k.name + "Step>";
  os << "static_assert(sizeof(clusters::Shared<" << step << ">) <= " << shared_
     << " && clusters::Layout<" << step << ">::threads == " << threads_ << ");\n"
     << "extern \"C\" __global__ void\n#if __CUDA_ARCH__ >= 900\n__cluster_dims__(" << clusterBlocks
     << ", 1, 1)\n#endif\n__launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  clusters::" << (several ? "runRows" : "run") << "<" << step
     << ">(dynamicShared, records, count);\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
