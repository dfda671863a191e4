// Stages of a step as halves of layers for thread block clusters:
// templates/decode_step/clusters/clusters.cuh and shares/shares.cuh.
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

using namespace persistent;

/// Stages of a layer: the products, and attention behind the first of them.
enum LayerStage { Qkv, Attention, Projection, Hidden, Output, LayerStages };

size_t PersistentBuilder::layers() const { return (records_.size() - 2) / LayerStages; }
/// The form of a product of a layer.
const LinearStageConfig &PersistentBuilder::formOf(size_t layer, int stage) const {
  return linears_[layer * (LayerStages - 1) + stage - (stage > Attention)].form;
}
template <template <typename> class R>
const R<HostWords> *PersistentBuilder::recordOf(size_t layer, int stage) const {
  return std::get_if<R<HostWords>>(&records_[1 + layer * LayerStages + stage]);
}

int64_t PersistentBuilder::hiddenWidth() const { return formOf(0, Output).K; }
int64_t PersistentBuilder::context() const {
  return attention_->operand(ops::AppendAttention::Kv)->type.shape[4].constant().value_or(0);
}

/// Whether the stages are those of layers, in a plan whose kernels may form clusters.
bool PersistentBuilder::haveLayers() {
  return target_.has(stepClusters) && records_.size() == 2 + layers() * LayerStages &&
         linears_.size() == 1 + layers() * (LayerStages - 1) && linears_[0].step == 1;
}

/// Whether the state is in no pages, or in those that clusters take.
bool PersistentBuilder::suitPages() const {
  if (!paged_)
    return true;
  const Type &kv = paged_->argument("kv")->type;
  return kv.dtype == type_ && kv.shape[4] == Dim(clusterPageTokens) && pageColumns() > 0;
}
/// Of the table of a state in pages; 0: there is none, or it is symbolic.
int64_t PersistentBuilder::pageColumns() const {
  return paged_ ? paged_->argument("tables")->type.shape[1].constant().value_or(0) : 0;
}

/// Whether the step has the sizes that clusters of a head can run: heads of 64, one cluster each,
/// an MLP four times as wide as the rest, every weight in one type.
bool PersistentBuilder::suitClusters() {
  if (!needsShares_.empty() || !haveLayers() || !suitPages() ||
      (rows_ > clusterBlocks && rows_ != 2 * clusterBlocks))
    return false;
  const LinearStageConfig &logits = linears_.back().form;
  const int64_t width = logits.K;
  return logits.Logits && headDim_ == clusterHeadDim && heads_ * headDim_ == width &&
         hiddenWidth() == 4 * width && heads_ >= 12 && heads_ <= target_.clusters(clusterBlocks) &&
         width % 256 == 0 && context() <= clusterKeys * clusterBlocks * heads_ && context() != 0 &&
         // A step's weights are more than the ring holds, so a key is read long after it was
         // written.
         vocabulary_ >= unitRows * heads_ * clusterBlocks * clusterSlots() &&
         logits.Norm != NormKind::None && logits.Function == Activation::None;
}

/// Whether a linear of the layers adds a bias or the shift of a norm.
bool PersistentBuilder::hasBias() const {
  return llvm::any_of(linears_, [](const Product &l) { return !l.form.Logits && l.form.Bias; });
}

