#include "ir/Error.h"

#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

using namespace gpt2c;

static std::pair<std::string, ExitCode> printed(llvm::Error e) {
  std::string text;
  llvm::raw_string_ostream os(text);
  ExitCode code = printError(std::move(e), os);
  return {text, code};
}

TEST(TextErrorTest, EveryErrorOnceAndTheFirstCode) {
  auto plain = [] { return llvm::createStringError(llvm::inconvertibleErrorCode(), "plain"); };
  EXPECT_EQ(printed(llvm::Error::success()), std::pair(std::string(), ExitCode::Ok));
  EXPECT_EQ(printed(plain()), std::pair(std::string("error: plain\n"), ExitCode::InvalidModel));
  llvm::Error both =
      llvm::joinErrors(makeError(ExitCode::Unsupported, "a"), makeError(ExitCode::Io, "b"));
  EXPECT_EQ(printed(llvm::joinErrors(plain(), std::move(both))),
            std::pair(std::string("error: plain\nerror: a\nerror: b\n"), ExitCode::Unsupported));
  EXPECT_EQ(printed(llvm::make_error<SourceError>(ExitCode::InvalidModel, "f:1:2: error: x\n")),
            std::pair(std::string("f:1:2: error: x\n"), ExitCode::InvalidModel));
}

TEST(TextErrorTest, ContextKeepsCodes) {
  llvm::Error both =
      llvm::joinErrors(makeError(ExitCode::OutOfMemory, "a"), makeError(ExitCode::Io, "b"));
  EXPECT_EQ(
      printed(inContext("in pass x", std::move(both))),
      std::pair(std::string("error: in pass x: a\nerror: in pass x: b\n"), ExitCode::OutOfMemory));
  EXPECT_FALSE(!!inContext("nothing", llvm::Error::success()));
}
