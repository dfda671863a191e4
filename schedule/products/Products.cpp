// Products with weights: what their kernels compute beside them, and which kernel is taken.
#include "ir/Error.h"
#include "ir/ops/PagedAttention.h"
#include "schedule/FunctionScheduler.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

bool FunctionScheduler::isTurnedByReader(const Op &rotation) const {
  const Op &reader = *rotation.result()->uses()[0].op;
  std::vector<NearMiss> unused;
  return reader.is(OpCode::AppendAttention) && !isPaged(reader) &&
         fusedRope(reader, problems_.attention(reader), unused) == &rotation;
}

ProductSite FunctionScheduler::siteOf(const Op &product) const {
  ProductSite site = problems_.site(product, kernels_.linear.ends(), statistics_);
  site.statisticsWished = wishes_.ofResult(product);
  if (site.end && site.form->kind == ProductEndKind::Rotation && isTurnedByReader(*site.end))
    site.end = nullptr;
  if (site.end && site.end->is(OpCode::AllReduce))
    site.statisticsOfEnd = sumOf(*site.end).statistics.parts > 0;
  return site;
}

/// The op, its epilogue, and what comes before it: "layer_norm+linear+bias".
static std::string nameOf(const LinearGroup &g, const ProductEnd *form) {
  const Op &op = *g.product;
  const bool integers = g.int8 && g.int8->integers; // their rows are not normed
  std::string what = g.norm && !integers ? (g.norm->info().mnemonic + "+").str() : "";
  what += op.info().mnemonic;
  const unsigned bias =
      op.is(OpCode::Linear) ? unsigned(ops::Linear::Bias) : unsigned(ops::QuantizedLinear::Bias);
  if (op.operand(bias))
    what += "+bias";
  if (op.stringAttr("activation") != "none")
    what += "+" + op.stringAttr("activation");
  if (residualOf(op))
    what += "+residual";
  if (g.sum)
    return what + "+" + g.sum->what;
  return g.end ? what + form->name(*g.end) : what;
}

/// What tuning files call a product: all that the choice of its kernel depends on.
static std::string choiceKey(const LinearGroup &g) {
  const LinearShape &s = g.problem;
  std::string key = llvm::formatv("{0} rows={1} n={2} k={3} {4} x {5}", g.what, s.rows, s.n, s.k,
                                  dtypeName(g.product->operand(ops::Linear::X)->type.dtype),
                                  dtypeName(g.product->operand(ops::Linear::W)->type.dtype));
  if (s.xGroup > 0)
    key += " x_group=" + std::to_string(s.xGroup);
  if (s.wGroup > 0)
    key += " w_group=" + std::to_string(s.wGroup);
  if (s.wZeros)
    key += " w_zeros";
  if (g.int8 && g.int8->integers)
    return key + int8Key(g);
  return g.problem.fused.statistics ? key + " statistics" : key;
}

void FunctionScheduler::product(Op &op) {
  auto refuse = [&](llvm::StringRef why) { set(op, {RefusedGroup{&op, why.str()}}); };
  const bool linearOp = op.is(OpCode::Linear);
  if (!hasKernelTypes(op))
    return refuse(linearOp ? "products with weights are in f32, f16 or bf16"
                           : "products with weights are in f32, f16, bf16 or i8");
  if (!op.operand(ops::Linear::W)->type.isStatic())
    return refuse("the size of its weights is not constant");
  const LinearFamily &family = kernels_.linear;
  ProductSite site = siteOf(op);
  const MlpSite mlp = problems_.mlp(op);
  ProductSite ofMlp = site; // whose kernel has the norm, whatever that of the product does
  ProductForm form = family.form(site, linearOp);
  if (mlp.output && !site.end) {
    ofMlp.end = nullptr;
    if (this->mlp(op, mlp, ofMlp, form.misses)) {
      if (ofMlp.norm)
        inFront_[&op] = ofMlp.norm;
      return;
    }
  }
  if (site.norm)
    inFront_[&op] = site.norm;
  LinearGroup group{.product = &op, .norm = site.norm, .end = site.end, .problem = form.problem};
  if (!linearOp) {
    const ProductEndKind end = site.end ? site.form->kind : ProductEndKind::None;
    group.problem = site.own;
    group.problem.fused.end = end;
    if (auto why = int8(op, group))
      return refuse(*why);
    if (!group.int8->integers) {
      group.problem = family.fused(group.problem, site, end);
      family.addWishes(group.problem, site, form.misses);
    }
    form.candidates = family.candidates(group.problem);
  }
  const ProductEndKind end = group.problem.fused.end;
  if (end == ProductEndKind::Receive || end == ProductEndKind::Scatter) {
    group.sum = sumOf(*group.end);
    (end == ProductEndKind::Receive ? group.sum->received : group.sum->scattered) = true;
  }
  group.what = nameOf(group, site.form);
  group.choice.key = choiceKey(group);
  choose(std::move(group), std::move(form.candidates), std::move(form.misses));
}

/// The index of the candidate that is taken, by the order of its sums where the plan has one order.
size_t FunctionScheduler::chosen(const LinearGroup &group,
                                 llvm::ArrayRef<LinearCandidate> list) const {
  if (group.problem.batchInvariant) {
    std::vector<SumOption> options;
    for (const LinearCandidate &c : list)
      options.push_back({c.name, c.order, c.microseconds});
    return options_.orders->choose(*group.product, options);
  }
  std::vector<std::string> names;
  for (const LinearCandidate &c : list)
    names.push_back(c.name);
  return options_.choose ? options_.choose(group.choice.key, names) : 0;
}

void FunctionScheduler::choose(LinearGroup group, std::vector<LinearCandidate> list,
                               std::vector<NearMiss> misses) {
  const LinearProblem &p = group.problem;
  Op &op = *group.product, &at = *group.last();
  if (&at != &op)
    setFused(op);
  if (list.empty()) {
    std::string why = "no kernel computes " + group.choice.key;
    for (const LinearKernel *k : kernels_.linear.kernels())
      why += ("\n  " + k->name() + ": " + k->refusal(p)).str();
    set(at, {RefusedGroup{&op, why}, std::move(misses)});
    return;
  }
  group.taken = std::move(list[chosen(group, list)]);
  group.choice.name = group.taken.name;
  group.choice.sumOrder = group.taken.order;
  group.statisticsWidth = group.taken.kernel->statisticsWidth(group.taken.config);
  if (const int width = group.statisticsWidth; width > 0 && !group.sum)
    statistics_[op.result(0)] = {int(p.n / width), width};
  if (const int width = group.statisticsWidth; group.sum && group.sum->scattered)
    group.sum->statistics = width > 0 ? RowStatistics{int(p.n / width), width} : RowStatistics();
  if (group.sum)
    setCovered(*group.sum);
  if (p.fused.best)
    largest_.insert(op.result(0));
  const Value *residual = residualOf(op);
  group.residualInPlace = residual && isReadInPlace(residual);
  const bool sends = p.fused.end == ProductEndKind::Send;
  set(at, {std::move(group), std::move(misses)});
  if (sends)
    allReduce(at);
}

bool FunctionScheduler::isReadInPlace(const Value *v) const {
  auto it = v->def() ? groups_.find(v->def()) : groups_.end();
  const DoneGroup *done = it == groups_.end() ? nullptr : it->second.get<DoneGroup>();
  return done && done->why == DoneGroup::ReadInPlace;
}

} // namespace gpt2c
