#include "schedule/products/StatisticsWishes.h"

#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Whether two products differ in their operands alone.
static bool areTwins(const Op &a, const Op &b) {
  auto sameTypes = [](const Value *v, const Value *w) {
    return !v || !w ? v == w : v->type == w->type;
  };
  return a.is(b.code()) && a.numOperands() == b.numOperands() &&
         llvm::all_of_zip(a.operands(), b.operands(), sameTypes) &&
         a.stringAttr("activation") == b.stringAttr("activation");
}

StatisticsWishes::StatisticsWishes(Function &f, const Problems &problems,
                                   const LinearFamily &kernels,
                                   llvm::ArrayRef<const MlpKernel *> mlps)
    : f_(f), problems_(problems), kernels_(kernels), mlps_(mlps) {
  for (const auto &op : f.ops()) {
    if (!isNorm(*op))
      continue;
    const Value *v = op->operand(ops::LayerNorm::X);
    if (const Type *weights = weights_.count(v) ? nullptr : normedWeights(v))
      weights_[v] = weights;
  }
  std::vector<const Op *> wishedFor;
  for (const auto &op : f.ops())
    if (isProduct(*op) && of(op->result(0)))
      wishedFor.push_back(op.get());
  for (const auto &op : f.ops())
    if (isProduct(*op) && (of(op->result(0)) || llvm::any_of(wishedFor, [&](const Op *other) {
                             return areTwins(*other, *op);
                           })))
      wished_.insert(op.get());
}

/// Null: no product does.
const Type *StatisticsWishes::normedWeights(const Value *v) const {
  for (const Use &norm : v->uses()) {
    if (norm.operand != ops::LayerNorm::X || !isNorm(*norm.op))
      continue;
    for (const Use &use : norm.op->result()->uses()) {
      const Op &product = *use.op;
      if (use.operand != ops::Linear::X || !isProduct(product) ||
          !product.operand(ops::Linear::W)->type.isStatic())
        continue;
      const ProductSite site = problems_.site(product, kernels_.ends());
      const LinearProblem p =
          kernels_.fused(site.own, site, site.normOfEnd ? site.form->kind : ProductEndKind::None);
      if (site.norm && kernels_.wantsNormStatistics(p) && pays(v, p) && !isOfMlp(product, site))
        return &product.operand(ops::Linear::W)->type;
    }
  }
  return nullptr;
}

/// Whether a kernel of both products of an MLP takes it, which finds the norm's statistics itself.
bool StatisticsWishes::isOfMlp(const Op &product, const ProductSite &site) const {
  const MlpSite mlp = problems_.mlp(product);
  if (!mlp.output || site.end)
    return false;
  const MlpProblem p = mlpProblem(product, mlp, site);
  return !candidatesOf(mlps_, p, p).empty();
}

/// Whether the product that makes `v` leaves statistics for less than `p` gains by them.
bool StatisticsWishes::pays(const Value *v, const LinearProblem &p) const {
  const Op *before = v->def();
  return p.batchInvariant || !before || !isProduct(*before) ||
         kernels_.statisticsPay(p, problems_.linear(*before));
}

int64_t StatisticsWishes::widthOfPeers(const Value *v) const {
  const Type *weights = weights_.lookup(v);
  for (const auto &op : f_.ops()) {
    if (!weights || !op->is(OpCode::Linear) || op->result()->type != v->type ||
        !op->operand(ops::Linear::W)->type.isStatic())
      continue;
    const Type *others = weights_.lookup(op->result());
    if (!others || *others != *weights)
      continue;
    const LinearProblem p = problems_.linear(*op).with({.statistics = true});
    if (!kernels_.leaderComputes(p))
      continue;
    const LinearCandidate first = kernels_.candidates(p).front();
    if (const int width = first.kernel->statisticsWidth(first.config))
      return width;
  }
  return lastDim(v);
}

} // namespace gpt2c
