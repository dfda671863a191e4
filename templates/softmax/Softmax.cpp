// Lowering of softmax along rows, with or without a mask: templates/softmax/masked_softmax.cuh.
#include "templates/generic/GenericLowerings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <array>

namespace gpt2c {

namespace {
struct RowShape {
  int threads, lanes, elements;
  bool isLong;
};
} // namespace

/// A warp for a row where that is enough for 32 elements a thread (16 doubles), else a block.
static RowShape rowShape(int64_t keys, int64_t elementBytes) {
  const int64_t most = elementBytes > 4 ? 16 : 32, wide = 16 / elementBytes;
  const int lanes = keys <= 32 * most ? 32 : keys <= 128 * most ? 128 : 256;
  int64_t share = llvm::alignTo(llvm::divideCeil(std::max<int64_t>(keys, 1), lanes), wide);
  return {std::max(lanes, 128), lanes, int(std::min(share, most)), share > most};
}

llvm::Error lowerRowSoftmax(StepBuilder &b, Op &op, const RowSoftmax &s) {
  const Type &type = s.x->type;
  const Dim &keys = type.shape.back();
  Dim rows = elementCount(llvm::ArrayRef(type.shape).drop_back());
  const int64_t bytes = byteSize(type.dtype), wide = 16 / bytes;
  const RowShape shape = rowShape(b.maximum(keys), bytes);
  // Rows of one sequence share what its mask says; where rows are short, or mostly hidden, more of
  // them have to be on their way.
  const int rowsAThread = shape.isLong                         ? 1
                          : s.mask || (s.causal && bytes == 2) ? 4
                          : s.causal                           ? 2
                                                               : 1;
  DType mask = s.mask ? s.mask->type.dtype : DType::I32;
  KernelCall call(b, op, "templates/softmax/masked_softmax.cuh");
  call.type("X", cudaType(type.dtype));
  call.type("M", cudaType(mask));
  call.type("Index", b.maximum(rows) <= UINT32_MAX ? "unsigned" : "u64");
  call.constant("Threads", shape.threads);
  call.constant("Lanes", shape.lanes);
  call.constant("Elements", shape.elements);
  call.constant("Rows", rowsAThread);
  call.constant("Width", !keys.isConstant() ? 0 : *keys.constant() % wide == 0 ? wide : 1);
  call.flag("Long", shape.isLong);
  call.flag("Causal", s.causal);
  call.flag("Mask", s.mask != nullptr);
  call.flag("Bias", s.bias != nullptr);
  call.flag("Plain", s.plain);
  auto in = [&](llvm::StringRef name, Value *v, DType type) {
    v ? call.in(name, v) : call.pointer(name, cudaType(type), StepBuilder::null());
  };
  call.in("x", s.x);
  in("mask", s.mask, mask);
  in("bias", s.bias, type.dtype);
  call.out("y", op.result());
  call.integer("rows", rows);
  const bool named = type.rank() == 4; // [batch, heads, queries, keys]
  call.integer("heads", named ? type.shape[1] : Dim(1));
  call.integer("queries", named ? type.shape[2] : Dim(1));
  call.integer("keys", keys);
  Shape strides(4, Dim(0));
  if (s.bias)
    strides = broadcastStrides(s.bias->type.shape, type.shape);
  for (auto [name, stride] :
       llvm::zip(std::array{"biasBatch", "biasHead", "biasRow", "biasKey"}, strides))
    call.integer(name, stride);
  call.real("scale", s.scale);
  const int64_t rowsABlock = int64_t(shape.threads / shape.lanes) * rowsAThread;
  return call.launch(op, shape.threads, ceilDivExpr(b.expr(rows), rowsABlock),
                     "  tile::maskedSoftmax<" + call.config() +
                         ">(x, mask, bias, y, {rows, heads, queries, keys},\n"
                         "    {biasBatch, biasHead, biasRow, biasKey}, scale, "
                         "{blockIdx.x, gridDim.x});\n");
}

llvm::Error lowerMaskedSoftmax(StepBuilder &b, Op &op) {
  using enum ops::MaskedSoftmax::Operand;
  return lowerRowSoftmax(b, op,
                         {.x = op.operand(X),
                          .mask = op.operand(KeyMask),
                          .bias = op.operand(Bias),
                          .scale = op.floatAttr("scale"),
                          .causal = op.boolAttr("causal"),
                          .plain = false});
}

} // namespace gpt2c