/// Whether the stages of the layers and the values between them are those of one chain.
bool PersistentBuilder::isChain() const {
  const LinearStageConfig &qkv = formOf(0, Qkv), &hidden = formOf(0, Hidden),
                          &logits = linears_.back().form;
  const int width = logits.K, hiddenColumns = int(hiddenWidth());
  auto at = [&](HostWords::Channel c) {
    return words_[c].kind == plan::ArgKind::Scratch ? words_[c].index : -1;
  };
  auto same = [&](const LinearStageConfig &a, const LinearStageConfig &b) {
    return a.W == b.W && a.Norm == b.Norm && a.Function == b.Function;
  };
  const auto *embed = std::get_if<EmbedRecord<HostWords>>(&records_.front());
  const auto *last = std::get_if<LogitsRecord<HostWords>>(&records_.back());
  if (!embed || !last)
    return false;
  int x = at(embed->y);
  for (size_t l = 0; l < layers(); ++l) {
    for (int stage : {Qkv, Projection, Hidden, Output}) {
      const LinearStageConfig &f = formOf(l, stage);
      const bool first = stage == Qkv || stage == Hidden;
      if (f.W != logits.W || f.Gain != (first && qkv.Gain) || f.Logits ||
          (f.Norm != NormKind::None) != first || f.Residual == first ||
          f.Splits != (stage == Projection ? splits_ : 1) ||
          f.K != (stage == Output ? hiddenColumns : width) ||
          (stage != Hidden && f.Function != Activation::None))
        return false;
    }
    const auto *q = recordOf<LinearRecord>(l, Qkv), *p = recordOf<LinearRecord>(l, Projection),
               *h = recordOf<LinearRecord>(l, Hidden), *o = recordOf<LinearRecord>(l, Output);
    const auto *a = recordOf<AttentionRecord>(l, Attention);
    const auto product = [&](int stage) {
      return linears_[l * (LayerStages - 1) + stage - (stage > Attention)];
    };
    const bool gated = product(Hidden).gated;
    if (!q || !a || !p || !h || !o || !same(formOf(l, Qkv), qkv) ||
        !same(formOf(l, Hidden), hidden) || qkv.Norm != hidden.Norm ||
        product(Qkv).units * unitRows != (heads_ + 2 * keyHeads_) * headDim_ ||
        product(Qkv).gated || product(Projection).gated || product(Output).gated ||
        gated != linears_[2].gated ||
        product(Hidden).units * unitRows != (gated ? 2 : 1) * hiddenColumns || x < 0 ||
        at(q->x) != x || at(a->qkv) != at(q->y) || at(p->x) != at(a->out) || at(p->residual) != x ||
        at(h->x) != at(p->y) || at(o->x) != at(h->y) || at(o->residual) != at(p->y))
      return false;
    x = at(o->y);
  }
  return at(last->x) == x;
}

