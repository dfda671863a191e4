// Names, symbols, locations and sharing in imported modules.
#include "frontend/Import.h"
#include "tests/unit/frontend/OnnxGraph.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace gpt2c;
using namespace gpt2c::test;

static std::unique_ptr<Module> import(const OnnxGraph &g, const ImportOptions &options = {}) {
  auto m = importOnnxBytes(g.bytes(), "test.onnx", options);
  EXPECT_TRUE(bool(m)) << llvm::toString(m.takeError());
  return std::move(*m);
}

static void setDim(OnnxGraph &g, int input, int dim, const std::string &name) {
  g.graph()
      .mutable_input(input)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(dim)
      ->set_dim_param(name);
}

static std::string argumentType(const Module &m, unsigned i) {
  return m.function("main")->argument(i)->type.str();
}

TEST(Import, ArgumentsAreTheInputsThatAreNoInitializers) {
  OnnxGraph g;
  g.input("w", {3});
  g.input("ids", {2, 3}, onnx::TensorProto::INT32);
  g.input("x", {2, 3});
  g.initializer("w", {3}, {1, 2, 3});
  g.node("Add", {"x", "w"}, {"y"});
  g.output("y");
  g.output("ids");
  auto m = import(g);
  Function &f = *m->function("main");
  ASSERT_EQ(f.numArguments(), 2u);
  EXPECT_EQ(f.argument(0)->name, "ids");
  EXPECT_EQ(f.argument(1)->name, "x");
  EXPECT_EQ(argumentType(*m, 0), "i32[2, 3]");
  EXPECT_EQ(f.resultNames, (std::vector<std::string>{"y", "ids"}));
  EXPECT_EQ(f.returned()[1], f.argument(0));
}

TEST(Import, InputsThatAreSetChooseBranches) {
  OnnxGraph g;
  g.input("x", {2, 3});
  g.input("first", {1}, onnx::TensorProto::BOOL);
  g.input("open", {-1});
  auto &branch = g.node("If", {"first"}, {"y"}, "branch");
  for (const char *name : {"then_branch", "else_branch"}) {
    auto &a = *branch.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::GRAPH);
    auto &n = *a.mutable_g()->add_node();
    n.set_op_type(name == std::string("then_branch") ? "Neg" : "Abs");
    n.add_input("x");
    n.add_output(name);
    a.mutable_g()->add_output()->set_name(name);
  }
  g.output("y");
  ImportOptions options;
  for (auto [number, op] : {std::pair(1.0, OpCode::Neg), {0.0, OpCode::Abs}}) {
    options.inputs = {{"first", number}};
    auto m = import(g, options);
    Function &f = *m->function("main");
    EXPECT_EQ(f.numArguments(), 2u);
    EXPECT_TRUE(f.returned()[0]->def()->is(op));
  }
  for (auto [name, why] : {std::pair("third", "no such input"), {"open", "its size is open"}}) {
    options.inputs = {{name, 1}};
    auto refused = importOnnxBytes(g.bytes(), "test.onnx", options);
    ASSERT_FALSE(bool(refused));
    EXPECT_NE(llvm::toString(refused.takeError()).find(why), std::string::npos);
  }
}

TEST(Import, DimensionNamesBecomeSymbols) {
  OnnxGraph g;
  g.input("x", {-1, -1, -1, -1});
  g.input("z", {-1, -1, -1, -1});
  setDim(g, 0, 0, "batch");
  setDim(g, 0, 1, "past + seq");
  setDim(g, 0, 2, "s0*s1");
  setDim(g, 1, 0, "past_plus_seq");
  setDim(g, 1, 1, "past + seq");
  setDim(g, 1, 2, "7th");
  setDim(g, 1, 3, "x_dim3");
  g.node("Shape", {"x"}, {"a"});
  g.node("Shape", {"z"}, {"b"});
  g.output("a");
  g.output("b");
  auto m = import(g);
  // x_dim3 is taken by an input, so the nameless dimension gets another name.
  EXPECT_EQ(argumentType(*m, 0), "f32[batch, past_plus_seq, s0_s1, x_dim3_1]");
  EXPECT_EQ(argumentType(*m, 1), "f32[past_plus_seq_1, past_plus_seq, d_7th, x_dim3]");
}

/// Keys of a past and new ones under a mask whose second size has that name.
static OnnxGraph maskedKeys(const std::string &size) {
  OnnxGraph g;
  g.input("past", {2, -1, -1});
  g.input("new", {2, -1, -1});
  g.input("mask", {-1, -1});
  for (int input : {0, 1, 2})
    setDim(g, input, input < 2, "batch");
  setDim(g, 0, 2, "past");
  setDim(g, 1, 2, "seq");
  setDim(g, 2, 1, size);
  setInt(g.node("Concat", {"past", "new"}, {"keys"}), "axis", 2);
  g.node("Mul", {"keys", "mask"}, {"y"});
  g.output("y");
  return g;
}

