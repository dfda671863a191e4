// fuse-quantize: int8 adds no launch. Where rows are many, or their scale is given, what makes them
// quantises them as it writes them; where there is one for each sequence, the product that reads
// them does.
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
  for (const Use &u : quantize->result(0)->uses())
    if (u.op->is(OpCode::QuantizedLinear) && u.operand == 0)
      readers.push_back(u.op);
  for (Op *reader : readers) {
    llvm::SmallVector<Value *> operands(reader->operands());
    operands[0] = quantize->operand(0);
    operands[3] = nullptr;
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
  const Type &w = linear.operand(1)->type, &scales = linear.operand(2)->type;
  return linear.operand(0)->type.dtype == DType::I8 && scales.shape[1] == Dim(1) &&
         w.shape[1].constant().value_or(maxIntegerTerms) < maxIntegerTerms;
}

/// Whether the scale and the zero point of an affine_quantize to i8 are one constant each.
static bool hasOneConstant(const Op &affine) {
  const Value *scale = affine.operand(1), *zero = affine.operand(2);
  return scale->type.rank() == 0 && zero->type.rank() == 0 && zero->type.dtype == DType::I8 &&
         constantOp(scale) && constantOp(zero);
}

/// What makes x, as an op that makes (q, s) in its last two results; null when it cannot.
static llvm::Expected<Op *> quantisingProducer(Op *quantize, Builder &b) {
  Op *def = quantize->operand(0)->def();
  const bool affine = quantize->is(OpCode::AffineQuantize);
  Value *given = quantize->operand(1), *zero = affine ? quantize->operand(2) : nullptr;
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
  switch (def->code()) {
  case OpCode::LayerNorm: {
    int64_t last = int64_t(def->result()->type.rank()) - 1;
    if (def->intAttr("axis") != -1 && def->intAttr("axis") != last)
      return nullptr;
    return b.create(OpCode::QuantizedLayerNorm,
                    {def->operand(0), def->operand(1), def->operand(2), given, zero},
                    {{"epsilon", def->floatAttr("epsilon")}, {"group", group}});
  }
  case OpCode::QuantizedLinear:
    // A residual is added in the precision of the plan.
    if (def->operand(5) || (affine && !isIntegerProduct(*def)))
      return nullptr;
    return b.create(OpCode::RequantizedLinear,
                    {def->operand(0), def->operand(1), def->operand(2), def->operand(3),
                     def->operand(4), given, zero, def->operand(6)},
                    {{"activation", def->stringAttr("activation")},
                     {"x_group", def->intAttr("x_group")},
                     {"y_group", group}});
  case OpCode::AppendAttention: {
    llvm::SmallVector<NamedAttr> attrs(def->givenAttrs());
    attrs.push_back({"group", group});
    return b.create(OpCode::QuantizedAppendAttention,
                    {def->operand(0), def->operand(1), def->operand(2), def->operand(3), given,
                     zero, def->operand(4)},
                    attrs);
  }
  default:
    return nullptr;
  }
}

static llvm::Error fuseIntoProducer(PassContext &ctx, Function &f, Op *quantize) {
  Value *x = quantize->operand(0);
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
        def->result(0)->replaceAllUsesWith(op->result(0));
      quantize->result(0)->replaceAllUsesWith(op->result(q));
      if (quantize->numResults() == 2)
        quantize->result(1)->replaceAllUsesWith(op->result(q + 1));
      return llvm::Error::success();
    }
    const bool other = quantize->is(OpCode::AffineQuantize) && !hasOneConstant(*quantize);
    why = other ? "its scale and zero point are not one constant each, in i8"
          : def ? "it comes from " + def->describe()
                : "it is an argument";
  }
  if (quantize->is(OpCode::Quantize)) {
    ctx.missed("the input of an int8 product is quantised in a launch of its own, since " + why,
               quantize->locations);
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
      const bool byReaders = !op->operand(1) && hasFewRows(*op->operand(0));
      if (llvm::Error e = byReaders ? fuseIntoReaders(*f, op) : fuseIntoProducer(ctx, *f, op))
        return e;
    }
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
