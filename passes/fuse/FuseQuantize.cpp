// fuse-quantize: int8 and fp8 add no launch. Where rows are many, or their scale is given, what
// makes them quantises them as it writes them; where there is one for each sequence, the product
// that reads them does.
//
// Termination: every rewrite removes a quantize or one of its uses.
#include "ir/ops/QuantizedProduct.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// One row for each sequence: [batch, k] or [batch, 1, k].
static bool hasFewRows(const Value &x) {
  llvm::ArrayRef<Dim> leading = llvm::ArrayRef(x.type.shape).drop_back();
  return llvm::all_of(leading.drop_front(leading.empty() ? 0 : 1),
                      [](const Dim &d) { return d == Dim(1); });
}

/// quantized_linear(quantize(x)) = quantized_linear(x) that finds the scales of x itself.
static llvm::Error fuseIntoReaders(Function &f, Op *quantize) {
  llvm::SmallVector<Op *> readers;
  for (const Use &u : quantize->result(ops::Quantize::Q)->uses())
    if (u.op->is(OpCode::QuantizedLinear) && u.operand == ops::QuantizedLinear::X)
      readers.push_back(u.op);
  for (Op *reader : readers) {
    llvm::SmallVector<Value *> operands(reader->operands());
    operands[ops::QuantizedLinear::X] = quantize->operand(ops::Quantize::X);
    operands[ops::QuantizedLinear::XScale] = nullptr;
    Builder b(f, reader);
    llvm::SmallVector<NamedAttr> attrs(reader->givenAttrs());
    attrs.push_back({"x_group", quantize->intAttr("group")});
    auto y = b.value(OpCode::QuantizedLinear, operands, attrs);
    if (!y)
      return y.takeError();
    adoptLocations(b.created(), {reader, quantize});
    (*y)->name = reader->result()->name;
    reader->result()->replaceAllUsesWith(*y);
  }
  return llvm::Error::success();
}

/// Whether integers alone are multiplied: kernels of such products apply a zero point.
static bool isIntegerProduct(const Op &linear) {
  using enum ops::QuantizedLinear::Operand;
  const Type &w = linear.operand(W)->type, &scales = linear.operand(WScale)->type;
  return linear.operand(X)->type.dtype == DType::I8 && scales.shape[1] == Dim(1) &&
         w.shape[1].constant().value_or(maxIntegerTerms) < maxIntegerTerms;
}

/// Whether the scale and the zero point of an affine_quantize to i8 are one constant each.
static bool hasOneConstant(const Op &affine) {
  const Value *scale = affine.operand(ops::AffineQuantize::Scale),
              *zero = affine.operand(ops::AffineQuantize::ZeroPoint);
  return scale->type.rank() == 0 && zero->type.rank() == 0 && zero->type.dtype == DType::I8 &&
         constantOp(scale) && constantOp(zero);
}

