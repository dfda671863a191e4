#include "passes/quantize/WeightGroups.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace gpt2c {

/// Whether each of some ranks that share products has whole groups of their columns.
static bool dividesForRanks(const Op &product, int64_t group, llvm::ArrayRef<int64_t> ranks) {
  const Value &x = *product.operand(ops::Linear::X);
  const int64_t k = x.type.shape.back().constant().value_or(0);
  const Op *def = x.def();
  if (def && def->is(OpCode::AppendAttention))
    return k / def->intAttr("num_heads") % group == 0;
  return llvm::all_of(
      ranks, [&](int64_t n) { return (n - 1) * llvm::divideCeilSigned(k, n * group) * group < k; });
}

int64_t usualWeightGroup(const Module &module, const QuantizeOptions &options,
                         llvm::ArrayRef<int64_t> ranks, const Op **odd) {
  auto divides = [&](const Op &product, int64_t group) {
    const int64_t k = product.operand(ops::Linear::W)->type.shape[1].constant().value_or(0);
    return k % group == 0 && (ranks.empty() || dividesForRanks(product, group, ranks));
  };
  constexpr int64_t most = 64, least = 32; // which kernels take
  int64_t group = most;
  for (const auto &f : module.functions)
    for (const auto &op : f->ops()) {
      if (importedWeights(*op))
        return 0;
      if (!isQuantisable(*op) || treatmentOf(*op, options).first == Treatment::Keep ||
          hasRowScales(*op, options))
        continue;
      if (!divides(*op, group))
        group = least;
      if (!divides(*op, group)) {
        *odd = op.get();
        return 0;
      }
    }
  return group;
}

void settleWeightGroup(PassContext &ctx) {
  QuantizeOptions &options = ctx.options().quantize;
  if (options.weightGroup || options.scheme != QuantizeScheme::W8A16)
    return;
  const Op *odd = nullptr;
  int64_t group = usualWeightGroup(ctx.module(), options, ctx.options().tensorParallel, &odd);
  std::string why;
  if (odd)
    why = (llvm::Twine("rows of ") + layerName(*odd) + ", of " +
           llvm::Twine(odd->operand(ops::Linear::W)->type.shape[1].constant().value_or(0)) +
           " elements, do not divide into groups of 64 or 32" +
           (ctx.options().tensorParallel.empty() ? "" : " for all ranks"))
              .str();
  else if (group && options.groupsAreSlower)
    why = options.groupsAreSlower(ctx.module(), group);
  if (!why.empty()) {
    group = 0;
    ctx.note("weights have a scale for each row, not for each group, since " + why, {});
  }
  options.weightGroup = group;
}

} // namespace gpt2c
