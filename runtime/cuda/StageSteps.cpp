#include "runtime/cuda/StageSteps.h"

#include "runtime/group/StageCuts.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"

#include <algorithm>
#include <string>

namespace gpt2c::rt::cuda {
namespace {

bool isLaunches(const plan::FunctionT &f) {
  return !f.steps.empty() && f.steps.front()->mode != plan::LaunchMode::Stage;
}

/// The layer whose state the step has to do with; -1: none.
int64_t layerOf(const plan::StepT &step) {
  for (const auto &arg : step.args)
    if (arg->kind == plan::ArgKind::I32 && arg->index == int(LayerArg::Layer))
      if (Result<int64_t> layer = evalExpr(*arg->expr, {}); layer)
        return *layer;
  return -1;
}

/// Bytes of the buffers that live on across a cut in front of step `place`.
uint64_t handedBytes(const plan::FunctionT &f, size_t place) {
  uint64_t bytes = 0;
  for (const auto &buffer : f.buffers)
    if (buffer->first_step < int(place) && buffer->last_step >= int(place))
      bytes += buffer->bytes;
  return bytes;
}

/// The first step of each layer, the first layer's 0; empty: these are not the state's layers.
std::vector<size_t> startsOf(const plan::FunctionT &f, int64_t layers) {
  std::vector<size_t> starts;
  size_t before = 0; // the last step of the state of the layer before
  for (size_t i = 0; i < f.steps.size(); ++i) {
    const int64_t layer = layerOf(*f.steps[i]);
    if (layer == int64_t(starts.size())) {
      size_t best = i;
      for (size_t place = i; place > before && layer > 0; --place)
        if (handedBytes(f, place) < handedBytes(f, best))
          best = place;
      starts.push_back(layer == 0 ? 0 : best);
    } else if (layer >= 0 && layer + 1 != int64_t(starts.size())) {
      return {};
    }
    if (layer >= 0)
      before = i;
  }
  if (int64_t(starts.size()) != layers)
    return {};
  return starts;
}

/// What the smallest call of the function moves, by layer, with what is behind the last one.
std::vector<int64_t> bytesOf(const plan::FunctionT &f, std::span<const size_t> starts) {
  std::vector<int64_t> symbols, bytes(starts.size());
  for (const auto &symbol : f.symbols)
    symbols.push_back(symbol->min);
  for (size_t l = 0; l < starts.size(); ++l)
    for (size_t i = starts[l]; i < (l + 1 < starts.size() ? starts[l + 1] : f.steps.size()); ++i)
      if (Result<int64_t> moved = evalExpr(*f.steps[i]->bytes, symbols); moved)
        bytes[l] += std::max<int64_t>(0, *moved);
  return bytes;
}

} // namespace

Result<StagePlan> StagePlan::create(const plan::PlanT &meta, Functions functions, int stage,
                                    int stages) {
  StagePlan out;
  out.stage_ = stage;
  out.stages_ = stages;
  const int64_t layers = meta.kv ? meta.kv->layers : 0;
  std::vector<int64_t> cuts; // how many layers are in front of each
  for (const auto &f : functions) {
    if (f->name == functions::sample) {
      out.steps_[f.get()] = {0, out.isLast() ? f->steps.size() : 0, {}};
      continue;
    }
    if ((f->name != functions::extend && f->name != functions::steps) || !isLaunches(*f))
      continue;
    const std::vector<size_t> starts = startsOf(*f, layers);
    if (starts.empty())
      return {Code::Unsupported,
              "the plan does not say which launches of @" + f->name +
                  " belong to which layer, as stages need it: compile it again with gpt2c"};
    if (layers < stages)
      return {Code::Incompatible, "the plan has " + std::to_string(layers) +
                                      " layers with a KV state, too few for " +
                                      std::to_string(stages) + " stages"};
    if (cuts.empty() && stages > 1)
      cuts = dealLayers(bytesOf(*f, starts), stages);
    StageSteps steps;
    steps.first = stage ? starts[size_t(cuts[size_t(stage) - 1])] : 0;
    steps.last = out.isLast() ? f->steps.size() : starts[size_t(cuts[size_t(stage)])];
    for (size_t b = 0; b < f->buffers.size() && stage > 0; ++b)
      if (f->buffers[b]->first_step < int(steps.first) &&
          f->buffers[b]->last_step >= int(steps.first))
        steps.given.push_back(b);
    out.steps_[f.get()] = std::move(steps);
  }
  if (cuts.empty())
    return {Code::Unsupported, "the plan has no @extend with kernels for this GPU, which stages "
                               "run: gpt2c says why when it compiles the model"};
  out.firstLayer_ = stage ? int(cuts[size_t(stage) - 1]) : 0;
  out.layers_ = int(out.isLast() ? layers : cuts[size_t(stage)]) - out.firstLayer_;
  return out;
}

} // namespace gpt2c::rt::cuda
