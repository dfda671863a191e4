// Exporters differ in how they write GPT-2, not in what comes out: after the pipeline @prefill and
// @decode of every model are the same ops with the same operands in the same order, whatever the
// spelling of masks, norms, GELU, heads and past. Up to names, sizes and where constants stand.
#include "frontend/Import.h"
#include "passes/Pipeline.h"
#include "tests/unit/Nightly.h"
#include "tests/unit/SharedDir.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

using namespace gpt2c;
namespace fs = std::filesystem;

namespace {

using Lines = std::vector<std::string>;

/// A function's ops without its constants. Values are "w" (a constant), "kv" (the state), an
/// argument's name, or how many ops back they were computed; widths are multiples of D, the width
/// of the embedding, and what stays in f32 are logits.
class Structure {
public:
  explicit Structure(const Function &f) {
    for (auto &op : f.ops()) {
      if (op->is(OpCode::Constant))
        continue;
      number_[op.get()] = int64_t(lines.size());
      if (op->is(OpCode::Embed))
        width_ = op->result()->type.shape.back().constant().value_or(0);
      if (op->is(OpCode::AppendAttention))
        ++layers;
      lines.push_back(line(*op));
    }
  }

  Lines lines;
  int64_t layers = 0;

private:
  std::string operand(const Op &op, unsigned i) const {
    const Value *v = op.operand(i);
    if (!v)
      return "none";
    if (!v->def())
      return v->name;
    if (v->def()->is(OpCode::Constant))
      return "w";
    if (v->def()->info().has(InPlace) && v->index() == 0)
      return "kv";
    return std::to_string(number_.lookup(v->def()) - int64_t(lines.size()));
  }

  std::string size(const Dim &d, bool last) const {
    auto n = d.constant();
    if (!last || !n || !width_ || *n % width_ != 0 || *n > 4 * width_)
      return n && *n != 1 ? "N" : d.str();
    return *n == width_ ? "D" : std::to_string(*n / width_) + "D";
  }

  std::string line(const Op &op) const {
    std::string out = op.info().mnemonic.str() + "(";
    // A bias is there or not; missing operands at the end are not shown either.
    bool linear = op.is(OpCode::Linear);
    Lines operands;
    for (unsigned i = 0; i < op.numOperands(); ++i)
      if (!(linear && i == 2))
        operands.push_back(operand(op, i));
    while (!operands.empty() && operands.back() == "none")
      operands.pop_back();
    out += llvm::join(operands, ", ") + ")";
    if (linear && op.stringAttr("activation") != "none")
      out += llvm::StringRef(op.stringAttr("activation")).starts_with("gelu")
                 ? " gelu"
                 : " " + op.stringAttr("activation");
    if (op.is(OpCode::AppendAttention)) {
      int64_t headDim = *op.result(1)->type.shape.back().constant() / op.intAttr("num_heads");
      bool usual = std::abs(op.floatAttr("scale") * std::sqrt(double(headDim)) - 1) < 1e-6;
      out += op.intAttr("layer") == layers - 1 ? "" : " of another layer";
      out += usual ? "" : " scale " + std::to_string(op.floatAttr("scale"));
    }
    if (op.numResults() == 0)
      return out;
    const Type &type = op.result(op.numResults() - 1)->type;
    out += " :";
    for (unsigned i = 0; i < type.rank(); ++i)
      out += " " + (type.dtype == DType::F32 && i + 1 == type.rank()
                        ? "vocabulary"
                        : size(type.shape[i], i + 1 == type.rank()));
    return out;
  }

