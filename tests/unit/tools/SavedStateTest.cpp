// A KV state in a file: who reads it goes on as who wrote it would have, whatever the ranks; a file
// that is another's, or damaged, is refused.
#include "runtime/session/SavedState.h"

#include "cpu/CpuBackend.h"
#include "frontend/Import.h"
#include "passes/Pipeline.h"
#include "runtime/group/ThreadRanks.h"
#include "tools/common/verification/GeneratedSession.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <unistd.h>

using namespace gpt2c;

namespace {

struct Compiled {
  std::unique_ptr<Module> module;
  std::unique_ptr<GeneratedPlan> plan;

  explicit Compiled(int64_t context = 48, bool int8Kv = false)
      : module(llvm::cantFail(importOnnx(GPT2C_SOURCE_DIR "/examples/sample/model.onnx"))) {
    PassOptions options;
    options.maxBatch = 3;
    options.maxContext = context;
    if (int8Kv)
      options.quantize.kvType = DType::I8;
    options.tensorParallel = {2, 4};
    std::vector<Remark> remarks;
    PassContext passes(*module, options, remarks);
    llvm::cantFail(runPipeline(passes, {}));
    CodegenOptions codegen;
    codegen.maxBatch = 3;
    plan = llvm::cantFail(generatePlan(*module, codegen));
  }

  std::unique_ptr<rt::Session> open(int ranks) {
    return llvm::cantFail(openGenerated(*plan, [ranks](const rt::Plan::Ptr &p) {
      return ranks == 1 ? makeCpuBackend(p)
                        : rt::openThreadRanks(p, ranks, [&](rt::RankLink &link) {
                            return makeCpuBackend(p, {1, &link});
                          });
    }));
  }
};

class SavedState : public testing::Test {
protected:
  SavedState()
      : path(std::filesystem::temp_directory_path() /
             ("gpt2c-state-" + std::to_string(::getpid()))) {}
  ~SavedState() override { std::filesystem::remove(path); }

  static const std::vector<rt::Tokens> &texts() {
    static const std::vector<rt::Tokens> some = {{3, 1, 4, 1, 5, 9, 2, 6}, {2, 7}, {1, 8, 2, 8, 1}};
    return some;
  }
  /// What follows the texts, token by token.
  static std::vector<rt::Tokens> follow(rt::Session &session) {
    const std::vector<rt::Tokens> more = {{10}, {11, 12, 13}, {14}};
    const std::vector<int32_t> past(session.lengths().begin(), session.lengths().end());
    auto first = session.prefill(more, past);
    EXPECT_TRUE(first) << first.status().message();
    std::vector<rt::Tokens> out{first->next};
    auto steps = session.decode(8);
    EXPECT_TRUE(steps) << steps.status().message();
    out.insert(out.end(), steps->begin(), steps->end());
    return out;
  }

  std::string path;
};

TEST_F(SavedState, IsReadByAnyNumberOfRanks) {
  Compiled compiled;
  for (int writer : {1, 4}) {
    auto session = compiled.open(writer);
    ASSERT_TRUE(session->prefill(texts()));
    ASSERT_TRUE(rt::saveState(*session, path).ok());
    const auto expected = follow(*session);
    for (int reader : {1, 2, 4}) {
      auto other = compiled.open(reader);
      const rt::Status s = rt::restoreState(*other, path);
      ASSERT_TRUE(s.ok()) << s.message();
      for (size_t b = 0; b < texts().size(); ++b)
        EXPECT_TRUE(std::ranges::equal(other->held(b), texts()[b]));
      EXPECT_EQ(follow(*other), expected) << writer << " to " << reader;
    }
  }
}

TEST_F(SavedState, OfAnotherPlanIsRefused) {
  Compiled compiled, other(32);
  auto session = compiled.open(1);
  EXPECT_EQ(rt::saveState(*session, path).code(), rt::Code::Usage) << "nothing is in it";
  ASSERT_TRUE(session->prefill(texts()));
  ASSERT_TRUE(rt::saveState(*session, path).ok());
  const rt::Status s = rt::restoreState(*other.open(1), path);
  EXPECT_EQ(s.code(), rt::Code::Incompatible);
  EXPECT_NE(s.message().find("is the state of another plan"), std::string::npos) << s.message();
  EXPECT_EQ(rt::restoreState(*session, path + ".none").code(), rt::Code::Io);
}

TEST_F(SavedState, InInt8IsRefused) {
  Compiled compiled(48, true);
  auto session = compiled.open(1);
  ASSERT_TRUE(session->prefill(texts()));
  EXPECT_EQ(rt::saveState(*session, path).code(), rt::Code::Unsupported);
}

TEST_F(SavedState, DamagedAnywhereIsRefused) {
  Compiled compiled;
  auto session = compiled.open(1);
  ASSERT_TRUE(session->prefill(texts()));
  ASSERT_TRUE(rt::saveState(*session, path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto refused = [&](const std::string &content) {
    std::ofstream(path, std::ios::binary) << content;
    const rt::Code code = rt::restoreState(*session, path).code();
    return code == rt::Code::Corrupt || code == rt::Code::Incompatible;
  };
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    damaged[i < 100 ? size_t(i) : random() % bytes.size()] ^= char(1 << random() % 8);
    EXPECT_TRUE(refused(damaged));
    EXPECT_TRUE(refused(bytes.substr(0, random() % bytes.size())));
  }
  EXPECT_TRUE(refused(bytes + "x"));
  EXPECT_TRUE(refused(""));
}

} // namespace
