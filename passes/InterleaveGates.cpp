// interleave-gates: a product whose columns gate others of it, [gates; values], gets them as pairs,
//   gated(linear(x, [g0 g1 .. v0 v1 ..])) = gated(linear(x, [g0 v0 g1 v1 ..])) {interleaved}
// so that an epilogue has both where it has one. Weights, scales and biases move at compile time.
//
// Termination: an interleaved gate stays.
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <map>

namespace gpt2c {

namespace {

class Interleaver {
public:
  llvm::Error run(Function &f) {
    llvm::SmallVector<Op *> gates;
    for (auto &op : f.ops())
      if (op->is(OpCode::Gated) && !op->boolAttr("interleaved"))
        gates.push_back(op.get());
    for (Op *gate : gates)
      if (llvm::Error e = rewrite(f, gate))
        return e;
    f.eraseDeadOps();
    return llvm::Error::success();
  }

private:
  /// The operands that the product has with a row for each of its columns.
  static llvm::SmallVector<unsigned> ofColumns(const Op &product) {
    using Int8 = ops::QuantizedLinear;
    llvm::SmallVector<unsigned> all{ops::Linear::W, ops::Linear::Bias};
    if (!product.is(OpCode::Linear))
      all = {Int8::W, Int8::WScale, Int8::Bias, Int8::SumOffset};
    llvm::erase_if(all, [&](unsigned i) { return !product.operand(i); });
    return all;
  }

  llvm::Error rewrite(Function &f, Op *gate) {
    Op *product = gate->operand(ops::Gated::X)->def();
    const bool alone = product && gate->operand(ops::Gated::X)->hasOneUse() &&
                       (product->is(OpCode::Linear) || product->is(OpCode::QuantizedLinear));
    if (!alone || product->stringAttr("activation") != "none" ||
        product->operand(product->is(OpCode::Linear) ? unsigned(ops::Linear::Residual)
                                                     : unsigned(ops::QuantizedLinear::Residual)))
      return llvm::Error::success();
    llvm::SmallVector<Value *> operands(product->operands());
    for (unsigned i : ofColumns(*product))
      if (!constantOp(operands[i]) || !constantOp(operands[i])->constant.valid())
        return llvm::Error::success();
    Builder b(f, product);
    b.setLocations(product->locations);
    for (unsigned i : ofColumns(*product)) {
      Value *pairs = b.constant(interleaved(constantOp(operands[i])->constant));
      pairs->name = operands[i]->name;
      operands[i] = pairs;
    }
    auto both = b.value(product->code(), operands, product->givenAttrs());
    if (!both)
      return both.takeError();
    Builder at(f, gate);
    at.setLocations(gate->locations);
    auto y = at.value(OpCode::Gated, {*both},
                      {{"activation", gate->stringAttr("activation")}, {"interleaved", true}});
    if (!y)
      return y.takeError();
    (*y)->name = gate->result()->name;
    gate->result()->replaceAllUsesWith(*y);
    return llvm::Error::success();
  }

  /// Rows i and n + i of 2 n next to each other. Functions share what is made of one tensor.
  Tensor interleaved(const Tensor &t) {
    auto [it, isNew] = made_.try_emplace(t.raw());
    if (!isNew)
      return it->second.second;
    Tensor out(t.dtype(), t.shape());
    const int64_t n = t.dim(0) / 2, bytes = t.dim(0) ? t.bytes() / t.dim(0) : 0;
    const char *from = static_cast<const char *>(t.raw());
    char *to = static_cast<char *>(out.raw());
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(to + 2 * i * bytes, from + i * bytes, bytes);
      std::memcpy(to + (2 * i + 1) * bytes, from + (n + i) * bytes, bytes);
    }
    it->second = {t, out}; // t, so that no other tensor gets its address
    return out;
  }

  std::map<const void *, std::pair<Tensor, Tensor>> made_;
};

} // namespace

llvm::Error interleaveGates(PassContext &ctx) {
  Interleaver interleaver;
  for (auto &f : ctx.module().functions)
    if (llvm::Error e = interleaver.run(*f))
      return e;
  return llvm::Error::success();
}

} // namespace gpt2c