/// Replaces the stages by two for each layer, where the plan is for sm_90a alone and the step is
/// one that clusters can run.
bool PersistentBuilder::formClusters() {
  const bool ofHeads = suitClusters();
  std::optional<shares::Division> division;
  if (!ofHeads)
    division = chooseDivision();
  if (!ofHeads && !division)
    return false;
  if (!isChain()) {
    noShares_ = "its stages are no chain of layers";
    return false;
  }
  const LinearStageConfig qkv = formOf(0, Qkv), hidden = formOf(0, Hidden),
                          logits = linears_.back().form;
  const int64_t width = logits.K, hiddenColumns = hiddenWidth();
  const size_t count = layers();
  const bool gated = linears_[2].gated, zeros = !division || !(gated || division->grouped());
  const int64_t busy = division ? division->busy() : heads_;
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
                              vocabulary_ / (unitRows * clusterBlocks * clusterSlots())) -
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
    return words_[bias].kind == plan::ArgKind::Weight || !wanted
               ? bias
               : words_.address(weight(Tensor::of<float>(std::vector<float>(n), {n})));
  };
  const bool ofLayers = zeros || hasBias();
  auto product = [&](const LinearStageConfig &form, HostWords::Pointer weights,
                     const LinearTerms<HostWords> &terms, int64_t n) {
    return FirstProduct<HostWords>{.normScale = words_.real(StepBuilder::f32(form.NormScale)),
                                   .weights = weights,
                                   .sums = terms.sums,
                                   .bias = addends(terms.bias, n, form.Logits ? zeros : ofLayers),
                                   .scales = terms.scales,
                                   .gain = terms.gain,
                                   .epsilon = terms.epsilon};
  };
  /// `n`: rows of the first product; `sources`: clusters that the second one has sums of.
  auto half = [&](size_t firstStep, const LinearStageConfig &form, size_t secondStep, int64_t n,
                  int64_t sources) {
    const auto &first = std::get<LinearRecord<HostWords>>(old[firstStep]),
               &second = std::get<LinearRecord<HostWords>>(old[secondStep]);
    const int64_t sum = rows_ == 1 ? 4 : clusterRows() * byteSize(DType::F16);
    // Of several sequences slices are whole tiles.
    const int64_t columns =
        division && rows_ > 1 ? clusterSize_ * ((division->slice() + 15) / 16 * 16) : width;
    return HalfRecord<HostWords>{.first = product(form, first.stage.weights, first.terms, n),
                                 .weights = second.stage.weights,
                                 .bias = addends(second.terms.bias, width, ofLayers),
                                 .scales = second.terms.scales,
                                 .partials = words_.channel(newChannel(sources * columns * sum))};
  };
  plan::ArgT cosines, sines;
  cosines.kind = sines.kind = plan::ArgKind::Null;
  Dim angles(0);
  if (rope_) {
    Value *cos = rope_->operand(ops::Rope::Cos), *sin = rope_->operand(ops::Rope::Sin);
    cosines = weight(cos->def()->constant);
    sines = weight(sin->def()->constant);
    angles = cos->type.shape[0];
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
                                      .angleCount = integer(angles),
                                      .positionCount = embed.positionCount});
  for (size_t l = 0; l < count; ++l) {
    const size_t at = 1 + l * LayerStages;
    const LinearStageConfig &first = linears_[l * (LayerStages - 1)].form,
                            &mlp = linears_[l * (LayerStages - 1) + 2].form;
    const auto &attention = std::get<AttentionRecord<HostWords>>(old[at + Attention]);
    merge(at, 3,
          HeadRecord<HostWords>{
              .half = half(at, first, at + Projection, (heads_ + 2 * keyHeads_) * headDim_, busy),
              .kv = attention.kv,
              .layer = attention.layer,
              .batchMax = attention.batchMax,
              .context = attention.context,
              .scale = attention.scale});
    merge(at + Hidden, 2,
          half(at + Hidden, mlp, at + Output, (gated ? 2 : 1) * hiddenColumns,
               division ? division->clusters : heads_));
  }
  const auto &last = std::get<LogitsRecord<HostWords>>(old.back());
  merge(old.size() - 1, 1,
        VocabularyRecord<HostWords>{
            .first = product(logits, last.stage.weights, last.terms, vocabulary_),
            .logits = last.logits,
            .choices = words_.address(b_.choices())});
  addStep();
  if (division)
    emitSharesKernel(*division, qkv, hidden, logits);
  else
    emitClusterKernel(qkv, hidden, logits);
  return true;
}

/// Rows of x: of several sequences always as many as a cluster has blocks, or a multiple of it.
int64_t PersistentBuilder::clusterRows() const {
  return rows_ == 1 ? 1 : std::max<int64_t>(rows_, clusterBlocks);
}
/// Slots of 8 rows of weights that fill shared memory beside what it has of several sequences: as
/// many as keys and values of one tile for each warp take, or a multiple.
int64_t PersistentBuilder::clusterSlots() const {
  const int64_t slot = unitRows * linears_.back().form.K * byteSize(linears_.back().form.W),
                round = 2 * heads_ * clusterKeys * headDim_ * byteSize(type_),
                groups = (clusterRows() + clusterBlocks - 1) / clusterBlocks,
                others = std::max<int64_t>(28, 4 + 15 * groups) * 1024;
  return (sharedBytes() - others) / round * round / slot;
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
      .Slots = int(clusterSlots()),
      .Records = int(records_.size()),
      .Norm = qkv.Norm,
      .Gain = qkv.Gain,
      .FinalNorm = logits.Norm,
      .FinalGain = logits.Gain,
      .Function = hidden.Function,
      .Sequences = int(rows_),
      .PageColumns = int(pageColumns()),
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
