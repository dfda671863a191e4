// Small ONNX models written in C++, for tests.
#pragma once

#include "onnx.pb.h"

#include <initializer_list>
#include <string>

namespace gpt2c::test {

/// A model of opset 17 that a test adds nodes to.
struct OnnxGraph {
  onnx::ModelProto model;

  explicit OnnxGraph(int64_t opset = 17) {
    model.set_ir_version(8);
    import("", opset);
    graph().set_name("test");
  }

  onnx::GraphProto &graph() { return *model.mutable_graph(); }
  void import(const std::string &domain, int64_t version) {
    auto *o = model.add_opset_import();
    o->set_domain(domain);
    o->set_version(version);
  }

  /// A dimension below zero is left without a value.
  void input(const std::string &name, std::initializer_list<int64_t> shape,
             int type = onnx::TensorProto::FLOAT) {
    auto *v = graph().add_input();
    v->set_name(name);
    auto *tensor = v->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (int64_t d : shape) {
      auto *dim = tensor->mutable_shape()->add_dim();
      if (d >= 0)
        dim->set_dim_value(d);
    }
  }
  void output(const std::string &name) { graph().add_output()->set_name(name); }

  onnx::NodeProto &node(const std::string &op, std::initializer_list<std::string> inputs,
                        std::initializer_list<std::string> outputs, const std::string &name = "",
                        const std::string &domain = "") {
    auto &n = *graph().add_node();
    n.set_op_type(op);
    n.set_name(name);
    n.set_domain(domain);
    for (auto &i : inputs)
      n.add_input(i);
    for (auto &o : outputs)
      n.add_output(o);
    return n;
  }

  onnx::TensorProto &initializer(const std::string &name, std::initializer_list<int64_t> shape,
                                 std::initializer_list<float> values) {
    auto &t = *graph().add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t d : shape)
      t.add_dims(d);
    for (float v : values)
      t.add_float_data(v);
    return t;
  }

  std::string bytes() const { return model.SerializeAsString(); }
};

inline void setInt(onnx::NodeProto &n, const std::string &name, int64_t v) {
  auto *a = n.add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INT);
  a->set_i(v);
}

inline void setInts(onnx::NodeProto &n, const std::string &name,
                    std::initializer_list<int64_t> values) {
  auto *a = n.add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INTS);
  for (int64_t v : values)
    a->add_ints(v);
}
inline void setFloat(onnx::NodeProto &n, const std::string &name, float v) {
  auto *a = n.add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::FLOAT);
  a->set_f(v);
}
inline void setString(onnx::NodeProto &n, const std::string &name, const std::string &v) {
  auto *a = n.add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::STRING);
  a->set_s(v);
}

} // namespace gpt2c::test
