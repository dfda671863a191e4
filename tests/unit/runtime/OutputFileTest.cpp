// Files that appear whole or not at all, also where a signal ends the process.
#include "runtime/plan/OutputFile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace gpt2c;
namespace fs = std::filesystem;

namespace {

class OutputFileTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gpt2c-output-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string path() const { return (folder / "out").string(); }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  std::string text() const {
    std::ifstream in(path());
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static rt::Status write(rt::OutputFile &file, const std::string &text) {
    return file.write(std::as_bytes(std::span(text)));
  }

  fs::path folder;
};

TEST_F(OutputFileTest, ReplacesOnCommit) {
  std::ofstream(path()) << "old";
  rt::OutputFile file(path());
  ASSERT_TRUE(file.open().ok());
  ASSERT_TRUE(write(file, "new").ok());
  EXPECT_EQ(text(), "old");
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(text(), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
  {
    rt::OutputFile file(path());
    ASSERT_TRUE(file.open().ok());
    ASSERT_TRUE(write(file, "half").ok());
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
}

using OutputFileDeathTest = OutputFileTest;

TEST_F(OutputFileDeathTest, SignalsRemoveWhatIsUnfinished) {
  auto endsBy = [&](int number) {
    rt::OutputFile::removeOnSignals();
    rt::OutputFile one(path()), two((folder / "other").string());
    if (!one.open().ok() || !two.open().ok() || !write(one, "half").ok() || files() != 2)
      _exit(1);
    raise(number);
  };
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(endsBy(number), testing::KilledBySignal(number), "");
    EXPECT_EQ(files(), 0u) << "after signal " << number;
  }
}

TEST_F(OutputFileDeathTest, AFileThatIsDoneStaysBehindASignal) {
  auto ends = [&] {
    rt::OutputFile::removeOnSignals();
    rt::OutputFile file(path());
    if (!file.open().ok() || !write(file, "whole").ok() || !file.commit().ok())
      _exit(1);
    raise(SIGINT);
  };
  EXPECT_EXIT(ends(), testing::KilledBySignal(SIGINT), "");
  EXPECT_EQ(text(), "whole");
}

/// As libraries do that put the handlers back which were there before them.
TEST_F(OutputFileDeathTest, ASignalEndsAProcessWhoseHandlerHasLostItsFlags) {
  auto ends = [] {
    rt::OutputFile::removeOnSignals();
    struct sigaction now{};
    sigaction(SIGTERM, nullptr, &now);
    std::signal(SIGTERM, now.sa_handler);
    raise(SIGTERM);
    std::exit(1);
  };
  EXPECT_EXIT(ends(), testing::KilledBySignal(SIGTERM), "");
}

} // namespace
