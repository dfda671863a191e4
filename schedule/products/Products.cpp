// Products with weights: what their kernels compute beside them, and which kernel is taken.
#include "ir/Error.h"
#include "ir/ops/PagedAttention.h"
#include "schedule/FunctionScheduler.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

bool FunctionScheduler::isEndDearer(const LinearProblem &p, const LinearProblem &ended) const {
  const std::vector<LinearCandidate> with = kernels_.linear.candidates(ended),
                                     without = kernels_.linear.candidates(p);
  // A launch by itself reads what the product has written; a rotation writes as much, a gate half
  // of it, and its product the other half.
  constexpr double launch = 2, bytesPerMicrosecond = 3e6;
  const double traffic = double(p.rows) * double(p.n) * scalarBytes(p.y) * 2 / bytesPerMicrosecond;
  return !without.empty() && with.front().microseconds && without.front().microseconds &&
         *with.front().microseconds > *without.front().microseconds + launch + traffic;
}

bool FunctionScheduler::isTurnedByReader(const Op &end) const {
  const Op &reader = *end.result()->uses()[0].op;
  std::vector<NearMiss> unused;
  return reader.is(OpCode::AppendAttention) && !isPaged(reader) &&
         fusedRope(reader, problems_.attention(reader), unused) == &end;
}

FunctionScheduler::Neighbours FunctionScheduler::neighboursOf(Op &product) const {
  Neighbours n{.site = problems_.site(product, kernels_.linear.ends())};
  ProductSite &site = n.site;
  n.statistics = site.norm ? statisticsOf(site.norm->operand(ops::LayerNorm::X)) : nullptr;
  const LinearFamily &family = kernels_.linear;
  if (site.norm) {
    const LinearProblem normed = family.fused(site.own, site.normed, n.statistics);
    if ((site.normOfEnd &&
         family.computes(family.fused(site.own, site.normed, n.statistics, site.form->kind))) ||
        family.computes(normed)) {
      n.problem = normed;
    } else {
      n.misses.push_back({"norm", family.refusal(normed)});
      site.norm = nullptr;
      site.normed = {};
    }
  }
  if (site.end && (site.form->kind != ProductEndKind::Rotation || !isTurnedByReader(*site.end)))
    takeEnd(n);
  else
    site.end = nullptr;
  return n;
}

void FunctionScheduler::takeEnd(Neighbours &n) const {
  const LinearFamily &family = kernels_.linear;
  const ProductEndKind kind = n.site.form->kind;
  const LinearProblem whole = family.fused(n.site.own, n.site.normed, n.statistics, kind);
  LinearProblem p = n.problem, ended = whole;
  if (!family.computes(p) && !family.computes(ended))
    for (LinearProblem *each : {&p, &ended}) // int8 weights that become floats first
      static_cast<LinearShape &>(*each) = each->widened();
  const bool none = family.candidates(ended).empty();
  if (!none && !isEndDearer(p, ended)) {
    n.problem = whole;
    return;
  }
  const ProductEndInfo &info = infoOf(kind);
  n.misses.push_back(
      {info.word.str(),
       none ? family.refusal(ended)
            : ("the product and a launch of the " + info.noun + " are faster").str()});
  n.site.end = nullptr;
}

void FunctionScheduler::product(Op &op) {
  auto refuse = [&](const char *why) { set(op, {RefusedGroup{&op, why}}); };
  const bool linearOp = op.is(OpCode::Linear);
  if (!hasKernelTypes(op))
    return refuse(linearOp ? "products with weights are in f32, f16 or bf16"
                           : "products with weights are in f32, f16, bf16 or i8");
  if (!op.operand(ops::Linear::W)->type.isStatic())
    return refuse("the size of its weights is not constant");
  Neighbours n = neighboursOf(op);
  const ProductSite &site = n.site;
  if (site.norm)
    inFront_[&op] = site.norm;
  if (linearOp && !site.end && mlp(op, n))
    return;
  LinearGroup group{.product = &op, .norm = site.norm, .end = site.end, .problem = site.own};
  if (!linearOp) {
    if (site.end)
      group.problem.fused.end = site.form->kind;
    if (auto why = int8(op, group)) {
      set(op, {RefusedGroup{&op, *why}});
      return;
    }
  }
  linear(op, std::move(group), std::move(n));
}

/// The op, its epilogue, and what comes before it: "layer_norm+linear+bias".
static std::string nameOf(const LinearGroup &g, const ProductEnd *form) {
  const Op &op = *g.product;
  std::string what = op.info().mnemonic.str();
  const unsigned bias =
      op.is(OpCode::Linear) ? unsigned(ops::Linear::Bias) : unsigned(ops::QuantizedLinear::Bias);
  if (op.operand(bias))
    what += "+bias";
  if (op.stringAttr("activation") != "none")
    what += "+" + op.stringAttr("activation");
  if (residualOf(op))
    what += "+residual";
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
  return key;
}

/// Whether the index of the largest element of each row is asked for.
static bool hasGreedyChoice(const Value *v) {
  return llvm::any_of(v->uses(), [](const Use &u) {
    return keepsRows(*u.op) ? hasGreedyChoice(u.op->result()) : u.op->is(OpCode::ArgMax);
  });
}

void FunctionScheduler::addWishes(LinearGroup &group, std::vector<NearMiss> &misses) const {
  LinearProblem &p = group.problem;
  const LinearFamily &family = kernels_.linear;
  if (group.end)
    return;
  LinearProblem statistics = p.plain(), largest = p.plain();
  statistics.fused.statistics = largest.fused.best = true;
  // For any rows a vocabulary alone leaves something, its largest elements, which changes no sum.
  if (!p.batchInvariant && wishes_.ofResult(*group.product)) {
    p.fused.statistics = family.leaderComputes(statistics);
    if (!p.fused.statistics)
      misses.push_back({"statistics", family.refusal(statistics)});
  }
  if (hasGreedyChoice(group.product->result(0)))
    p.fused.best = p.batchInvariant ? p.rows <= 256 && family.computes(largest)
                                    : family.leaderComputes(largest);
}

void FunctionScheduler::linear(Op &op, LinearGroup group, Neighbours neighbours) {
  group.what = nameOf(group, neighbours.site.form);
  const bool integers = group.int8 && group.int8->integers;
  if (integers) {
    group.choice.key = choiceKey(group) + int8Key(group);
    return choose(std::move(group), std::move(neighbours.misses));
  }
  group.problem = group.int8 ? kernels_.linear.fused(group.problem, neighbours.site.normed,
                                                     neighbours.statistics, group.problem.fused.end)
                             : neighbours.problem;
  if (group.norm)
    group.what = (group.norm->info().mnemonic + llvm::Twine("+") + group.what).str();
  group.choice.key = choiceKey(group);
  addWishes(group, neighbours.misses);
  if (group.problem.fused.statistics)
    group.choice.key += " statistics";
  choose(std::move(group), std::move(neighbours.misses));
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

void FunctionScheduler::choose(LinearGroup group, std::vector<NearMiss> misses) {
  const LinearProblem &p = group.problem;
  Op &op = *group.product, &at = group.end ? *group.end : op;
  std::vector<LinearCandidate> list = kernels_.linear.candidates(p);
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
  if (const int width = group.statisticsWidth)
    statistics_[op.result(0)] = {int(p.n / width), width};
  if (p.fused.best)
    largest_.insert(op.result(0));
  const Value *residual = residualOf(op);
  group.residualInPlace = residual && isReadInPlace(residual);
  set(at, {std::move(group), std::move(misses)});
}

} // namespace gpt2c
