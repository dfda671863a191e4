// What the importer refuses, with exit codes and the facts a message must name. A list of
// cases.
#include "tests/unit/frontend/ImportFailure.h"

#include <filesystem>
#include <fstream>

using namespace gpt2c;
using namespace gpt2c::test;
namespace fs = std::filesystem;

/// y = op(x)
static OnnxGraph oneNode(const std::string &op, int64_t opset = 17) {
  OnnxGraph g(opset);
  g.input("x", {2, 3});
  g.node(op, {"x"}, {"y"}, "the_node");
  g.output("y");
  return g;
}

TEST(ImportErrors, UnreadableFiles) {
  expectFailure(importOnnx("/nonexistent/model.onnx"), ExitCode::Io,
                {"/nonexistent/model.onnx", "No such file"});
  expectFailure(importOnnx(fs::temp_directory_path().string()), ExitCode::Io, {"folder"});
}

TEST(ImportErrors, NotOnnx) {
  expectFailure(importOnnxBytes("", "m"), ExitCode::InvalidModel, {"empty"});
  expectFailure(importOnnxBytes("\x7f no message", "m"), ExitCode::InvalidModel,
                {"not an ONNX model", "damaged"});
  onnx::ModelProto noGraph;
  noGraph.set_ir_version(8);
  expectFailure(importOnnxBytes(noGraph.SerializeAsString(), "m"), ExitCode::InvalidModel,
                {"no graph"});
}

// Files of other kinds are told by name, with a way out.
TEST(ImportErrors, OtherKindsOfFiles) {
  using namespace std::string_literals;
  const struct {
    std::string bytes;
    const char *name, *wayOut;
  } kinds[] = {
      {"GGUF\x03\0\0\0 and more"s, "a GGUF file", "config.json and safetensors"},
      {"ggjt\x03\0\0\0"s, "a GGML file", "ONNX export"},
      {"\x0c\0\0\0\0\0\0\0{\"a\": 1}    data"s, "a safetensors file", "config.json"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer",
       "git lfs pull"},
      {"<!DOCTYPE html><html></html>", "a web page", "download the file itself"},
      {" \n<HTML>", "a web page", "download"},
      {"\x18\0\0\0ORTM\0\0"s, "a model in the format of ONNX Runtime", "made of"},
      {"\x18\0\0\0TFL3\0\0"s, "a TFLite model", "ONNX export"},
      {"\x89G2C\r\n\x1a\n plan", "a plan of gpt2c", "gpt2c-run"},
      {"PK\x03\x04 zip", "a ZIP archive", "ONNX export"},
      {"\x80\x02}q\x01", "a pickle", "ONNX export"},
      {"\x1f\x8b\x08 gzip", "compressed by gzip", "unpack"},
      {"{\"json\": 1}", "JSON", "ONNX export"},
  };
  for (const auto &kind : kinds) {
    SCOPED_TRACE(kind.name);
    expectFailure(importOnnxBytes(kind.bytes, "m"), ExitCode::InvalidModel,
                  {"'m' is ", kind.name, "not an ONNX model", kind.wayOut});
  }
}

TEST(ImportErrors, WeightsThatAreAPointer) {
  const fs::path folder = fs::temp_directory_path() / ("gpt2c_lfs" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "model.data") << "version https://git-lfs.github.com/spec/v1\nsize 9\n";
  OnnxGraph g(17);
  onnx::TensorProto &w = *g.graph().add_initializer();
  w.set_name("w");
  w.set_data_type(onnx::TensorProto::FLOAT);
  w.add_dims(1000);
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto &location = *w.add_external_data();
  location.set_key("location");
  location.set_value("model.data");
  g.input("x", {1000});
  g.node("Add", {"x", "w"}, {"y"}, "add");
  g.output("y");
  ImportOptions options;
  options.externalFolder = folder.string();
  expectFailure(importOnnxBytes(g.bytes(), "m", options), ExitCode::InvalidModel,
                {"'model.data'", "a Git LFS pointer", "git lfs pull"});
  fs::remove_all(folder);
}

