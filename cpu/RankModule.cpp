#include "cpu/RankModule.h"

#include "ir/Builder.h"
#include "ir/Error.h"
#include "ir/Executor.h"
#include "ir/FunctionNames.h"
#include "runtime/group/GroupBackend.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <tuple>

namespace gpt2c {

llvm::Error toError(const rt::Status &s) {
  if (s.ok())
    return llvm::Error::success();
  return makeError(ExitCode(int(s.code())), s.message());
}

llvm::Error LinkedGroup::gather(llvm::ArrayRef<char> mine, llvm::MutableArrayRef<char> all) {
  return toError(link_.gather(std::as_bytes(std::span(mine.data(), mine.size())),
                              std::as_writable_bytes(std::span(all.data(), all.size()))));
}

void keepWhole(Module &module) {
  llvm::erase_if(module.functions, [](const auto &f) { return functions::ranksOf(f->name()) > 1; });
}

namespace {

/// The parts of weights that functions of one rank share.
class WeightParts {
public:
  llvm::Expected<Tensor> of(Op &part, const Tensor &weight) {
    Tensor &known =
        made_[{weight.raw(), part.intAttr("axis"), part.intAttr("unit"), part.intsAttr("units")}];
    if (known.valid())
      return known;
    auto value = evaluateOp(part, {weight}, {});
    if (!value)
      return value.takeError();
    return known = std::move((*value)[0]);
  }

private:
  std::map<std::tuple<const void *, int64_t, int64_t, std::vector<int64_t>>, Tensor> made_;
};

} // namespace

static llvm::Error takeParts(Function &f, WeightParts &parts,
                             llvm::function_ref<bool(const Op &)> wanted) {
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::RankPart) || !op->operand(0)->def() ||
        !op->operand(0)->def()->is(OpCode::Constant) || !wanted(*op))
      continue;
    auto mine = parts.of(*op, op->operand(0)->def()->constant);
    if (!mine)
      return mine.takeError();
    Builder b(f, op.get());
    Value *constant = b.constant(std::move(*mine));
    constant->name = op->result()->name;
    op->result()->replaceAllUsesWith(constant);
  }
  f.eraseDeadOps();
  return llvm::Error::success();
}

llvm::Error keepDivision(Module &module, const plan::PlanT &meta, int ranks) {
  if (!rt::ranksOf(meta, ranks))
    return makeError(ExitCode::PlanIncompatible, rt::noSuchRanks(meta, ranks).message());
  llvm::erase_if(module.functions,
                 [&](const auto &f) { return functions::ranksOf(f->name()) != ranks; });
  if (module.functions.empty())
    return makeError(ExitCode::PlanCorrupt,
                     "the plan's IR has no function for " + llvm::Twine(ranks) + " ranks");
  for (auto &f : module.functions)
    f->setName(f->name().substr(0, f->name().rfind("_tp")));
  return llvm::Error::success();
}

llvm::Error takeParts(Module &module, Group &group, llvm::function_ref<bool(const Op &)> wanted) {
  const Group::Scope scope(&group);
  WeightParts parts;
  for (auto &f : module.functions)
    if (llvm::Error e = takeParts(*f, parts, wanted))
      return e;
  return llvm::Error::success();
}

} // namespace gpt2c
