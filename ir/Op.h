// Values, ops and the table of op kinds.
//
// An op computes its results from its operands and attributes and has no other effect. The one
// exception is stated by the trait `InPlace`: result 0 takes over the storage of operand 0, which
// must have no later use.
#pragma once

#include "ir/Attr.h"
#include "ir/Operands.h"
#include "ir/Tensor.h"
#include "ir/Type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <list>
#include <memory>
#include <optional>

namespace gpt2c {

class Op;
class Function;
class Value;
class InferContext;
class EvalContext;

enum class OpCode : uint16_t {
#define OP(Name, ...) Name,
#include "ir/Ops.def"
};

struct OperandSpec {
  llvm::StringRef name;
  enum Kind : uint8_t {
    Required,
    Optional,
    Variadic
  } kind = Required; // Variadic and Optional come last
  /// Constants of this operand keep single precision whatever the precision of the plan.
  bool single = false;
  /// Evaluation takes f16 and bf16 of this operand as they are stored, where the others are F32.
  bool stored = false;
};

struct AttrSpec {
  llvm::StringRef name;
  AttrKind kind;
  /// Absent: the attribute must be given unless `optional`.
  std::optional<Attr> defaultValue = std::nullopt;
  llvm::StringRef doc = "";
  /// An attribute that may be absent and has no default.
  bool optional = false;
};

enum Trait : uint32_t {
  NoTraits = 0,
  Elementwise = 1 << 0, // results computed element by element after broadcasting
  Commutative = 1 << 1, // the first two operands may be exchanged
  DataMovement =
      1 << 2, // copies elements of operand 0 (or of all operands, for concat) without arithmetic
  InPlace = 1 << 3,    // result 0 takes over the storage of operand 0
  Idempotent = 1 << 4, // f(f(x)) == f(x)
  Terminator = 1 << 5, // ends a function
  Reduction = 1 << 6,  // reduces over axes
  OwnStorage = 1 << 7, // evaluation sees operands as stored and narrows its results itself
};

/// Work of one execution: floating-point operations and the fewest bytes read and written.
struct Cost {
  Dim flops;
  Dim bytes;
};

/// All that an op kind means; one constant object per op, defined in ir/ops/<Op>.cpp.
struct OpInfo {
  OpCode code;
  llvm::StringRef mnemonic; // text form
  llvm::StringRef summary;  // one line with the formula, for the reference
  std::vector<OperandSpec> operands = {};
  std::vector<AttrSpec> attrs = {};
  unsigned numResults = 1; // 0: given by attribute or by the op (variadic), see `infer`
  uint32_t traits = NoTraits;
  /// Sets the results' types (and contents) from the operands. Reports operands the op does not
  /// accept.
  llvm::Error (*infer)(InferContext &) = nullptr;
  /// Computes the results. Null: no reference evaluation (terminators).
  llvm::Error (*eval)(EvalContext &) = nullptr;
  /// Null: no flops; bytes of operands and results.
  Cost (*cost)(const Op &) = nullptr;

  bool has(Trait t) const { return traits & t; }
  const AttrSpec *attr(llvm::StringRef name) const;
};

const OpInfo &opInfo(OpCode code);
/// Null when there is no such op.
const OpInfo *findOp(llvm::StringRef mnemonic);
llvm::ArrayRef<const OpInfo *> allOps();

struct Use {
  Op *op;
  unsigned operand;
};

/// A result of an op, or an argument of a function.
class Value {
public:
  Type type;
  /// Symbolic elements of an integer scalar or vector, where inference knows them all: the value of
  /// a shape computation. Row-major; empty for an empty vector.
  std::optional<Dims> content;
  /// Preferred name in the text form, without '%'; may be empty.
  std::string name;

  Op *def() const { return def_; }          // null for arguments
  Function *function() const;               // null when detached
  unsigned index() const { return index_; } // among the results or arguments
  llvm::ArrayRef<Use> uses() const { return uses_; }
  bool hasOneUse() const { return uses_.size() == 1; }
  /// Every use becomes a use of `by`.
  void replaceAllUsesWith(Value *by);

private:
  friend class Op;
  friend class Function;
  Op *def_ = nullptr;
  Function *parent_ = nullptr; // arguments only
  unsigned index_ = 0;
  llvm::SmallVector<Use, 2> uses_;
};

using OpList = std::list<std::unique_ptr<Op>>;

class Op {
public:
  ~Op();
  OpCode code() const { return code_; }
  bool is(OpCode c) const { return code_ == c; }
  const OpInfo &info() const { return opInfo(code_); }
  Function *function() const { return function_; }

  unsigned numOperands() const { return operands_.size(); }
  /// Null for an absent optional operand, also past the end.
  Value *operand(unsigned i) const { return i < operands_.size() ? operands_[i] : nullptr; }
  llvm::ArrayRef<Value *> operands() const { return operands_; }
  void setOperand(unsigned i, Value *v);
  void setOperands(llvm::ArrayRef<Value *> values);

  unsigned numResults() const { return results_.size(); }
  Value *result(unsigned i = 0) const { return results_[i].get(); }
  auto results() const {
    llvm::SmallVector<Value *, 2> r;
    for (auto &v : results_)
      r.push_back(v.get());
    return r;
  }
  bool hasUses() const;

  /// Attributes: `attr` returns the value given or the default; null when there is neither.
  const Attr *attr(llvm::StringRef name) const;
  bool boolAttr(llvm::StringRef name) const { return std::get<bool>(*attr(name)); }
  int64_t intAttr(llvm::StringRef name) const { return std::get<int64_t>(*attr(name)); }
  double floatAttr(llvm::StringRef name) const { return std::get<double>(*attr(name)); }
  const std::string &stringAttr(llvm::StringRef name) const {
    return std::get<std::string>(*attr(name));
  }
  DType dtypeAttr(llvm::StringRef name) const { return std::get<DType>(*attr(name)); }
  const Dims &dimsAttr(llvm::StringRef name) const { return std::get<Dims>(*attr(name)); }
  /// A Dims attribute of constants.
  std::vector<int64_t> intsAttr(llvm::StringRef name) const;
  bool hasAttr(llvm::StringRef name) const { return attr(name) != nullptr; }
  void setAttr(llvm::StringRef name, Attr value);
  void removeAttr(llvm::StringRef name);
  /// As given, in the order of the signature.
  llvm::ArrayRef<NamedAttr> givenAttrs() const { return attrs_; }

  /// Bytes of a constant op; invalid for others and for constants whose data was elided.
  Tensor constant;

  /// Interned names of the ONNX nodes (or IR lines) this op came from, sorted, without repeats.
  llvm::SmallVector<llvm::StringRef, 2> locations;
  void addLocations(llvm::ArrayRef<llvm::StringRef> names);
  /// "layer_norm (from /ln_1/Sub, /ln_1/Pow)" for messages.
  std::string describe() const;

private:
  friend class Function;
  friend class Value;
  Op(OpCode code, llvm::ArrayRef<Value *> operands, unsigned numResults);
  void dropUse(unsigned operand);

  OpCode code_;
  Function *function_ = nullptr;
  OpList::iterator self_;
  llvm::SmallVector<Value *, 4> operands_;
  llvm::SmallVector<std::unique_ptr<Value>, 1> results_;
  llvm::SmallVector<NamedAttr, 2> attrs_;
};

} // namespace gpt2c