TEST(ImportErrors, FilesBeyondProtobufsLimit) {
  fs::path path = fs::temp_directory_path() / ("gpt2c_big" + std::to_string(::getpid()) + ".onnx");
  std::ofstream(path).put('\0');
  fs::resize_file(path, uint64_t(3) << 30); // sparse, and mapped: takes no room
  expectFailure(importOnnx(path.string()), ExitCode::InvalidModel, {"2 GiB", "external data"});
  std::fstream(path, std::ios::in | std::ios::out) << "GGUF";
  expectFailure(importOnnx(path.string()), ExitCode::InvalidModel, {"a GGUF file"});
  fs::remove(path);
}

TEST(ImportErrors, CutShortAtEveryByte) {
  std::string bytes = oneNode("Abs").bytes();
  for (size_t n = 0; n < bytes.size(); ++n) {
    auto result = importOnnxBytes(bytes.substr(0, n), "m");
    if (!result)
      llvm::consumeError(result.takeError());
  }
  auto whole = importOnnxBytes(bytes, "m");
  EXPECT_TRUE(bool(whole));
}

TEST(ImportErrors, Cycle) {
  OnnxGraph g;
  g.input("x", {2});
  g.node("Add", {"x", "c"}, {"a"}, "first");
  g.node("Abs", {"a"}, {"b"}, "second");
  g.node("Neg", {"b"}, {"c"}, "third");
  g.node("Exp", {"x"}, {"y"}, "outside");
  g.output("b");
  expectFailure(g, ExitCode::InvalidModel, {"cycle", "'first'", "'second'", "'third'"});
}

TEST(ImportErrors, SelfLoop) {
  OnnxGraph g;
  g.input("x", {2});
  g.node("Add", {"x", "a"}, {"a"}, "loop");
  g.output("a");
  expectFailure(g, ExitCode::InvalidModel, {"cycle", "'loop'"});
}

TEST(ImportErrors, DanglingInput) {
  OnnxGraph g = oneNode("Abs");
  g.node("Add", {"y", "ghost"}, {"z"}, "reader");
  expectFailure(g, ExitCode::InvalidModel, {"'reader' (Add)", "'ghost'"});
}

TEST(ImportErrors, DanglingOutput) {
  OnnxGraph g = oneNode("Abs");
  g.output("nowhere");
  expectFailure(g, ExitCode::InvalidModel, {"output 'nowhere'"});
}

TEST(ImportErrors, NoOutputs) {
  OnnxGraph g;
  g.input("x", {2});
  expectFailure(g, ExitCode::InvalidModel, {"no outputs"});
}

TEST(ImportErrors, TensorsDefinedTwice) {
  OnnxGraph g = oneNode("Abs");
  g.node("Neg", {"x"}, {"y"}, "again");
  expectFailure(g, ExitCode::InvalidModel, {"'y'", "twice", "'the_node'", "'again'"});

  OnnxGraph overInput = oneNode("Abs");
  overInput.node("Neg", {"y"}, {"x"}, "over");
  expectFailure(overInput, ExitCode::InvalidModel, {"'x'", "'over'"});

  OnnxGraph inputs = oneNode("Abs");
  inputs.input("x", {2, 3});
  expectFailure(inputs, ExitCode::InvalidModel, {"input 'x' appears twice"});

  OnnxGraph weights = oneNode("Abs");
  weights.initializer("w", {1}, {1});
  weights.initializer("w", {1}, {2});
  expectFailure(weights, ExitCode::InvalidModel, {"initializer 'w' appears twice"});
}

TEST(ImportErrors, AllUnsupportedNodesAtOnce) {
  OnnxGraph g(13);
  g.import("com.example", 4);
  g.input("x", {2, 3});
  g.node("Asin", {"x"}, {"a"}, "c1");
  g.node("Asin", {"a"}, {"b"}, "c2");
  g.node("Wonder", {"b"}, {"c"}, "w", "com.example");
  g.node("Gelu", {"x"}, {"d"}, "g");
  setFloat(g.node("Attention", {"x", "x", "x"}, {"e"}, "early"), "scale", 1);
  g.node("TopK", {"x", "x"}, {"f", "f2"}, "k");
  g.node("Sum", {"a", "c", "d", "e", "f"}, {"y"}, "sum");
  g.output("y");
  expectFailure(g, ExitCode::Unsupported,
                {"6 nodes of the model",
                 "Asin (opset 13), 2 nodes: 'c1', 'c2': operator not supported",
                 "com.example.Wonder (opset 4), 1 node: 'w': domain not supported",
                 "Gelu (opset 13), 1 node: 'g': it exists from opset 20 on",
                 "Attention (opset 13), 1 node: 'early': it exists from opset 23 on",
                 "TopK (opset 13), 1 node: 'k'"});
}

