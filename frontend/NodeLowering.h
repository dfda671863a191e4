// What a builder function sees of one ONNX node, and how it emits ops.
//
// The first failure sticks: from then on every call returns null and emits nothing, so builders
// read as formulas and check `failed()` only where they would look into a value.
#pragma once

#include "frontend/files/ExternalFiles.h"
#include "ir/Builder.h"
#include "ir/Error.h"

#include "onnx.pb.h"

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

namespace gpt2c {

Dims toDims(llvm::ArrayRef<int64_t> values);

/// What a name in a graph stands for: a tensor, or a sequence whose elements are all known here, so
/// that sequences never reach the IR. Neither: an absent optional input, or the result of a node
/// that could not be translated.
struct Binding {
  Value *tensor = nullptr;
  std::shared_ptr<const std::vector<Value *>> sequence;
  explicit operator bool() const { return tensor || sequence; }
};

class NodeLowering {
public:
  /// `inputs` has null for absent optional inputs; `wanted[i]` says whether anything reads output
  /// i.
  NodeLowering(Builder &builder, const onnx::NodeProto &node, int64_t opset,
               llvm::ArrayRef<Binding> inputs, std::vector<bool> wanted, ExternalFiles &files)
      : builder_(builder), node_(node), opset_(opset), inputs_(inputs), wanted_(std::move(wanted)),
        outputs_(wanted_.size()), files_(files) {}

  /// The version of the node's operator set that the model imports.
  int64_t opset() const { return opset_; }
  unsigned numInputs() const { return inputs_.size(); }
  bool has(unsigned i) const { return i < inputs_.size() && inputs_[i]; }
  /// An optional tensor input; null when absent.
  Value *optional(unsigned i) { return has(i) ? in(i) : nullptr; }
  /// A required tensor input; its absence is the model's error.
  Value *in(unsigned i);
  /// A required sequence input; empty when it is none, which is the model's error.
  llvm::ArrayRef<Value *> sequence(unsigned i);
  unsigned numOutputs() const { return wanted_.size(); }
  bool wants(unsigned i) const { return i < wanted_.size() && wanted_[i]; }
  void out(Value *v) { out(0, v); }
  void out(unsigned i, Value *v);
  void outSequence(std::vector<Value *> elements);
  llvm::ArrayRef<Binding> outputs() const { return outputs_; }

  // Attributes: the default when absent; a wrong kind is the model's error.
  bool hasAttr(llvm::StringRef name) const { return find(name) != nullptr; }
  int64_t intAttr(llvm::StringRef name, int64_t defaultValue);
  int64_t requiredInt(llvm::StringRef name);
  double floatAttr(llvm::StringRef name, double defaultValue);
  std::string stringAttr(llvm::StringRef name, llvm::StringRef defaultValue);
  std::optional<std::vector<int64_t>> intsAttr(llvm::StringRef name);
  std::optional<std::vector<float>> floatsAttr(llvm::StringRef name);
  std::optional<Tensor> tensorAttr(llvm::StringRef name);
  /// The element type in an attribute such as Cast's `to`.
  std::optional<DType> dtypeAttr(llvm::StringRef name);

  /// Records why this node cannot be translated: valid ONNX, but not supported / not valid. Both
  /// return null.
  Value *unsupported(const llvm::Twine &reason);
  Value *invalid(const llvm::Twine &reason);
  Value *fail(llvm::Error e);
  bool failed() const { return failed_; }
  const std::optional<std::string> &unsupportedReason() const { return unsupported_; }
  llvm::Error takeError() { return std::move(error_); }

  // Known facts about values.
  /// The elements of an integer or bool value, where they are constants.
  static std::optional<std::vector<int64_t>> constants(const Value *v);
  /// Elements of input i; a value that is not constant is reported as unsupported.
  std::optional<std::vector<int64_t>> requiredConstants(unsigned i);
  static std::optional<int64_t> staticDim(const Value *v, int64_t axis);
  /// `axis` counted from the front; out of range is the model's error.
  unsigned axis(int64_t axis, const Value *v) { return axisOf(axis, v ? v->type.rank() : 1); }
  unsigned axisOf(int64_t axis, unsigned rank);

  // Emission. C++ leaves the order of a call's arguments open: what emits goes into variables or
  // braces where two arguments of one call would, so that the order of ops does not depend on the
  // compiler.
  using Operands = llvm::ArrayRef<Value *>;
  using Attrs = std::initializer_list<NamedAttr>;
  Value *emit(OpCode code, Operands operands, Attrs attrs = {});
  Value *constant(Tensor t);
  /// A scalar of type `dtype`, rounded to it.
  Value *scalar(double v, DType dtype);
  Value *scalarLike(double v, const Value *like) {
    return scalar(v, like ? like->type.dtype : DType::F32);
  }
  Value *ints(llvm::ArrayRef<int64_t> values);

  Value *add(Value *a, Value *b) { return emit(OpCode::Add, {a, b}); }
  Value *sub(Value *a, Value *b) { return emit(OpCode::Sub, {a, b}); }
  Value *mul(Value *a, Value *b) { return emit(OpCode::Mul, {a, b}); }
  Value *div(Value *a, Value *b) { return emit(OpCode::Div, {a, b}); }
  Value *matmul(Value *a, Value *b) { return emit(OpCode::MatMul, {a, b}); }
  Value *where(Value *c, Value *a, Value *b) { return emit(OpCode::Where, {c, a, b}); }
  Value *equal(Value *a, Value *b) { return emit(OpCode::Equal, {a, b}); }
  Value *cast(Value *v, DType to);
  Value *transpose(Value *v, llvm::ArrayRef<int64_t> perm);
  /// ONNX's rules: 0 copies a dimension, -1 is inferred.
  Value *reshape(Value *v, llvm::ArrayRef<int64_t> shape);
  Value *unsqueeze(Value *v, llvm::ArrayRef<int64_t> axes);
  Value *squeeze(Value *v, llvm::ArrayRef<int64_t> axes);
  Value *concat(Operands values, int64_t axis);
  /// Elements begin .. end - 1 along `axis`.
  Value *slice(Value *v, int64_t axis, Dim begin, Dim end);
  Value *softmax(Value *v, int64_t axis = -1);
  Value *reduce(OpCode code, Value *v, llvm::ArrayRef<int64_t> axes, bool keepDims);
  Value *shapeOf(Value *v) { return emit(OpCode::Shape, {v}); }
  /// The size of one axis, an i64 vector of one element.
  Value *sizeOf(Value *v, int64_t axis);
  /// 0, 1, ... n - 1 for an i64 vector `n` of one element.
  Value *iota(Value *n);

private:
  const onnx::AttributeProto *find(llvm::StringRef name) const;
  const onnx::AttributeProto *find(llvm::StringRef name, onnx::AttributeProto::AttributeType type);

  Builder &builder_;
  const onnx::NodeProto &node_;
  int64_t opset_;
  llvm::ArrayRef<Binding> inputs_;
  std::vector<bool> wanted_;
  llvm::SmallVector<Binding, 4> outputs_;
  ExternalFiles &files_;
  bool failed_ = false;
  std::optional<std::string> unsupported_;
  llvm::Error error_ = llvm::Error::success();
};

} // namespace gpt2c
