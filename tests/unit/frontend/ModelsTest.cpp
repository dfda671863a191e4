// Every model of the shared collection: imported and run on its own test data, in the declared
// precision and in double.
#include "frontend/Import.h"
#include "frontend/files/TensorProto.h"
#include "ir/Executor.h"
#include "ir/Verifier.h"
#include "tests/unit/SharedDir.h"

#include "llvm/ADT/Twine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

using namespace gpt2c;
namespace fs = std::filesystem;

static std::vector<std::string> modelFolders() {
  std::vector<std::string> found;
  for (const char *collection : {"ours", "third-party", "llama"}) {
    std::error_code e;
    for (const auto &entry :
         fs::directory_iterator(fs::path(sharedDir()) / "models" / collection, e))
      if (fs::exists(entry.path() / "model.onnx"))
        found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Models : public testing::TestWithParam<std::string> {
protected:
  static std::vector<Tensor> readTensors(const std::string &folder, const std::string &kind) {
    std::vector<Tensor> tensors;
    for (unsigned i = 0;; ++i) {
      const std::string path =
          (llvm::Twine(folder) + "/" + kind + "_" + llvm::Twine(i) + ".pb").str();
      if (!fs::exists(path))
        return tensors;
      auto t = readTensorProto(path);
      EXPECT_TRUE(bool(t)) << llvm::toString(t.takeError());
      tensors.push_back(t->tensor);
    }
  }

  static double relativeError(const Tensor &actual, const Tensor &expected) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < expected.count(); ++i) {
      double d = actual.asDouble(i) - expected.asDouble(i);
      difference += d * d;
      norm += expected.asDouble(i) * expected.asDouble(i);
    }
    return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  }

  static void check(bool float64) {
    auto module = importOnnx(GetParam() + "/model.onnx");
    ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
    llvm::Error broken = verify(**module);
    ASSERT_FALSE(bool(broken)) << llvm::toString(std::move(broken));
    unsigned sets = 0;
    for (;; ++sets) {
      std::string folder = GetParam() + "/test_data_set_" + std::to_string(sets);
      if (!fs::exists(folder))
        break;
      SCOPED_TRACE(folder);
      checkData(*(*module)->function("main"), folder, float64);
    }
    EXPECT_GT(sets, 0u);
  }

  static void checkData(Function &main, const std::string &folder, bool float64) {
    std::vector<Tensor> inputs = readTensors(folder, "input"),
                        expected = readTensors(folder, "output");
    ASSERT_EQ(inputs.size(), main.numArguments());
    ASSERT_FALSE(expected.empty());
    ExecOptions options;
    options.float64 = float64;
    auto outputs = Executor(main, options).run(inputs);
    ASSERT_TRUE(bool(outputs)) << llvm::toString(outputs.takeError());
    ASSERT_EQ(outputs->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(main.resultNames[i]);
      ASSERT_EQ((*outputs)[i].shape(), expected[i].shape());
      // Half precision: the expected values are rounded; and run natively, with every op rounded,
      // attention scores of some hundreds are off by a tenth.
      double half = float64 ? 2e-3 : 5e-2;
      double tolerance = expected[i].dtype() == DType::F16 ? half : 1e-4;
      EXPECT_LT(relativeError((*outputs)[i], expected[i]), tolerance);
    }
  }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Models);
INSTANTIATE_TEST_SUITE_P(Shared, Models, testing::ValuesIn(modelFolders()), [](const auto &info) {
  fs::path folder = info.param;
  bool llama = folder.parent_path().filename() == "llama";
  std::string name = (llama ? "llama-" : "") + folder.filename().string();
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
});

TEST_P(Models, RunNatively) { check(false); }
TEST_P(Models, RunInDouble) { check(true); }

TEST(ModelsFolder, IsThere) {
  if (modelFolders().empty())
    GTEST_SKIP() << "no models below " << sharedDir();
}
