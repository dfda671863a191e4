#include "ir/Builder.h"

namespace gpt2c {

llvm::Expected<Op *> Builder::create(OpCode code, llvm::ArrayRef<Value *> operands,
                                     llvm::ArrayRef<NamedAttr> attrs, unsigned numResults) {
  unsigned results = numResults ? numResults : opInfo(code).numResults;
  Op *op = function_.insert(code, operands, results, before_);
  for (const NamedAttr &a : attrs)
    op->setAttr(a.name, a.value);
  op->addLocations(locations_);
  if (llvm::Error e = inferOp(*op)) {
    function_.erase(op);
    return e;
  }
  created_.push_back(op);
  return op;
}

llvm::Expected<Value *> Builder::value(OpCode code, llvm::ArrayRef<Value *> operands,
                                       llvm::ArrayRef<NamedAttr> attrs) {
  auto op = create(code, operands, attrs);
  if (!op)
    return op.takeError();
  return (*op)->result();
}

Value *Builder::constant(Tensor t) {
  Op *op = function_.insert(OpCode::Constant, {}, 1, before_);
  op->constant = std::move(t);
  op->addLocations(locations_);
  llvm::cantFail(inferOp(*op), "constants always infer");
  created_.push_back(op);
  return op->result();
}

void Builder::ret(llvm::ArrayRef<Value *> values) {
  function_.insert(OpCode::Return, values, 0, before_);
}

} // namespace gpt2c
