// short-texts: some graphs cut their text to its last n tokens, ids[:, -n:], and compute min(seq,
// n) of them. A KV state of up to n tokens never cuts. So such a graph gets a second function,
// @generation, with the limit seq <= n, in which
//   ids[:, -n:] = ids
// and kv-transform makes @prefill and @decode of it; @forward stays the exported graph, right at
// every length.
#include "ir/FunctionNames.h"
#include "ir/Piecewise.h"
#include "passes/Rewrite.h"
#include "passes/proof/KvInterface.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The limit of a text that `op` leaves whole: of an integer argument [batch, seq] it takes
/// min(seq, n) tokens.
static std::optional<DimBounds::Limit> cutOf(const Op &op) {
  Value *text = op.is(OpCode::Slice) ? copiedArgument(op.operand(ops::Slice::X)) : nullptr;
  if (!text || isFloat(text->type.dtype) || text->type.rank() != 2 ||
      op.result()->type.rank() != 2 || !text->type.shape[1].asSymbol())
    return std::nullopt;
  auto size = Piecewise::from(op.result()->type.shape[1]);
  const bool cuts = size && size->x == text->type.shape[1] && size->offset == 0 &&
                    size->slope == 1 && size->bends.size() == 1 && size->bends[0].change == -1;
  return cuts ? std::optional(DimBounds::Limit{size->x, size->bends[0].at}) : std::nullopt;
}

/// Attributes in the form that the function's bounds allow.
static void simplifyAttributes(Function &f) {
  const DimBounds bounds = f.bounds();
  for (auto &op : f.ops()) {
    llvm::SmallVector<NamedAttr, 4> attrs(op->givenAttrs());
    for (NamedAttr &a : attrs)
      if (auto *dims = std::get_if<Dims>(&a.value)) {
        for (Dim &d : *dims)
          d = d.within(bounds);
        op->setAttr(a.name, *dims);
      }
  }
}

llvm::Error shortTexts(PassContext &ctx) {
  Module &m = ctx.module();
  if (m.functions.size() != 1 || m.function(functions::forward))
    return llvm::Error::success();
  std::optional<DimBounds::Limit> cut;
  for (auto &op : m.functions.front()->ops())
    if (auto limit = cutOf(*op); limit && (!cut || limit->most < cut->most))
      cut = limit;
  if (!cut)
    return llvm::Error::success();
  auto owned = m.functions.front()->clone(functions::generation);
  if (!owned->limits.atMost(cut->sum, cut->most))
    return llvm::Error::success();
  simplifyAttributes(*owned);
  if (llvm::Error e = owned->inferTypes()) { // the graph runs for longer texts alone
    llvm::consumeError(std::move(e));
    return llvm::Error::success();
  }
  for (auto &op : owned->ops()) {
    const bool whole = op->is(OpCode::Slice) && copiedArgument(op->operand(ops::Slice::X)) &&
                       op->result()->type == op->operand(ops::Slice::X)->type &&
                       (!op->hasAttr("steps") || op->dimsAttr("steps") == Dims{1});
    if (whole)
      op->result()->replaceAllUsesWith(op->operand(ops::Slice::X));
  }
  owned->eraseDeadOps();
  m.functions.push_back(std::move(owned));
  return llvm::Error::success();
}

} // namespace gpt2c