TEST(Import, NamesOfSizesThatTheGraphContradictsDoNotCount) {
  for (const char *name : {"seq", "past"}) {
    std::vector<std::string> warnings;
    ImportOptions options;
    options.warn = [&](const std::string &w) { warnings.push_back(w); };
    auto m = import(maskedKeys(name), options);
    EXPECT_EQ(argumentType(*m, 0), "f32[2, batch, past]");
    EXPECT_EQ(argumentType(*m, 1), "f32[2, batch, seq]");
    EXPECT_EQ(argumentType(*m, 2), "f32[batch, mask_dim1]");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("input 'mask' is declared f32[batch, " + std::string(name) + "]"),
              std::string::npos);
  }
  auto m = import(maskedKeys("total"));
  EXPECT_EQ(argumentType(*m, 2), "f32[batch, total]");
}

TEST(Import, AxesOfGathersCountFromTheFront) {
  OnnxGraph g;
  g.initializer("table", {2, 1}, {1, 2});
  g.input("ids", {3}, onnx::TensorProto::INT64);
  setInt(g.node("Gather", {"table", "ids"}, {"y"}), "axis", -2);
  g.output("y");
  auto m = import(g);
  const Op *gather = m->function("main")->returned()[0]->def();
  ASSERT_TRUE(gather->is(OpCode::Gather));
  EXPECT_EQ(gather->intAttr("axis"), 0);
}

TEST(Import, DeclaredTypesOfOutputsAreNotRead) {
  OnnxGraph g;
  g.input("x", {2, 3});
  g.node("Transpose", {"x"}, {"y"});
  auto *out = g.graph().add_output();
  out->set_name("y");
  auto *tensor = out->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx::TensorProto::INT64);
  tensor->mutable_shape()->add_dim()->set_dim_value(99);
  *g.graph().add_value_info() = *out;
  auto m = import(g);
  EXPECT_EQ(m->function("main")->returned()[0]->type.str(), "f32[3, 2]");
}

TEST(Import, EveryOpCarriesItsNode) {
  OnnxGraph g;
  g.input("x", {2, 3});
  g.initializer("w", {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  g.initializer("b", {4}, {1, 2, 3, 4});
  auto &gemm = g.node("Gemm", {"x", "w", "b"}, {"h"}, "/mlp/Gemm");
  setFloat(gemm, "alpha", 2);
  g.node("Tanh", {"h"}, {"y"});
  g.output("y");
  auto m = import(g);
  std::vector<std::string> codes;
  for (auto &op : m->function("main")->ops()) {
    if (op->info().has(Terminator) || (op->is(OpCode::Constant) && !op->result()->name.empty()))
      continue;
    ASSERT_EQ(op->locations.size(), 1u) << op->describe();
    bool tanh = op->is(OpCode::Tanh);
    EXPECT_EQ(op->locations[0], tanh ? "Tanh:y" : "/mlp/Gemm");
    codes.push_back(op->info().mnemonic.str());
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"matmul", "constant", "mul", "add", "tanh"}));
}

TEST(Import, EqualWeightsShareStorage) {
  OnnxGraph g;
  g.input("x", {2, 2});
  g.initializer("a", {2, 2}, {1, 2, 3, 4});
  g.initializer("b", {2, 2}, {1, 2, 3, 4});
  g.initializer("c", {2, 2}, {1, 2, 3, 5});
  g.node("Sum", {"x", "a", "b", "c"}, {"y"});
  g.output("y");
  auto m = import(g);
  llvm::StringMap<const void *> data;
  for (auto &op : m->function("main")->ops())
    if (op->is(OpCode::Constant))
      data[op->result()->name] = op->constant.raw();
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data["a"], data["b"]);
  EXPECT_NE(data["a"], data["c"]);
}

TEST(Import, NodesThatNothingReadsAreLeftOut) {
  OnnxGraph g;
  g.input("x", {2});
  g.node("NoSuchOperator", {"x"}, {"dead"});
  g.node("Abs", {"x"}, {"y"});
  g.output("y");
  auto m = import(g);
  EXPECT_EQ(m->function("main")->ops().size(), 2u); // abs, return
}

TEST(Import, ConstantNodesOfOneNameWarnAndTheLastCounts) {
  OnnxGraph g;
  g.input("x", {2});
  for (float value : {1.0f, 2.0f})
    setFloat(g.node("Constant", {}, {"c"}), "value_float", value);
  g.node("Mul", {"x", "c"}, {"y"});
  g.output("y");
  std::vector<std::string> warnings;
  ImportOptions options;
  options.warn = [&](const std::string &w) { warnings.push_back(w); };
  auto m = import(g, options);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'c'"), std::string::npos);
  Op &constant = *m->function("main")->ops().front();
  ASSERT_TRUE(constant.is(OpCode::Constant));
  EXPECT_EQ(constant.constant.asDouble(0), 2.0);
}

TEST(Import, ModuleProperties) {
  OnnxGraph g(18);
  g.model.set_producer_name("pytorch");
  g.input("x", {2});
  g.node("Abs", {"x"}, {"y"});
  g.output("y");
  auto m = import(g);
  using Property = std::pair<std::string, std::string>;
  EXPECT_TRUE(llvm::is_contained(m->properties, Property("producer", "pytorch")));
  EXPECT_TRUE(llvm::is_contained(m->properties, Property("opset", "18")));
}
