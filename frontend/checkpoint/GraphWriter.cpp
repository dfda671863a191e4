#include "frontend/checkpoint/GraphWriter.h"
#include "frontend/OpTable.h"
#include "frontend/files/DecodeTensor.h"
#include "ir/Tensor.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

using Name = GraphWriter::Name;

std::string GraphWriter::fresh(llvm::StringRef type) {
  std::string name = part_ + "." + type.str();
  const unsigned count = uses_[name]++;
  return count ? name + "_" + std::to_string(count) : name;
}

static void setAttr(onnx::NodeProto &node, const GraphWriter::Attr &attr) {
  auto &out = *node.add_attribute();
  out.set_name(attr.name);
  if (const auto *i = std::get_if<int64_t>(&attr.value)) {
    out.set_type(onnx::AttributeProto::INT);
    out.set_i(*i);
  } else if (const auto *d = std::get_if<double>(&attr.value)) {
    out.set_type(onnx::AttributeProto::FLOAT);
    out.set_f(float(*d));
  } else if (const auto *s = std::get_if<const char *>(&attr.value)) {
    out.set_type(onnx::AttributeProto::STRING);
    out.set_s(*s);
  } else {
    out.set_type(onnx::AttributeProto::INTS);
    for (int64_t value : std::get<std::vector<int64_t>>(attr.value))
      out.add_ints(value);
  }
}

std::vector<Name> GraphWriter::ops(llvm::StringRef type, unsigned outputs,
                                   llvm::ArrayRef<Name> inputs, llvm::ArrayRef<Attr> attrs) {
  auto &node = *model_.mutable_graph()->add_node();
  const std::string name = fresh(type);
  node.set_name(name);
  node.set_op_type(type.str());
  for (const Name &input : inputs)
    node.add_input(input);
  for (const Attr &attr : attrs)
    setAttr(node, attr);
  std::vector<Name> results;
  for (unsigned i = 0; i < outputs; ++i) {
    results.push_back(i ? name + "." + std::to_string(i) : name);
    node.add_output(results.back());
  }
  return results;
}

Name GraphWriter::op(llvm::StringRef type, llvm::ArrayRef<Name> inputs,
                     llvm::ArrayRef<Attr> attrs) {
  return ops(type, 1, inputs, attrs).front();
}

onnx::TensorProto &GraphWriter::initializer(llvm::StringRef name, int type,
                                            llvm::ArrayRef<int64_t> shape) {
  auto &tensor = *model_.mutable_graph()->add_initializer();
  tensor.set_name(name.str());
  tensor.set_data_type(type);
  for (int64_t d : shape)
    tensor.add_dims(d);
  return tensor;
}

Name GraphWriter::ints(llvm::ArrayRef<int64_t> values) {
  Name name = "ints";
  for (int64_t value : values)
    name += "_" + std::to_string(value);
  if (constants_.insert(name).second) {
    auto &tensor = initializer(name, onnx::TensorProto::INT64, {int64_t(values.size())});
    for (int64_t value : values)
      tensor.add_int64_data(value);
  }
  return name;
}

Name GraphWriter::order(llvm::ArrayRef<int64_t> values) {
  Name name = fresh("order");
  auto &tensor = initializer(name, onnx::TensorProto::INT64, {int64_t(values.size())});
  for (int64_t value : values)
    tensor.add_int64_data(value);
  return name;
}

Name GraphWriter::integer(int64_t value) {
  Name name = "integer_" + std::to_string(value);
  if (constants_.insert(name).second)
    initializer(name, onnx::TensorProto::INT64, {}).add_int64_data(value);
  return name;
}

Name GraphWriter::floats(llvm::ArrayRef<float> values, llvm::ArrayRef<int64_t> shape) {
  Name name = fresh("floats");
  auto &tensor = initializer(name, onnx::TensorProto::FLOAT, shape);
  for (float value : values)
    tensor.add_float_data(value);
  return name;
}

Name GraphWriter::number(double value, DType dtype) {
  const Tensor rounded = Tensor::scalar(value).cast(dtype);
  Name name = fresh("number");
  auto &tensor = initializer(name, toOnnxType(dtype), {});
  tensor.set_raw_data(rounded.raw(), rounded.bytes());
  return name;
}

Name GraphWriter::bytes(llvm::StringRef name, DType dtype, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<uint8_t> values) {
  initializer(name, toOnnxType(dtype), shape).set_raw_data(values.data(), values.size());
  return name.str();
}

void GraphWriter::external(llvm::StringRef name, DType dtype, llvm::ArrayRef<int64_t> shape,
                           llvm::StringRef file, uint64_t offset, uint64_t bytes) {
  auto &tensor = initializer(name, toOnnxType(dtype), shape);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto set = [&](const char *key, std::string value) {
    auto &entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(std::move(value));
  };
  set("location", file.str());
  set("offset", std::to_string(offset));
  set("length", std::to_string(bytes));
}

Name GraphWriter::cast(const Name &x, DType to) {
  return op("Cast", {x}, {{"to", int64_t(toOnnxType(to))}});
}

onnx::ModelProto GraphWriter::finish(llvm::StringRef name, llvm::StringRef ids, const Name &result,
                                     llvm::StringRef resultName) {
  onnx::GraphProto &graph = *model_.mutable_graph();
  graph.set_name(name.str());
  auto &input = *graph.add_input();
  input.set_name(ids.str());
  auto &type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::INT64);
  for (const char *axis : {"batch", "seq"})
    type.mutable_shape()->add_dim()->set_dim_param(axis);
  auto &last = *graph.add_node();
  last.set_op_type("Identity");
  last.set_name(resultName.str());
  last.add_input(result);
  last.add_output(resultName.str());
  graph.add_output()->set_name(resultName.str());
  constexpr int64_t irVersion = 10; // of the newest opset
  model_.set_ir_version(irVersion);
  model_.add_opset_import()->set_version(maxOpset);
  return std::move(model_);
}

} // namespace gpt2c
