// Matrices in 12 bits an element, and what is said of those that keep what they have.
#include "codegen/driver/Draft.h"
#include "runtime/plan/PackedWeight.h"

#include "llvm/ADT/DenseSet.h"

namespace gpt2c {

/// Why a matrix that products or lookups read is not packed; empty: it is.
static std::string whyKept(PlanPool &pool, const Tensor &t) {
  if (t.dtype() != DType::BF16)
    return "it is in " + dtypeName(t.dtype()).str();
  if (!rt::PackedShape::of(t.shape()))
    return "its rows are no multiple of " + std::to_string(rt::PackedShape::block) + " elements";
  if (!pool.pack(pool.weight(t)))
    return "too many of its elements have exponents far from those of their neighbours";
  return "";
}

static bool isMatrixOf(const Use &u) {
  const unsigned table = ops::Embed::Tokens;
  return ((u.op->is(OpCode::Linear) || u.op->is(OpCode::QuantizedLinear)) &&
          u.operand == ops::Linear::W) ||
         (u.op->is(OpCode::Embed) && u.operand == table);
}

GeneratedPlan::Packing packMatrices(const Module &module, PlanPool &pool) {
  GeneratedPlan::Packing out;
  for (size_t i = 0; i < pool.weights().size(); ++i)
    if (const std::optional<int> packed = pool.pack(int(i))) {
      ++out.matrices;
      out.bytes += pool.weights()[i].bytes();
      out.packed += pool.weights()[size_t(*packed)].bytes();
    }
  llvm::DenseSet<const void *> seen;
  for (const auto &f : module.functions)
    for (const auto &op : f->ops()) {
      if (!op->is(OpCode::Constant) || !op->result()->type.isStatic() ||
          llvm::none_of(op->result()->uses(), isMatrixOf) ||
          !seen.insert(op->constant.raw()).second || pool.partOf(op->constant))
        continue;
      if (const std::string why = whyKept(pool, op->constant); !why.empty())
        out.kept[why].push_back(op->locations.empty() ? op->describe()
                                                      : op->locations.front().str());
    }
  return out;
}

} // namespace gpt2c
