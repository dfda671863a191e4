#include "frontend/NodeLowering.h"
#include "frontend/Graph.h"
#include "frontend/files/DecodeTensor.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

namespace gpt2c {

Dims toDims(llvm::ArrayRef<int64_t> values) { return Dims(values.begin(), values.end()); }

Value *NodeLowering::in(unsigned i) {
  if (!has(i))
    return invalid("input " + llvm::Twine(i) + " is missing");
  if (!inputs_[i].tensor)
    return invalid("input " + llvm::Twine(i) + " is a sequence where a tensor is expected");
  return inputs_[i].tensor;
}

llvm::ArrayRef<Value *> NodeLowering::sequence(unsigned i) {
  if (has(i) && inputs_[i].sequence)
    return *inputs_[i].sequence;
  invalid("input " + llvm::Twine(i) + " must be a sequence");
  return {};
}

void NodeLowering::outSequence(std::vector<Value *> elements) {
  if (!failed_ && !outputs_.empty())
    outputs_[0].sequence = std::make_shared<const std::vector<Value *>>(std::move(elements));
}

void NodeLowering::out(unsigned i, Value *v) {
  if (i >= outputs_.size() || !v)
    return;
  outputs_[i].tensor = v;
  bool fresh = v->def() && llvm::is_contained(builder_.created(), v->def());
  if (fresh && v->name.empty())
    v->name = node_.output(i);
}

const onnx::AttributeProto *NodeLowering::find(llvm::StringRef name) const {
  for (const auto &a : node_.attribute())
    if (a.name() == name)
      return &a;
  return nullptr;
}

const onnx::AttributeProto *NodeLowering::find(llvm::StringRef name,
                                               onnx::AttributeProto::AttributeType type) {
  const onnx::AttributeProto *a = find(name);
  if (a && a->type() != type) {
    invalid("attribute '" + name + "' is of another kind than the operator's definition says");
    return nullptr;
  }
  return a;
}

int64_t NodeLowering::intAttr(llvm::StringRef name, int64_t defaultValue) {
  const auto *a = find(name, onnx::AttributeProto::INT);
  return a ? a->i() : defaultValue;
}

int64_t NodeLowering::requiredInt(llvm::StringRef name) {
  if (!hasAttr(name))
    invalid("attribute '" + name + "' is missing");
  return intAttr(name, 0);
}

double NodeLowering::floatAttr(llvm::StringRef name, double defaultValue) {
  const auto *a = find(name, onnx::AttributeProto::FLOAT);
  return a ? a->f() : defaultValue;
}

std::string NodeLowering::stringAttr(llvm::StringRef name, llvm::StringRef defaultValue) {
  const auto *a = find(name, onnx::AttributeProto::STRING);
  return a ? a->s() : defaultValue.str();
}

std::optional<std::vector<int64_t>> NodeLowering::intsAttr(llvm::StringRef name) {
  const auto *a = find(name, onnx::AttributeProto::INTS);
  if (!a)
    return std::nullopt;
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

std::optional<std::vector<float>> NodeLowering::floatsAttr(llvm::StringRef name) {
  const auto *a = find(name, onnx::AttributeProto::FLOATS);
  if (!a)
    return std::nullopt;
  return std::vector<float>(a->floats().begin(), a->floats().end());
}

std::optional<Tensor> NodeLowering::tensorAttr(llvm::StringRef name) {
  const auto *a = find(name, onnx::AttributeProto::TENSOR);
  if (!a)
    return std::nullopt;
  if (isOfSteps(a->t().data_type())) {
    unsupported(
        "constants of four bits and of float8e4m3fn are not supported, but as initializers");
    return std::nullopt;
  }
  auto tensor = decodeTensor(a->t(), nullptr, &files_);
  if (tensor)
    return std::move(*tensor);
  fail(llvm::handleErrors(tensor.takeError(), [&](const CodedError &e) -> llvm::Error {
    if (e.code() != ExitCode::Unsupported)
      return makeError(e.code(), "attribute '" + name + "': " + e.message());
    unsupported(e.message());
    return llvm::Error::success();
  }));
  return std::nullopt;
}

std::optional<DType> NodeLowering::dtypeAttr(llvm::StringRef name) {
  int64_t type = requiredInt(name);
  if (failed_)
    return std::nullopt;
  auto dtype = fromOnnxType(type);
  if (!dtype)
    unsupported("element type " + onnxTypeName(type) + " is not supported");
  return dtype;
}

Value *NodeLowering::unsupported(const llvm::Twine &reason) {
  if (!failed_)
    unsupported_ = reason.str();
  failed_ = true;
  return nullptr;
}

Value *NodeLowering::invalid(const llvm::Twine &reason) {
  return fail(makeError(ExitCode::InvalidModel, reason));
}

Value *NodeLowering::fail(llvm::Error e) {
  if (!e)
    return nullptr;
  if (failed_) {
    llvm::consumeError(std::move(e));
    return nullptr;
  }
  failed_ = true;
  error_ = llvm::handleErrors(
      std::move(e),
      [&](const CodedError &c) {
        return makeError(c.code(), describeNode(node_) + ": " + c.message());
      },
      [&](const llvm::ErrorInfoBase &info) {
        return makeError(ExitCode::InvalidModel, describeNode(node_) + ": " + info.message());
      });
  return nullptr;
}

std::optional<std::vector<int64_t>> NodeLowering::constants(const Value *v) {
  if (!v || isFloat(v->type.dtype))
    return std::nullopt;
  std::vector<int64_t> out;
  if (v->content) {
    for (const Dim &d : *v->content) {
      if (!d.isConstant())
        return std::nullopt;
      out.push_back(*d.constant());
    }
    return out;
  }
  if (!v->def() || !v->def()->is(OpCode::Constant))
    return std::nullopt;
  const Tensor &t = v->def()->constant;
  for (int64_t i = 0; i < t.count(); ++i)
    out.push_back(t.asInt(i));
  return out;
}

std::optional<std::vector<int64_t>> NodeLowering::requiredConstants(unsigned i) {
  auto values = constants(in(i));
  if (!values)
    unsupported("input " + llvm::Twine(i) + " is not a constant");
  return values;
}

std::optional<int64_t> NodeLowering::staticDim(const Value *v, int64_t axis) {
  int64_t rank = v ? v->type.rank() : 0;
  if (axis < 0)
    axis += rank;
  if (axis < 0 || axis >= rank)
    return std::nullopt;
  return v->type.shape[axis].constant();
}

unsigned NodeLowering::axisOf(int64_t axis, unsigned rank) {
  int64_t a = axis < 0 ? axis + rank : axis;
  if (a >= 0 && a < rank)
    return a;
  invalid("axis " + llvm::Twine(axis) + " is out of range for rank " + llvm::Twine(rank));
  return 0;
}

Value *NodeLowering::emit(OpCode code, Operands operands, Attrs attrs) {
  if (failed_)
    return nullptr;
  auto v = builder_.value(code, operands, attrs);
  if (!v)
    return fail(v.takeError());
  return *v;
}

Value *NodeLowering::constant(Tensor t) {
  return failed_ ? nullptr : builder_.constant(std::move(t));
}

Value *NodeLowering::scalar(double v, DType dtype) {
  return constant(Tensor::scalar(v).cast(dtype));
}

Value *NodeLowering::ints(llvm::ArrayRef<int64_t> values) {
  return constant(Tensor::of<int64_t>(values, {static_cast<int64_t>(values.size())}));
}

Value *NodeLowering::cast(Value *v, DType to) {
  if (failed_ || v->type.dtype == to)
    return v;
  return emit(OpCode::Cast, {v}, {{"to", to}});
}

Value *NodeLowering::transpose(Value *v, llvm::ArrayRef<int64_t> perm) {
  return emit(OpCode::Transpose, {v}, {{"perm", toDims(perm)}});
}

Value *NodeLowering::reshape(Value *v, llvm::ArrayRef<int64_t> shape) {
  return emit(OpCode::Reshape, {v}, {{"shape", toDims(shape)}});
}

Value *NodeLowering::unsqueeze(Value *v, llvm::ArrayRef<int64_t> axes) {
  return emit(OpCode::Unsqueeze, {v}, {{"axes", toDims(axes)}});
}

Value *NodeLowering::squeeze(Value *v, llvm::ArrayRef<int64_t> axes) {
  return emit(OpCode::Squeeze, {v}, {{"axes", toDims(axes)}});
}

Value *NodeLowering::concat(Operands values, int64_t axis) {
  return emit(OpCode::Concat, values, {{"axis", axis}});
}

Value *NodeLowering::slice(Value *v, int64_t axis, Dim begin, Dim end) {
  return emit(
      OpCode::Slice, {v},
      {{"starts", Dims{std::move(begin)}}, {"ends", Dims{std::move(end)}}, {"axes", Dims{axis}}});
}

Value *NodeLowering::softmax(Value *v, int64_t axis) {
  return emit(OpCode::Softmax, {v}, {{"axis", axis}});
}

Value *NodeLowering::reduce(OpCode code, Value *v, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  return emit(code, {v}, {{"axes", toDims(axes)}, {"keepdims", keepDims}});
}

Value *NodeLowering::sizeOf(Value *v, int64_t axis) {
  int64_t a = axis < 0 && v ? axis + v->type.rank() : axis;
  return emit(OpCode::Shape, {v}, {{"start", a}, {"end", a + 1}});
}

Value *NodeLowering::iota(Value *n) {
  return emit(OpCode::Range, {scalar(0, DType::I64), squeeze(n, {0}), scalar(1, DType::I64)});
}

} // namespace gpt2c