TEST(ImportErrors, UnsupportedFormsOfSupportedOperators) {
  OnnxGraph stash(23);
  stash.input("x", {1, 2});
  stash.input("scale", {2});
  setInt(stash.node("RMSNormalization", {"x", "scale"}, {"y"}, "wide"), "stash_type", 11);
  stash.output("y");
  expectFailure(stash, ExitCode::Unsupported,
                {"RMSNormalization (opset 23)", "'wide'", "stash_type"});

  OnnxGraph axes(13);
  axes.input("x", {1, 3});
  axes.input("axes", {1}, onnx::TensorProto::INT64);
  axes.node("Unsqueeze", {"x", "axes"}, {"y"});
  axes.output("y");
  expectFailure(axes, ExitCode::Unsupported, {"'Unsqueeze:y'", "input 1 is not a constant"});

  OnnxGraph condition(13);
  condition.input("x", {1, 3});
  condition.input("c", {}, onnx::TensorProto::BOOL);
  condition.node("If", {"c"}, {"y"}, "branch");
  condition.output("y");
  expectFailure(condition, ExitCode::Unsupported,
                {"If (opset 13)", "condition is not a constant", "export them separately",
                 "--set-input=c=1"});
}

TEST(ImportErrors, ConvolutionsThatAreNoProducts) {
  for (const char *attribute : {"kernel", "strides", "pads"}) {
    OnnxGraph g(13);
    const bool isWide = attribute == std::string("kernel");
    g.input("x", {1, 4, 8});
    g.input("w", {2, 4, isWide ? 3 : 1});
    auto &node = g.node("Conv", {"x", "w"}, {"y"}, "conv");
    if (!isWide)
      setInts(node, attribute, {2, 2});
    g.output("y");
    expectFailure(g, ExitCode::Unsupported, {"Conv (opset 13)", "of kernel 1, stride 1"});
  }
}

TEST(ImportErrors, EquationsOfEinsum) {
  auto expect = [](const char *equation, ExitCode code, const char *part) {
    OnnxGraph g(13);
    g.input("x", {2, 3});
    g.input("y", {3, 4});
    setString(g.node("Einsum", {"x", "y"}, {"z"}, "sum"), "equation", equation);
    g.output("z");
    expectFailure(g, code, {"'sum'", part});
  };
  expect("...i,ij->...j", ExitCode::Unsupported, "'...' is not supported");
  expect("ii,ij->j", ExitCode::Unsupported, "a diagonal, 'ii'");
  expect("ij->j", ExitCode::InvalidModel, "no equation of 2 inputs");
  expect("ij,jk->il", ExitCode::InvalidModel, "'l' twice, or of no input");
  expect("ij,jk->ii", ExitCode::InvalidModel, "'i' twice, or of no input");
  expect("ij,jkl->il", ExitCode::InvalidModel, "'jkl' names 3 axes");
  expect("i1,jk->i", ExitCode::InvalidModel, "no equation");
}

TEST(ImportErrors, WeightsOfAFewBits) {
  OnnxGraph g(17);
  g.import("com.microsoft", 1);
  g.input("x", {1, 32});
  g.input("q", {4, 1, 16}, onnx::TensorProto::UINT8);
  g.input("scales", {4});
  auto &node = g.node("MatMulNBits", {"x", "q", "scales"}, {"y"}, "few", "com.microsoft");
  setInt(node, "K", 32);
  setInt(node, "N", 4);
  setInt(node, "block_size", 32);
  g.output("y");
  expectFailure(g, ExitCode::Unsupported, {"MatMulNBits", "have to be constants"});
  setInt(node, "bits", 3);
  expectFailure(g, ExitCode::Unsupported, {"weights of 3 bits", "2, 4 and 8"});
}