/// What makes x, as an op that makes (q, s) in its last two results; null when it cannot.
static llvm::Expected<Op *> quantisingProducer(Op *quantize, Builder &b) {
  Op *def = quantize->operand(ops::Quantize::X)->def();
  const bool affine = quantize->is(OpCode::AffineQuantize);
  Value *given = quantize->operand(ops::Quantize::Scale),
        *zero = affine ? quantize->operand(ops::AffineQuantize::ZeroPoint) : nullptr;
  int64_t group = affine ? 0 : quantize->intAttr("group");
  if (!def || (affine && !hasOneConstant(*quantize)))
    return nullptr;
  // A scale that is given may stand behind what it comes to be an operand of.
  if (given && given->def()) {
    if (!constantOp(given))
      return nullptr;
    given = b.constant(constantOp(given)->constant);
  }
  if (zero)
    zero = b.constant(constantOp(zero)->constant);
  const NamedAttr to = {"to", affine ? DType::I8 : quantize->dtypeAttr("to")};
  switch (def->code()) {
  case OpCode::LayerNorm:
  case OpCode::RmsNorm: {
    using enum ops::LayerNorm::Operand; // rms_norm has no Bias
    int64_t last = int64_t(def->result()->type.rank()) - 1;
    if (def->is(OpCode::LayerNorm) && def->intAttr("axis") != -1 && def->intAttr("axis") != last)
      return nullptr;
    llvm::SmallVector<NamedAttr> attrs{
        {"epsilon", def->floatAttr("epsilon")}, {"group", group}, to};
    if (def->is(OpCode::RmsNorm))
      attrs.push_back({"rms", true});
    return b.create(OpCode::QuantizedLayerNorm,
                    {def->operand(X), def->operand(Scale), def->operand(Bias), given, zero}, attrs);
  }
  case OpCode::QuantizedLinear: {
    using enum ops::QuantizedLinear::Operand;
    // A residual is added in the precision of the plan.
    if (def->operand(Residual) || (affine && !isIntegerProduct(*def)))
      return nullptr;
    return b.create(OpCode::RequantizedLinear,
                    {def->operand(X), def->operand(W), def->operand(WScale), def->operand(XScale),
                     def->operand(Bias), given, zero, def->operand(SumOffset)},
                    {{"activation", def->stringAttr("activation")},
                     {"x_group", def->intAttr("x_group")},
                     {"y_group", group},
                     to});
  }
  case OpCode::AppendAttention: {
    using enum ops::AppendAttention::Operand;
    llvm::SmallVector<NamedAttr> attrs(def->givenAttrs());
    attrs.push_back({"group", group});
    attrs.push_back(to);
    return b.create(OpCode::QuantizedAppendAttention,
                    {def->operand(Kv), def->operand(Qkv), def->operand(Past), def->operand(KeyMask),
                     given, zero, def->operand(Length)},
                    attrs);
  }
  default:
    return nullptr;
  }
}

static llvm::Error fuseIntoProducer(PassContext &ctx, Function &f, Op *quantize) {
  Value *x = quantize->operand(ops::Quantize::X);
  std::string why = "it has other readers";
  if (x->hasOneUse()) {
    Op *def = x->def();
    Builder b(f, def);
    auto made = quantisingProducer(quantize, b);
    if (!made)
      return made.takeError();
    if (Op *op = *made) {
      adoptLocations(b.created(), {def, quantize});
      unsigned q = op->numResults() - 2;
      if (q == 1)
        def->result(ops::AppendAttention::NextKv)
            ->replaceAllUsesWith(op->result(ops::QuantizedAppendAttention::NextKv));
      quantize->result(ops::Quantize::Q)->replaceAllUsesWith(op->result(q));
      if (quantize->numResults() == 2)
        quantize->result(ops::Quantize::S)->replaceAllUsesWith(op->result(q + 1));
      return llvm::Error::success();
    }
    const bool other = quantize->is(OpCode::AffineQuantize) && !hasOneConstant(*quantize);
    why = other ? "its scale and zero point are not one constant each, in i8"
          : def ? "it comes from " + def->describe()
                : "it is an argument";
  }
  if (quantize->is(OpCode::Quantize)) {
    ctx.missed("the input of a product is quantised in a launch of its own, since " + why,
               quantize->locations)
        .of("fusion")
        .stoppedBy({why, x->def()});
    return llvm::Error::success();
  }
  Remark &remark = ctx.missed("fusion: what the model quantises is quantised in a launch of its "
                              "own, since " +
                                  why + "; --imported-activations=none leaves that out",
                              quantize->locations)
                       .of("fusion")
                       .stoppedBy({why, quantize});
  remark.launches = 1;
  remark.bytes = leastBytes(*quantize);
  return llvm::Error::success();
}

llvm::Error fuseQuantize(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> quantizes;
    for (auto &op : f->ops())
      if (op->is(OpCode::Quantize) || op->is(OpCode::AffineQuantize))
        quantizes.push_back(op.get());
    for (Op *op : quantizes) {
      const bool byReaders =
          !op->operand(ops::Quantize::Scale) && hasFewRows(*op->operand(ops::Quantize::X));
      if (llvm::Error e = byReaders ? fuseIntoReaders(*f, op) : fuseIntoProducer(ctx, *f, op))
        return e;
    }
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
