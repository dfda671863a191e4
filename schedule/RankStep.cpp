#include "schedule/RankStep.h"

#include "ir/Builder.h"
#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

namespace gpt2c {
namespace {

/// all_reduce and what follows it.
struct RankSum {
  Op *product = nullptr;
  Value *bias = nullptr, *residual = nullptr;
  Value *result = nullptr;
};

Op *onlyReader(const Value *v) { return v->uses().size() == 1 ? v->uses()[0].op : nullptr; }

std::optional<RankSum> readSum(Op &reduce) {
  RankSum s{.product = reduce.operand(0)->def(), .result = reduce.result()};
  if (!s.product || !(s.product->is(OpCode::Linear) || s.product->is(OpCode::QuantizedLinear)) ||
      !s.product->result()->hasOneUse() || residualOf(*s.product) ||
      s.product->stringAttr("activation") != "none")
    return std::nullopt;
  Op *next = onlyReader(s.result);
  if (next && next->is(OpCode::Cast)) {
    s.result = next->result();
    next = onlyReader(s.result);
  }
  for (; next && next->is(OpCode::Add) && !s.residual; next = onlyReader(s.result)) {
    Value *added = next->operand(next->operand(0) == s.result);
    if (next->result()->type != s.result->type)
      break;
    const bool isRow = isConstant(added) && added->type.rank() == 1;
    if (isRow && s.bias)
      break;
    (isRow ? s.bias : s.residual) = added;
    s.result = next->result();
  }
  return s;
}

llvm::Error join(Function &f, const RankSum &s) {
  const bool quantised = s.product->is(OpCode::QuantizedLinear);
  const auto biasAt =
                 quantised ? unsigned(ops::QuantizedLinear::Bias) : unsigned(ops::Linear::Bias),
             residualAt = quantised ? unsigned(ops::QuantizedLinear::Residual)
                                    : unsigned(ops::Linear::Residual);
  llvm::SmallVector<Value *> operands(s.product->operands());
  operands.resize(std::max<size_t>(operands.size(), residualAt + 1));
  operands[biasAt] = s.bias;
  operands[residualAt] = s.residual;
  llvm::SmallVector<NamedAttr> attrs(s.product->givenAttrs());
  llvm::erase_if(attrs, [](const NamedAttr &a) { return a.name == "dtype"; });
  if (s.result->type.dtype != operands[ops::Linear::X]->type.dtype)
    attrs.push_back({"dtype", s.result->type.dtype});
  // Bias and residual may stand behind the product.
  Builder b(f, f.next(s.result->def()));
  b.setLocations(s.result->def()->locations);
  auto joined = b.value(s.product->code(), operands, attrs);
  if (!joined)
    return joined.takeError();
  (*joined)->name = s.result->name;
  s.result->replaceAllUsesWith(*joined);
  return llvm::Error::success();
}

} // namespace

std::unique_ptr<Function> stepOfRank(const Function &decode) {
  auto f = decode.clone(decode.name());
  llvm::SmallVector<Op *> sums;
  for (auto &op : f->ops())
    if (op->is(OpCode::AllReduce))
      sums.push_back(op.get());
  for (Op *op : sums) {
    const auto sum = readSum(*op);
    if (!sum)
      return nullptr;
    if (llvm::Error e = join(*f, *sum)) {
      llvm::consumeError(std::move(e));
      return nullptr;
    }
  }
  f->eraseDeadOps();
  return sums.empty() ? nullptr : std::move(f);
}

} // namespace gpt2c
