// Convolutions that are products: of kernel 1.
#include "frontend/Builders.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace gpt2c::onnxops {

/// y[.., m, ..] = sum over c of w[m, c] x[.., c, ..] + bias[m], channels on axis 1.
void conv(NodeLowering &n) {
  Value *x = n.in(0), *w = n.in(1), *bias = n.optional(2);
  if (n.failed())
    return;
  const int64_t rank = x->type.rank();
  if (rank < 3 || w->type.rank() != size_t(rank))
    return (void)n.invalid("input and weights have no channels and positions");
  auto all = [&](const char *name, int64_t value) {
    auto given = n.intsAttr(name);
    return !given || llvm::all_of(*given, [&](int64_t v) { return v == value; });
  };
  bool isPoint = all("strides", 1) && all("pads", 0) && n.intAttr("group", 1) == 1;
  for (int64_t i = 2; i < rank; ++i)
    isPoint &= NodeLowering::staticDim(w, i) == 1;
  const auto outputs = NodeLowering::staticDim(w, 0), inputs = NodeLowering::staticDim(w, 1);
  if (n.failed())
    return;
  if (!isPoint || !outputs || !inputs)
    return (void)n.unsupported("a convolution is supported where it is a product: of kernel 1, "
                               "stride 1, one group and no padding");
  std::vector<int64_t> toLast{0}, back{0, rank - 1};
  for (int64_t i = 2; i < rank; ++i)
    toLast.push_back(i), back.push_back(i - 1);
  toLast.push_back(1);
  Value *rows = n.transpose(x, toLast);
  Value *columns = n.transpose(n.reshape(w, {*outputs, *inputs}), {1, 0});
  Value *y = n.matmul(rows, columns);
  n.out(n.transpose(bias ? n.add(y, bias) : y, back));
}

} // namespace gpt2c::onnxops