  llvm::DenseMap<const Op *, int64_t> number_;
  int64_t width_ = 0;
};

/// A layer, seven ops. Norms are folded into the products.
Lines layer(const std::string &at) {
  return {"layer_norm(-1, w)" + at + "D",
          "linear(-1, w)" + at + "3D",
          "append_attention(kv, -1, past)" + at + "D",
          "linear(-1, w, -4)" + at + "D",
          "layer_norm(-1, w)" + at + "D",
          "linear(-1, w) gelu" + at + "4D",
          "linear(-1, w, -3)" + at + "D"};
}

/// Embedding and layers.
Lines body(int64_t layers, const std::string &rows) {
  std::string at = " : batch " + rows + " ";
  Lines lines{"embed(ids, w, w, past)" + at + "D"};
  for (int64_t i = 0; i < layers; ++i)
    llvm::append_range(lines, layer(at));
  return lines;
}

/// The same, from the last attention on for the last row of each sequence.
Lines promptBody(int64_t layers) {
  Lines lines = body(layers, "seq"), last = layer(" : batch ");
  lines.resize(lines.size() - 5);
  llvm::append_range(lines,
                     Lines{"append_attention(kv, -1, past, none, length) : batch D",
                           "gather_last(-4, length) : batch D", "linear(-2, w, -1) : batch D"});
  lines.insert(lines.end(), last.end() - 3, last.end());
  return lines;
}

Lines with(Lines lines, const Lines &more) {
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

const fs::path testData = fs::path(GPT2C_SOURCE_DIR) / "tests" / "data";

std::vector<std::string> modelsIn(llvm::ArrayRef<fs::path> collections) {
  std::vector<std::string> found;
  for (const fs::path &collection : collections) {
    std::error_code e;
    for (const auto &entry : fs::directory_iterator(collection, e))
      if (fs::exists(entry.path() / "model.onnx"))
        found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string nameOf(const std::string &folder) {
  std::string name = fs::path(folder).filename().string();
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  return (folder.find("examples") != std::string::npos ? "example_" : "") + name;
}

/// No pass relies on what another would have done.
/// Every pass by night, else every fourth: together the models leave out each several times.
void expectAnyPassCanBeLeftOut(const std::string &folder) {
  const size_t step = test::nightly() ? 1 : 4,
               first = llvm::xxh3_64bits(fs::path(folder).filename().string()) % step;
  for (size_t i = first; i < allPasses().size(); i += step) {
    const Pass &pass = allPasses()[i];
    auto module = importOnnx(folder + "/model.onnx");
    ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
    std::vector<Remark> remarks;
    PassContext context(**module, {}, remarks);
    PipelineOptions options;
    options.disabled = {pass.name.str()};
    options.verifyEach = true;
    EXPECT_EQ(llvm::toString(runPipeline(context, options)), "") << "without " << pass.name.str();
  }
}

class ExporterMatrix : public testing::TestWithParam<std::string> {};

TEST_P(ExporterMatrix, SameFunctions) {
  auto module = importOnnx(GetParam() + "/model.onnx");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  PassOptions options;
  options.precision = DType::F16;
  std::vector<Remark> remarks;
  PassContext context(**module, options, remarks);
  llvm::Error e = runPipeline(context, {});
  ASSERT_FALSE(bool(e)) << llvm::toString(std::move(e));
  for (const Remark &r : remarks)
    EXPECT_NE(r.severity, Remark::Missed) << r.message;

  const Function *prefill = (*module)->function("prefill"), *decode = (*module)->function("decode");
  if (!prefill) { // a graph that ends in hidden states
    const Function *forward = (*module)->function("forward");
    ASSERT_NE(forward, nullptr);
    Structure s(*forward);
    std::string rows = forward->argument("ids")->type.shape[1].str();
    bool norm = s.lines.size() > 1 && s.lines[s.lines.size() - 2].starts_with("layer_norm");
    Lines end{"return(-1, kv)"};
    if (norm)
      end.insert(end.begin(), "layer_norm(-1, w, w) : batch " + rows + " D");
    EXPECT_EQ(s.lines, with(body(s.layers, rows), end));
    EXPECT_GT(s.layers, 0);
    return;
  }
  Structure p(*prefill), d(*decode);
  EXPECT_EQ(p.lines, with(promptBody(p.layers),
                          {"layer_norm(-1, w, w) : batch D", "linear(-1, w) : batch vocabulary",
                           "arg_max(-1) : batch", "return(-1, -2, kv)"}));
  EXPECT_EQ(d.lines,
            with(body(d.layers, "1"),
                 {"layer_norm(-1, w, w) : batch 1 D", "linear(-1, w) : batch 1 vocabulary",
                  "reshape(-1) : batch vocabulary", "arg_max(-1) : batch", "return(-1, -2, kv)"}));
  EXPECT_GT(p.layers, 0);
  EXPECT_EQ(p.layers, d.layers);
}

TEST_P(ExporterMatrix, AnyPassLeftOut) {
  if (fs::file_size(GetParam() + "/model.onnx") < 4'000'000) // the trained one is written as others
    expectAnyPassCanBeLeftOut(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Models, ExporterMatrix,
                         testing::ValuesIn(modelsIn(
                             {fs::path(sharedDir()) / "models" / "ours",
                              fs::path(sharedDir()) / "models" / "third-party",
                              testData / "gpt2-exports", fs::path(GPT2C_SOURCE_DIR) / "examples"})),
                         [](const auto &info) { return nameOf(info.param); });

/// Decoders of other families: their layers differ, but all have a state and run as rows.
class DecoderFamilies : public testing::TestWithParam<std::string> {};

TEST_P(DecoderFamilies, HaveAState) {
  auto module = importOnnx(GetParam() + "/model.onnx");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  std::vector<Remark> remarks;
  PassContext context(**module, {}, remarks);
  ASSERT_EQ(llvm::toString(runPipeline(context, {})), "");
  for (const char *name : {"prefill", "decode", "extend"}) {
    const Function *f = (*module)->function(name);
    ASSERT_NE(f, nullptr) << name;
    EXPECT_EQ(Structure(*f).layers, 2) << name;
  }
}

TEST_P(DecoderFamilies, AnyPassLeftOut) { expectAnyPassCanBeLeftOut(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Families, DecoderFamilies,
                         testing::ValuesIn(modelsIn({testData / "decoders"})),
                         [](const auto &info) { return nameOf(info.param); });

} // namespace
