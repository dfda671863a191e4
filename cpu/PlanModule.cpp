#include "cpu/PlanModule.h"

#include "cpu/Convert.h"
#include "ir/Error.h"
#include "ir/Text.h"

#include "llvm/ADT/StringMap.h"

namespace gpt2c {

llvm::Expected<std::unique_ptr<Module>> loadPlanModule(rt::Plan::Ptr plan) {
  llvm::StringMap<size_t> byName;
  for (size_t i = 0; i < plan->meta().weights.size(); ++i)
    byName.try_emplace(plan->meta().weights[i]->name, i);
  ParseOptions options;
  options.weights = [&](uint64_t hash, const Type &type) -> Tensor {
    auto it = byName.find(hashText(hash));
    if (it == byName.end())
      return {};
    const plan::WeightT &weight = *plan->meta().weights[it->second];
    bool same = fromPlan(weight.dtype) == type.dtype && weight.shape.size() == type.rank();
    for (size_t i = 0; same && i < weight.shape.size(); ++i)
      same = type.shape[i] == Dim(weight.shape[i]);
    if (!same)
      return {};
    return Tensor(type.dtype, weight.shape, plan->weight(it->second).data(), plan);
  };
  auto module = parseModule(llvm::StringRef(plan->irText()), "<IR of the plan>", options);
  if (!module)
    return makeError(ExitCode::PlanCorrupt,
                     "the IR in the plan does not parse: " + llvm::toString(module.takeError()));
  for (auto &function : (*module)->functions)
    for (auto &op : function->ops())
      if (op->is(OpCode::Constant) && !op->constant.valid())
        return makeError(ExitCode::PlanCorrupt,
                         "@" + function->name() + ": the plan has no bytes for " + op->describe() +
                             " of type " + op->result()->type.str());
  return module;
}

} // namespace gpt2c
