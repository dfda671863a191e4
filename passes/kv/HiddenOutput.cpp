#include "passes/kv/HiddenOutput.h"

#include "ir/Error.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static llvm::Error noHidden(const llvm::Twine &why) {
  return makeError(ExitCode::Usage, "--output-hidden: " + why);
}

/// The operand that `op` computes the same rows from; null where that may be several.
static Value *rowsBehind(const Op &op) {
  if (!op.info().has(Elementwise))
    return op.numOperands() ? op.operand(0) : nullptr;
  Value *only = nullptr;
  for (Value *v : op.operands()) {
    if (!v || constantOp(v))
      continue;
    if (only)
      return nullptr;
    only = v;
  }
  return only;
}

/// The product that makes `logits`, apart from what is done to each of its elements.
static const Op *headOf(Value *logits) {
  for (Value *v = logits; v && v->def(); v = rowsBehind(*v->def())) {
    const Op *op = v->def();
    if (op->is(OpCode::Linear) || op->is(OpCode::MatMul))
      return op;
    if (!op->info().has(Elementwise) && !op->is(OpCode::Reshape) && !op->is(OpCode::Slice))
      return nullptr;
  }
  return nullptr;
}

/// Whether `v` has a row for each token that some argument of ids has.
static bool isOfEveryToken(const Function &f, const Value *v) {
  if (v->type.rank() != 3 || !isFloat(v->type.dtype) || !v->type.shape[2].constant())
    return false;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Type &ids = f.argument(i)->type;
    if ((ids.dtype == DType::I64 || ids.dtype == DType::I32) && ids.rank() == 2 &&
        ids.shape[0] == v->type.shape[0] && ids.shape[1] == v->type.shape[1])
      return true;
  }
  return false;
}

static std::string nameOf(const Function &f, unsigned result) {
  return result < f.resultNames.size() ? f.resultNames[result] : "";
}

llvm::Error outputHidden(Function &f) {
  std::optional<unsigned> logits;
  for (unsigned i = 0; i < f.returned().size(); ++i) {
    if (nameOf(f, i) == hiddenOutputName && isOfEveryToken(f, f.returned()[i]))
      return llvm::Error::success();
    if (!logits && llvm::StringRef(nameOf(f, i)).contains("logits"))
      logits = i;
  }
  for (unsigned i = 0; !logits && i < f.returned().size(); ++i)
    if (headOf(f.returned()[i]))
      logits = i;
  if (!logits)
    return noHidden("the graph has no output of logits and none called " +
                    llvm::Twine(hiddenOutputName));
  const Op *head = headOf(f.returned()[*logits]);
  if (!head)
    return noHidden("what makes the output '" + nameOf(f, *logits) + "' is no product");
  Value *hidden = head->operand(0);
  while (!isOfEveryToken(f, hidden) && hidden->def() && hidden->def()->is(OpCode::Reshape))
    hidden = hidden->def()->operand(0);
  if (!isOfEveryToken(f, hidden))
    return noHidden("what makes the output '" + nameOf(f, *logits) +
                    "' takes no row of each token: export the logits of every token");
  f.terminator()->setOperand(*logits, hidden);
  f.resultNames.resize(f.returned().size());
  f.resultNames[*logits] = hiddenOutputName;
  f.eraseDeadOps();
  return llvm::Error::success();
}

} // namespace gpt2c
