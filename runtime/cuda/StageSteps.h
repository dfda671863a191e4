// Which launches of a plan are those of one stage of several that stand behind each other.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"
#include "runtime/device/FunctionCall.h"

#include <unordered_map>
#include <vector>

namespace gpt2c::rt::cuda {

/// The steps [first, last) of a function, and the buffers that the stage before hands on to them.
struct StageSteps {
  size_t first = 0, last = 0;
  std::vector<size_t> given;
};

/// Of the functions over a state in pages: @extend, @steps as launches, and @sample, which is the
/// last stage's. A cut lies between two layers, where the fewest bytes are handed on. Layers are
/// dealt so that the stage whose steps read most reads as few bytes as can be.
class StagePlan {
public:
  /// Unsupported: the plan has no such functions, fewer layers than stages, or does not say what
  /// depends on a layer's place, as one of an earlier compiler.
  static Result<StagePlan> create(const plan::PlanT &meta, Functions functions, int stage,
                                  int stages);

  int stage() const { return stage_; }
  int stages() const { return stages_; }
  bool isLast() const { return stage_ + 1 == stages_; }
  /// Layers of the stage.
  int firstLayer() const { return firstLayer_; }
  int layers() const { return layers_; }
  /// Null: the function does not run in stages.
  const StageSteps *of(const plan::FunctionT &function) const {
    auto it = steps_.find(&function);
    return it == steps_.end() ? nullptr : &it->second;
  }

private:
  int stage_ = 0, stages_ = 1, firstLayer_ = 0, layers_ = 0;
  std::unordered_map<const plan::FunctionT *, StageSteps> steps_;
};

} // namespace gpt2c::rt::cuda
