// Reductions over any axes.
#pragma once

#include "ir/ops/Common.h"

#include <limits>

namespace gpt2c {

/// y = finish(fold of step over the reduced elements from `initial<T>()`, number of elements).
template <typename Initial, typename Step, typename Finish>
llvm::Error evalReduction(EvalContext &c, Initial initial, Step step, Finish finish) {
  const Tensor &x = c.input(0);
  auto axes = reducedAxes(c, x.rank());
  if (!axes)
    return axes.takeError();
  // Kept axes first, then the reduced ones, innermost last.
  auto strides = rowMajorStrides(x.shape());
  llvm::SmallVector<int64_t, 4> kept, keptStrides, reduced, reducedStrides, shape;
  for (unsigned i = 0, next = 0; i < x.rank(); ++i) {
    bool drop = next < axes->size() && (*axes)[next] == i;
    next += drop;
    (drop ? reduced : kept).push_back(x.dim(i));
    (drop ? reducedStrides : keptStrides).push_back(strides[i]);
    if (!drop)
      shape.push_back(x.dim(i));
    else if (c.op().boolAttr("keepdims"))
      shape.push_back(1);
  }
  auto offsets = [](llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> steps) {
    std::vector<int64_t> out{0};
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::vector<int64_t> next;
      for (int64_t o : out)
        for (int64_t k = 0; k < sizes[i]; ++k)
          next.push_back(o + k * steps[i]);
      out = std::move(next);
    }
    return out;
  };
  // The last reduced axis is walked directly, the others through their offsets.
  int64_t inner = reduced.empty() ? 1 : reduced.pop_back_val();
  int64_t innerStride = reducedStrides.empty() ? 1 : reducedStrides.pop_back_val();
  std::vector<int64_t> bases = offsets(kept, keptStrides), runs = offsets(reduced, reducedStrides);
  Tensor &out = c.allocate(shape);
  return dispatch(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    for (size_t o = 0; o < bases.size(); ++o) {
      T acc = initial(tag);
      for (int64_t run : runs)
        for (const T *p = x.data<T>() + bases[o] + run, *e = p + inner * innerStride; p != e;
             p += innerStride)
          acc = step(acc, *p);
      out.data<T>()[o] = finish(acc, static_cast<int64_t>(runs.size()) * inner);
    }
    return llvm::Error::success();
  });
}

template <typename T> T lowest(T) {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}
template <typename T> T highest(T) {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}
template <typename T> T mean(T sum, int64_t n) {
  if constexpr (std::is_floating_point_v<T>)
    return sum / static_cast<T>(n);
  else
    return n ? static_cast<T>(sum / n) : T(0);
}

/// Attributes of every reduction.
inline std::vector<AttrSpec> reductionAttrs() {
  return {{"axes", AttrKind::Dims, Attr(Dims()), "empty: all"},
          {"keepdims", AttrKind::Bool, Attr(true)}};
}

} // namespace gpt2c
