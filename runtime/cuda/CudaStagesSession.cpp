// Sequences of a session in pages: sequence b has the pages from b times those of one on.
#include "runtime/cuda/CudaStages.h"
#include "runtime/plan/KvLayout.h"

#include <algorithm>
#include <numeric>

namespace gpt2c::rt::cuda {

Status CudaStages::ensurePages(size_t sequences) {
  if (pagedState().pages < 1)
    if (Status s = allocatePages(0); !s.ok())
      return s;
  const PagedState state = pagedState();
  const auto ofSequence =
      size_t((plan_->meta().kv->max_context + state.pageTokens - 1) / state.pageTokens);
  if (sequences * ofSequence > size_t(state.pages))
    return {Code::OutOfMemory, std::to_string(sequences) + " sequences take " +
                                   std::to_string(sequences * ofSequence) +
                                   " pages of the KV state, and there are " +
                                   std::to_string(state.pages)};
  tables_.resize(sequences * ofSequence);
  std::iota(tables_.begin(), tables_.end(), 0);
  return {};
}

std::span<const int32_t> CudaStages::pagesOf(size_t sequence) const {
  const size_t ofSequence = tables_.size() / past_.size();
  return std::span(tables_).subspan(sequence * ofSequence, ofSequence);
}

/// Segments of any number of rows, in calls that the plan takes.
Result<RowsOutput> CudaStages::extendAll(std::span<const Segment> segments) {
  const std::vector<MicroBatch> parts = microBatches(segments, pagedState().maxRows);
  RowsOutput out;
  out.next.resize(segments.size());
  for (size_t i = 0; i <= parts.size(); ++i) {
    if (i < parts.size())
      if (Status s = extend(parts[i].segments); !s.ok())
        return s;
    if (i == 0)
      continue;
    Result<RowsOutput> given = extended();
    if (!given)
      return given.status();
    addGroup(parts[i - 1], given.take(), out);
  }
  return out;
}

Result<StepOutput> CudaStages::prefill(std::span<const Tokens> sequences,
                                       std::span<const int32_t> past, bool wantLogits) {
  past_.assign(past.begin(), past.end());
  if (Status s = ensurePages(sequences.size()); !s.ok())
    return s;
  std::vector<Segment> segments(sequences.size());
  for (size_t b = 0; b < sequences.size(); ++b) {
    segments[b].tokens = sequences[b];
    segments[b].past = past[b];
    segments[b].pages = pagesOf(b);
    segments[b].wantLogits = wantLogits;
  }
  Result<RowsOutput> rows = extendAll(segments);
  if (!rows)
    return rows.status();
  for (size_t b = 0; b < sequences.size(); ++b)
    past_[b] += int32_t(sequences[b].size());
  next_ = rows->next;
  return StepOutput{std::move(rows->next), std::move(rows->logits)};
}

Result<StepOutput> CudaStages::step(std::span<const int32_t> tokens, bool wantLogits) {
  std::vector<Segment> segments(tokens.size());
  for (size_t b = 0; b < tokens.size(); ++b) {
    segments[b].tokens = tokens.subspan(b, 1);
    segments[b].past = past_[b];
    segments[b].pages = pagesOf(b);
    segments[b].wantLogits = wantLogits;
  }
  Result<RowsOutput> rows = extendAll(segments);
  if (!rows)
    return rows.status();
  for (int32_t &p : past_)
    ++p;
  next_ = rows->next;
  return StepOutput{std::move(rows->next), std::move(rows->logits)};
}

/// Each step carries the choices of the one before, which the host need not have seen: the first
/// stage has the groups of the next step while the last one has the last groups of this.
Result<std::vector<Tokens>> CudaStages::decode(int steps) {
  std::vector<Tokens> out;
  const Tokens given = next_;
  for (int i = 0; i <= steps; ++i) {
    std::vector<Segment> segments(i < steps ? past_.size() : 0);
    for (size_t b = 0; b < segments.size(); ++b) {
      segments[b].tokens = std::span(given).subspan(b, 1);
      segments[b].past = past_[b]++;
      segments[b].pages = pagesOf(b);
      segments[b].carry = i ? int32_t(b) : -1;
    }
    if (i < steps)
      if (Status s = extend(segments); !s.ok())
        return s;
    if (i == 0)
      continue;
    Result<RowsOutput> rows = extended();
    if (!rows)
      return rows.status();
    out.push_back(std::move(rows->next));
  }
  if (!out.empty())
    next_ = out.back();
  return out;
}

//===-- the state ---------------------------------------------------------------------------===//

/// Calls f(device, address, offset, bytes) for what each page has of each head of each sequence:
/// where it is, and at which byte of a tensor [batch, heads, tokens, head_dim].
template <typename F>
Status CudaStages::forEachRun(int layer, plan::KvPart part, int64_t batch, int64_t tokens, F f) {
  if (teams_.front().size() > 1)
    return {Code::Unsupported, "the KV state of stages of several GPUs each is neither read nor "
                               "written: use stages of one, or ranks without stages"};
  const int32_t ofPage = pagedState().pageTokens;
  for (Team &team : teams_) {
    const StagePlan &stage = *team.front().backend->executor().stage();
    const int own = layer - stage.firstLayer();
    if (own < 0 || own >= stage.layers())
      continue;
    CudaBackend &backend = *team.front().backend;
    const plan::KvPlanT &kv = backend.state();
    const uint64_t element = dtypeBytes(kv.dtype), row = uint64_t(kv.head_dim) * element,
                   head = uint64_t(kvRowElements(kv)) * element * uint64_t(ofPage);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t first = 0; first < tokens; first += ofPage) {
        const auto page = uint64_t(pagesOf(size_t(b))[size_t(first / ofPage)]);
        const uint64_t block = (page * uint64_t(kv.layers) + uint64_t(own)) * 2 +
                               uint64_t(part == plan::KvPart::Value);
        const CUdeviceptr at = backend.pagesAt() + block * uint64_t(kv.heads) * head;
        const auto count = uint64_t(std::min<int64_t>(ofPage, tokens - first));
        for (int64_t h = 0; h < kv.heads; ++h)
          if (Status s = f(backend.device(), at + uint64_t(h) * head,
                           (uint64_t(b * kv.heads + h) * uint64_t(tokens) + uint64_t(first)) * row,
                           count * row);
              !s.ok())
            return s;
      }
  }
  return {};
}

Status CudaStages::writeKv(int layer, plan::KvPart part, const HostTensor &values) {
  past_.assign(size_t(values.shape[0]), 0);
  if (Status s = ensurePages(past_.size()); !s.ok())
    return s;
  return forEachRun(layer, part, values.shape[0], values.shape[2],
                    [&](CudaDevice &device, CUdeviceptr at, uint64_t offset, uint64_t bytes) {
                      return device.upload(at, values.data.data() + offset, bytes);
                    });
}

Result<HostTensor> CudaStages::readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) {
  const plan::KvPlanT &kv = first().state();
  HostTensor out(kv.dtype, {batch, kv.heads, tokens, kv.head_dim});
  Status s = forEachRun(layer, part, batch, tokens,
                        [&](CudaDevice &device, CUdeviceptr at, uint64_t offset, uint64_t bytes) {
                          return device.download(out.data.data() + offset, at, bytes);
                        });
  return s.ok() ? Result<HostTensor>(std::move(out)) : Result<HostTensor>(s);
}

} // namespace gpt2c::rt::cuda
