// Every operator form of the table: tests/data/onnx-ops/*.onnx, run on the reference executor and
// compared with the outputs stored in the files (tests/data/make_onnx_ops.py).
#include "frontend/Graph.h"
#include "frontend/Import.h"
#include "frontend/OpTable.h"
#include "frontend/files/DecodeTensor.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Executor.h"
#include "ir/Verifier.h"

#include "llvm/Support/Base64.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

using namespace gpt2c;
namespace fs = std::filesystem;

static std::vector<std::string> caseFiles() {
  std::vector<std::string> found;
  for (const auto &entry : fs::directory_iterator(GPT2C_SOURCE_DIR "/tests/data/onnx-ops"))
    found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

class OpCases : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    auto buffer = readFile(GetParam());
    ASSERT_TRUE(bool(buffer)) << llvm::toString(buffer.takeError());
    bytes = (*buffer)->getBuffer().str();
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(bytes));
    for (const auto &p : model.metadata_props()) {
      llvm::StringRef key = p.key();
      if (key.consume_front("input:"))
        inputs.push_back(decode(p.value()));
      else if (key.consume_front("output:"))
        expected.push_back(decode(p.value()));
    }
    ASSERT_FALSE(expected.empty());
  }

  static Tensor decode(const std::string &base64) {
    std::vector<char> raw;
    onnx::TensorProto proto;
    EXPECT_FALSE(bool(llvm::decodeBase64(base64, raw)));
    EXPECT_TRUE(proto.ParseFromArray(raw.data(), raw.size()));
    return llvm::cantFail(decodeTensor(proto, nullptr, nullptr));
  }

  static void expectEqual(const Tensor &actual, const Tensor &expected) {
    ASSERT_EQ(actual.shape(), expected.shape());
    double tolerance = expected.dtype() == DType::F16 ? 2e-3 : 2e-5;
    for (int64_t i = 0; i < expected.count(); ++i) {
      double a = actual.asDouble(i), e = expected.asDouble(i);
      if (std::isnan(e)) {
        EXPECT_TRUE(std::isnan(a)) << "at " << i;
      } else if (!isFloat(expected.dtype())) {
        EXPECT_EQ(actual.asInt(i), expected.asInt(i)) << "at " << i;
      } else if (std::isinf(e)) {
        EXPECT_EQ(a, e) << "at " << i;
      } else {
        EXPECT_NEAR(a, e, tolerance * std::max(1.0, std::abs(e))) << "at " << i;
      }
    }
  }

  /// `bits`: the first output has to be the stored one, bit for bit.
  void run(bool float64, bool bits = false) {
    auto module = importOnnxBytes(bytes, GetParam());
    ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
    llvm::Error broken = verify(**module);
    ASSERT_FALSE(bool(broken)) << llvm::toString(std::move(broken));
    Function &main = *(*module)->function("main");
    ExecOptions options;
    options.float64 = float64;
    auto outputs = Executor(main, options).run(inputs);
    ASSERT_TRUE(bool(outputs)) << llvm::toString(outputs.takeError());
    ASSERT_EQ(outputs->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(main.resultNames[i]);
      EXPECT_TRUE(float64 || (*outputs)[i].dtype() == expected[i].dtype());
      EXPECT_EQ(main.returned()[i]->type.dtype, expected[i].dtype());
      expectEqual((*outputs)[i], expected[i]);
    }
    const Tensor &first = (*outputs)[0];
    if (bits) {
      EXPECT_EQ(std::memcmp(first.raw(), expected[0].raw(), expected[0].bytes()), 0);
    }
  }

  std::string bytes;
  std::vector<Tensor> inputs, expected;
};

INSTANTIATE_TEST_SUITE_P(Onnx, OpCases, testing::ValuesIn(caseFiles()),
                         [](const auto &info) { return fs::path(info.param).stem().string(); });

TEST_P(OpCases, RunNatively) { run(false); }
TEST_P(OpCases, RunInDouble) { run(true); }

/// Weights that a model holds in few bits, or in blocks, are what ONNX Runtime makes of them: as
/// they are dequantised, as products with an identity, and as rows of a table.
class StoredWeights : public OpCases {};
static std::vector<std::string> storedWeightFiles() {
  std::vector<std::string> found = caseFiles();
  std::erase_if(found, [](const std::string &path) {
    const std::string name = fs::path(path).stem().string();
    return !name.starts_with("dequantize_") && !name.starts_with("gather_block_") &&
           !name.starts_with("matmul_nbits_identity_");
  });
  return found;
}
INSTANTIATE_TEST_SUITE_P(Onnx, StoredWeights, testing::ValuesIn(storedWeightFiles()),
                         [](const auto &info) { return fs::path(info.param).stem().string(); });
TEST_P(StoredWeights, HaveTheBitsOfOnnxRuntime) { run(false, true); }

TEST(OpTable, EveryOperatorIsInTheFuzzDictionary) {
  std::string words =
      llvm::cantFail(readFile(GPT2C_SOURCE_DIR "/tests/fuzz/onnx.dict"))->getBuffer().str();
  for (const OpRow &row : opRows())
    EXPECT_NE(words.find("\n\"" + std::string(row.op) + "\"\n"), std::string::npos) << row.op;
}

TEST(OpTable, EveryFormHasACase) {
  std::set<const OpRow *> tested;
  auto visit = [&](const auto &nodes, const auto &opsets) {
    for (const onnx::NodeProto &n : nodes)
      for (const onnx::OperatorSetIdProto &o : opsets)
        if (canonicalDomain(o.domain()) == canonicalDomain(n.domain()))
          tested.insert(lookUpOp(canonicalDomain(n.domain()), n.op_type(), o.version()).row);
  };
  for (const std::string &file : caseFiles()) {
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(llvm::cantFail(readFile(file))->getBuffer().str()));
    visit(model.graph().node(), model.opset_import());
    for (const onnx::FunctionProto &f : model.functions())
      visit(f.node(), f.opset_import());
  }
  for (const OpRow &row : opRows())
    EXPECT_TRUE(tested.count(&row)) << row.domain << "." << row.op << " since " << row.since;
}