TEST(ImportErrors, FourBitsAreDequantised) {
  OnnxGraph g(21);
  g.input("x", {2, 2});
  g.input("s", {});
  onnx::TensorProto &zero = *g.graph().add_initializer();
  zero.set_name("z");
  zero.set_data_type(22); // int4
  zero.set_raw_data(std::string(1, '\3'));
  g.node("QuantizeLinear", {"x", "s", "z"}, {"y"}, "q");
  g.output("y");
  expectFailure(g, ExitCode::Unsupported, {"type int4", "DequantizeLinear alone"});
  zero.set_raw_data(std::string(2, '\3'));
  g.graph().mutable_node(0)->set_op_type("DequantizeLinear");
  g.graph().mutable_node(0)->set_input(0, "z");
  g.graph().mutable_node(0)->mutable_input()->RemoveLast();
  expectFailure(g, ExitCode::InvalidModel, {"2 bytes of data, but its shape asks for 1"});
}

TEST(ImportErrors, BlocksThatDoNotFit) {
  OnnxGraph g(21);
  g.input("q", {5, 2}, onnx::TensorProto::INT8);
  g.input("s", {3, 2});
  auto &node = g.node("DequantizeLinear", {"q", "s"}, {"y"}, "blocks");
  g.output("y");
  setInt(node, "axis", 0);
  setInt(node, "block_size", 4);
  expectFailure(g, ExitCode::InvalidModel, {"'blocks'", "f32[3, 2] for blocks of 4"});
  node.mutable_attribute(0)->set_i(2);
  expectFailure(g, ExitCode::InvalidModel, {"axis 2 is out of range"});
}

TEST(ImportErrors, PlacesAmongTooMany) {
  OnnxGraph g(17);
  g.input("x", {2, 5000});
  setInts(g.node("Constant", {}, {"k"}, "three"), "value_ints", {3});
  g.node("TopK", {"x", "k"}, {"y", "i"}, "top");
  g.output("y");
  expectFailure(g, ExitCode::Unsupported, {"TopK", "5000 elements: up to 1024"});
}

TEST(ImportErrors, UnsupportedQuantisation) {
  auto quantize = [](std::initializer_list<int64_t> scale, int zeroType) {
    OnnxGraph g(21);
    g.input("x", {4, 6});
    g.input("s", scale);
    g.input("z", scale, zeroType);
    g.node("QuantizeLinear", {"x", "s", "z"}, {"y"}, "q");
    g.output("y");
    return g;
  };
  OnnxGraph blocked = quantize({2, 6}, onnx::TensorProto::INT8);
  setInt(*blocked.graph().mutable_node(0), "block_size", 2);
  setInt(*blocked.graph().mutable_node(0), "axis", 0);
  expectFailure(blocked, ExitCode::Unsupported,
                {"QuantizeLinear (opset 21)", "'q'", "blocked quantisation (block_size 2)"});
  expectFailure(quantize({4, 6}, onnx::TensorProto::INT8), ExitCode::Unsupported,
                {"f32[4, 6]", "a vector for one axis"});
  expectFailure(quantize({}, onnx::TensorProto::INT32), ExitCode::Unsupported,
                {"quantised values of i32", "only those of i8 and u8"});
  expectFailure(quantize({}, onnx::TensorProto::INT16), ExitCode::Unsupported, {"int16"});
  expectFailure(quantize({5}, onnx::TensorProto::INT8), ExitCode::InvalidModel, {"'q'"});
  OnnxGraph scalar = quantize({5}, onnx::TensorProto::INT8);
  scalar.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->Clear();
  expectFailure(scalar, ExitCode::InvalidModel, {"'q'", "axis 1 is out of range for rank 0"});
}

