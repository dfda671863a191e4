// The registry of passes against stages, tests and documentation.
#include "passes/Pipeline.h"
#include "ir/Builder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

const std::string source = GPT2C_SOURCE_DIR;

TEST(Pipeline, StagesConsistOfPassesAndUseThemAll) {
  llvm::SmallVector<llvm::StringRef> used;
  for (const Stage &stage : pipeline())
    for (llvm::StringRef name : stage.passes) {
      EXPECT_NE(findPass(name), nullptr) << stage.name.str() << ": " << name.str();
      used.push_back(name);
    }
  for (const Pass &pass : allPasses())
    EXPECT_TRUE(llvm::is_contained(used, pass.name)) << pass.name.str() << " is in no stage";
}

TEST(Pipeline, EveryPassHasATestOfItsName) {
  std::vector<std::string> tests;
  std::error_code error;
  for (llvm::sys::fs::recursive_directory_iterator it(source + "/tests/lit/passes", error), end;
       it != end && !error; it.increment(error))
    tests.push_back(llvm::StringRef(it->path()).rsplit('/').second.str());
  ASSERT_FALSE(error) << error.message();
  for (const Pass &pass : allPasses())
    EXPECT_TRUE(llvm::any_of(tests, [&](llvm::StringRef file) {
      return file.consume_front(pass.name) && (file.starts_with(".") || file.starts_with("-"));
    })) << pass.name.str();
}

TEST(Pipeline, EveryPassAndStageIsDocumented) {
  auto file = llvm::MemoryBuffer::getFile(source + "/docs/passes.md");
  ASSERT_TRUE(bool(file));
  llvm::StringRef text = (*file)->getBuffer();
  for (const Pass &pass : allPasses())
    EXPECT_TRUE(text.contains(("**`" + pass.name + "`**").str())) << pass.name.str();
  for (const Stage &stage : pipeline()) {
    std::string row = "| `" + stage.name.str() + "` | ";
    for (llvm::StringRef name : stage.passes)
      row += (row.back() == '`' ? ", `" : "`") + name.str() + "`";
    EXPECT_TRUE(text.contains(row)) << row;
  }
}

TEST(Pipeline, ADisabledPassIsLeftOut) {
  Module module;
  module.addFunction("f");
  Builder(*module.functions.front()).ret({});
  PassOptions passOptions;
  std::vector<Remark> remarks;
  PassContext context(module, passOptions, remarks);
  PipelineOptions options;
  options.compileTo = "canonical";
  options.disabled = {"resolve-shapes"};
  std::vector<std::string> ran;
  options.afterPass = [&](const Pass &pass, const Module &, double) {
    ran.push_back(pass.name.str());
  };
  ASSERT_FALSE(bool(runPipeline(context, options)));
  EXPECT_EQ(ran, (std::vector<std::string>{"fold-constants", "simplify", "cse", "check-numbers"}));
}

TEST(Pipeline, ALevelLeavesStagesOut) {
  for (unsigned level : {0u, 1u, 2u}) {
    Module module;
    module.addFunction("f");
    Builder(*module.functions.front()).ret({});
    PassOptions passOptions;
    passOptions.level = level;
    std::vector<Remark> remarks;
    PassContext context(module, passOptions, remarks);
    PipelineOptions options;
    std::vector<std::string> ran, expected;
    options.afterStage = [&](const Stage &stage, const Module &) {
      ran.push_back(stage.name.str());
      return llvm::Error::success();
    };
    for (const Stage &stage : pipeline())
      if (stage.level <= level)
        expected.push_back(stage.name.str());
    ASSERT_FALSE(bool(runPipeline(context, options)));
    EXPECT_EQ(ran, expected);
  }
}

TEST(Pipeline, EveryOpIsIntroducedAndWhatIsRemovedWasLegal) {
  llvm::SmallVector<OpCode> legal;
  for (const Stage &stage : pipeline()) {
    legal.append(stage.introduced.begin(), stage.introduced.end());
    for (auto [code, pass] : stage.removed) {
      EXPECT_TRUE(llvm::is_contained(legal, code)) << opInfo(code).mnemonic.str();
      EXPECT_TRUE(llvm::is_contained(stage.passes, pass)) << pass.str();
    }
  }
  for (const OpInfo *op : allOps())
    EXPECT_TRUE(llvm::is_contained(legal, op->code)) << op->mnemonic.str();
}

TEST(Pipeline, NamesAreChecked) {
  PipelineOptions options;
  options.disabled = {"recognize-norm"};
  EXPECT_EQ(llvm::toString(checkOptions(options)),
            "there is no pass 'recognize-norm'; see gpt2c-opt --list-passes");
  options.disabled = {};
  options.compileTo = "fast";
  EXPECT_EQ(llvm::toString(checkOptions(options)),
            "there is no stage 'fast'; see gpt2c-opt --list-passes");
}

} // namespace
