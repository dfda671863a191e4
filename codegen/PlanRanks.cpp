#include "codegen/PlanPorts.h"
#include "ir/FunctionNames.h"
#include "ir/HeadDeal.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>
#include <tuple>

namespace gpt2c {

namespace {

/// Bytes of the weights that a rank reads, each part of one once.
class RankWeights {
public:
  void add(const Function &f) {
    for (auto &op : f.ops())
      for (const Value *v : op->operands()) {
        if (!v || !v->def() || !v->def()->is(OpCode::Constant) || !v->def()->constant.valid())
          continue;
        const Tensor &weight = v->def()->constant;
        if (!op->is(OpCode::RankPart))
          whole_[weight.raw()] = weight.bytes();
        else
          add(*op, weight);
      }
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (auto &[address, bytes] : whole_)
      sum += bytes;
    for (auto &[part, bytes] : parts_)
      if (!whole_.count(std::get<0>(part)))
        sum += bytes;
    return sum;
  }

private:
  void add(const Op &part, const Tensor &weight) {
    const int64_t axis = part.intAttr("axis"), size = weight.dim(int(axis)),
                  mine = part.result()->type.shape[axis].constant().value_or(size);
    parts_[{weight.raw(), axis, part.intAttr("unit"), part.intsAttr("units")}] =
        weight.bytes() / size * mine;
  }

  std::map<const void *, uint64_t> whole_;
  std::map<std::tuple<const void *, int64_t, int64_t, std::vector<int64_t>>, uint64_t> parts_;
};

} // namespace

/// Heads of queries of the attention of `f`; 0: it has none.
static int64_t headsOf(const Function &f) {
  for (auto &op : f.ops())
    if (op->is(OpCode::AppendAttention))
      return op->intAttr("num_heads");
  return 0;
}

void describeRanks(const Module &module, plan::PlanT &meta) {
  const Function *decode = module.function(functions::decode);
  const int64_t heads = decode ? headsOf(*decode) : 0;
  if (!heads || !meta.kv)
    return;
  std::set<int64_t> counts;
  for (auto &f : module.functions)
    if (const int64_t ranks = functions::ranksOf(f->name()); ranks > 1)
      counts.insert(ranks);
  for (int64_t ranks : counts) {
    auto out = std::make_unique<plan::RanksT>();
    out->tensor = int32_t(ranks);
    const HeadDeal deal = dealHeads(heads, meta.kv->heads, ranks);
    out->kv_heads.assign(deal.keys.begin(), deal.keys.end());
    RankWeights weights;
    for (auto &f : module.functions)
      if (functions::ranksOf(f->name()) == ranks)
        weights.add(*f);
    out->weight_bytes = weights.bytes();
    meta.ranks.push_back(std::move(out));
  }
}

} // namespace gpt2c