TEST(ImportErrors, OpsetRange) {
  for (int64_t opset : {1, 9, 25, 1000})
    expectFailure(oneNode("Abs", opset), ExitCode::Unsupported,
                  {("opset " + std::to_string(opset)).c_str(), "10 to 24"});
  for (int64_t opset = 10; opset <= 24; ++opset)
    EXPECT_TRUE(bool(importOnnxBytes(oneNode("Abs", opset).bytes(), "m"))) << opset;
}

TEST(ImportErrors, OnlyUsedDomainsCount) {
  OnnxGraph g = oneNode("Abs");
  g.import("ai.onnx.ml", 99);
  EXPECT_TRUE(bool(importOnnxBytes(g.bytes(), "m")));

  OnnxGraph missing = oneNode("Abs");
  missing.node("FastGelu", {"x"}, {"z"}, "gelu", "com.microsoft");
  missing.output("z");
  expectFailure(missing, ExitCode::InvalidModel, {"'gelu'", "'com.microsoft'"});
}

TEST(ImportErrors, Inputs) {
  OnnxGraph text = oneNode("Abs");
  text.input("s", {1}, onnx::TensorProto::STRING);
  expectFailure(text, ExitCode::Unsupported, {"input 's'", "string"});

  OnnxGraph noRank;
  noRank.graph().add_input()->set_name("x");
  noRank.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(1);
  noRank.node("Abs", {"x"}, {"y"});
  noRank.output("y");
  expectFailure(noRank, ExitCode::Unsupported, {"input 'x'", "no shape"});

  OnnxGraph sequence;
  sequence.graph().add_input()->set_name("x");
  sequence.graph().mutable_input(0)->mutable_type()->mutable_sequence_type();
  sequence.node("Abs", {"x"}, {"y"});
  sequence.output("y");
  expectFailure(sequence, ExitCode::Unsupported, {"input 'x'", "not a tensor"});
}

TEST(ImportErrors, BrokenNodes) {
  OnnxGraph shapes = oneNode("Abs");
  shapes.initializer("w", {4}, {1, 2, 3, 4});
  shapes.node("Add", {"x", "w"}, {"z"}, "misfit");
  shapes.output("z");
  expectFailure(shapes, ExitCode::InvalidModel, {"'misfit' (Add)", "f32[2, 3]", "f32[4]"});

  OnnxGraph few = oneNode("MatMul");
  expectFailure(few, ExitCode::InvalidModel, {"'the_node' (MatMul)", "input 1 is missing"});

  OnnxGraph axis = oneNode("Softmax");
  setInt(*axis.graph().mutable_node(0), "axis", 5);
  expectFailure(axis, ExitCode::InvalidModel, {"'the_node' (Softmax)", "axis 5", "rank 2"});

  OnnxGraph kind = oneNode("Softmax");
  setFloat(*kind.graph().mutable_node(0), "axis", 1);
  expectFailure(kind, ExitCode::InvalidModel, {"'the_node' (Softmax)", "attribute 'axis'"});

  OnnxGraph outputs = oneNode("Abs");
  outputs.graph().mutable_node(0)->add_output("second");
  outputs.output("second");
  expectFailure(outputs, ExitCode::InvalidModel, {"'the_node' (Abs)", "output number 1"});
}

TEST(ImportErrors, WhatAnOperatorDoesNotHave) {
  OnnxGraph unknown = oneNode("Abs");
  setFloat(*unknown.graph().mutable_node(0), "softcap", 3);
  expectFailure(unknown, ExitCode::InvalidModel, {"'the_node'", "Abs", "'softcap'"});

  // What was an attribute once would be lost in silence.
  OnnxGraph mean(18);
  mean.input("x", {2, 3});
  auto &axes = *mean.node("ReduceMean", {"x"}, {"y"}, "mean").add_attribute();
  axes.set_name("axes");
  axes.set_type(onnx::AttributeProto::INTS);
  axes.add_ints(-1);
  mean.output("y");
  expectFailure(mean, ExitCode::InvalidModel,
                {"'mean'", "'axes'", "an input since opset 18", "the model's is 18"});

  OnnxGraph contrib(17);
  contrib.import("com.microsoft", 1);
  contrib.input("x", {1, 2, 4});
  contrib.initializer("w", {4, 12}, {});
  setInt(contrib.node("Attention", {"x", "w"}, {"y"}, "attn", "com.microsoft"), "softcap", 3);
  contrib.output("y");
  expectFailure(contrib, ExitCode::InvalidModel, {"'attn'", "'softcap'", "num_heads"});

  OnnxGraph three(17);
  three.input("x", {2});
  three.node("Add", {"x", "x", "x"}, {"y"}, "add");
  three.output("y");
  expectFailure(three, ExitCode::InvalidModel, {"'add'", "3 inputs", "at most 2"});
}

