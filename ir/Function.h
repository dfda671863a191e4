// Functions and modules.
//
// A function's body is a list of ops in an order where every op comes after the ops it uses; the
// last op is `return`.
#pragma once

#include "ir/DimBounds.h"
#include "ir/Op.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace gpt2c {

class Function {
public:
  explicit Function(std::string name) : name_(std::move(name)) {}
  ~Function();
  Function(const Function &) = delete;
  Function &operator=(const Function &) = delete;

  const std::string &name() const { return name_; }
  void setName(std::string name) { name_ = std::move(name); }

  Value *addArgument(Type type, std::string name);
  void eraseArgument(unsigned i); // must have no uses
  unsigned numArguments() const { return arguments_.size(); }
  Value *argument(unsigned i) const { return arguments_[i].get(); }
  Value *argument(llvm::StringRef name) const; // null when absent

  const OpList &ops() const { return ops_; }
  OpList &ops() { return ops_; }
  /// The return op; null while the function is being built.
  Op *terminator() const;
  llvm::ArrayRef<Value *> returned() const { return terminator()->operands(); }
  /// Names of the returned values, in order (the exported graph's output names); may be shorter
  /// than the list.
  std::vector<std::string> resultNames;

  /// A new op before `before` (null: at the end), result types not inferred yet. Use Builder where
  /// types matter.
  Op *insert(OpCode code, llvm::ArrayRef<Value *> operands, unsigned numResults, Op *before);
  /// Results must have no uses.
  void erase(Op *op);
  /// Moves `op` to just before `before`.
  void moveBefore(Op *op, Op *before);
  Op *next(const Op *op) const; // null at the end

  /// Removes ops whose results have no uses. Returns how many.
  unsigned eraseDeadOps();
  /// Orders the body so that definitions come before uses, keeping the present order where it can
  /// (stable). Fails on a cycle, naming the ops on it.
  llvm::Error sortTopologically();

  /// Limits of sizes in every call that can run, found by passes.
  DimBounds limits;
  /// What is known of the symbols: the limits, and that there is a text. The axes of integer
  /// arguments (ids, masks, positions) are at least 1, those of floating-point ones of rank 3 where
  /// there are none; a past may be empty.
  DimBounds bounds() const;

  /// Replaces `symbol` in every type, content, attribute and limit.
  void substitute(llvm::StringRef symbol, const Dim &by);
  /// Runs inference again over the whole body, from the arguments' types.
  llvm::Error inferTypes();

  /// A copy with the same ops; `map` (optional) receives old value -> new value.
  std::unique_ptr<Function> clone(std::string name,
                                  llvm::DenseMap<Value *, Value *> *map = nullptr) const;

private:
  std::string name_;
  std::vector<std::unique_ptr<Value>> arguments_;
  OpList ops_;
};

struct Module {
  std::string name;
  std::vector<std::unique_ptr<Function>> functions;
  /// Free-form facts printed at the top of the text form: producer, opset, ...
  std::vector<std::pair<std::string, std::string>> properties;

  Function *function(llvm::StringRef name) const; // null when absent
  Function *addFunction(std::string name);
};

/// Shares one storage between constants of equal content within its lifetime.
class ConstantPool {
public:
  Tensor share(Tensor t);

private:
  llvm::DenseMap<uint64_t, llvm::SmallVector<Tensor, 1>> byHash_;
};

} // namespace gpt2c