TEST(ImportErrors, VersionsOfTheFormat) {
  for (int64_t version : {0, 2, 99}) {
    OnnxGraph g = oneNode("Abs");
    g.model.set_ir_version(version);
    expectFailure(g, ExitCode::InvalidModel, {"ir_version is "});
  }
}

TEST(ImportErrors, SizesThatWrap) {
  OnnxGraph input(17);
  input.input("x", {int64_t(1) << 60, 8});
  input.node("Abs", {"x"}, {"y"});
  input.output("y");
  expectFailure(input, ExitCode::InvalidModel, {"input 'x'", "more bytes than can be addressed"});

  OnnxGraph expanded(17);
  expanded.input("x", {1, 4});
  auto &shape = *expanded.graph().add_initializer();
  shape.set_name("shape");
  shape.set_data_type(onnx::TensorProto::INT64);
  shape.add_dims(2);
  shape.add_int64_data(int64_t(1) << 59);
  shape.add_int64_data(4);
  expanded.node("Expand", {"x", "shape"}, {"y"}, "grow");
  expanded.output("y");
  expectFailure(expanded, ExitCode::InvalidModel, {"grow", "more bytes than can be addressed"});
}

TEST(ImportErrors, Functions) {
  OnnxGraph g = oneNode("Abs");
  g.import("local", 1);
  auto *f = g.model.add_functions();
  f->set_name("again");
  f->set_domain("local");
  f->add_input("a");
  f->add_output("b");
  auto *o = f->add_opset_import();
  o->set_domain("local");
  o->set_version(1);
  auto *n = f->add_node();
  n->set_op_type("again");
  n->set_domain("local");
  n->add_input("a");
  n->add_output("b");
  OnnxGraph many = g;
  g.node("again", {"x"}, {"z"}, "call", "local");
  g.output("z");
  expectFailure(g, ExitCode::InvalidModel, {"function 'again' calls itself"});
  many.node("again", {"x", "x"}, {"z"}, "call", "local");
  many.output("z");
  expectFailure(many, ExitCode::InvalidModel, {"'call'", "2 inputs", "function of 1"});
}

TEST(ImportErrors, PartsOfAnAxis) {
  auto parts = [](std::initializer_list<int64_t> sizes, int64_t axis) {
    OnnxGraph g(11);
    g.input("x", {2, axis});
    auto &n = g.node("Split", {"x"}, {"y", "z"}, "the_node");
    setInt(n, "axis", 1);
    setInts(n, "split", sizes);
    g.output("y");
    g.output("z");
    return g;
  };
  expectFailure(parts({1, 1}, 3), ExitCode::InvalidModel, {"the_node", "sum to 2"});
  expectFailure(parts({4, -1}, 3), ExitCode::InvalidModel, {"the_node", "negative"});
  for (int64_t axis : {3, -1}) // a size, or none
    expectFailure(parts({INT64_MAX, 2}, axis), ExitCode::InvalidModel,
                  {"the_node", "more elements than an axis can have"});
}

TEST(ImportErrors, HiddenSizesWithoutASum) {
  OnnxGraph g;
  g.import("com.microsoft", 1);
  g.input("x", {1, 2, 4});
  g.input("w", {4, -1});
  g.input("b", {-1});
  auto &n = g.node("Attention", {"x", "w", "b"}, {"y"}, "the_node", "com.microsoft");
  setInt(n, "num_heads", 1);
  setInts(n, "qkv_hidden_sizes", {INT64_MAX, INT64_MAX, 1});
  g.output("y");
  expectFailure(g, ExitCode::InvalidModel, {"the_node", "hidden sizes"});
}
