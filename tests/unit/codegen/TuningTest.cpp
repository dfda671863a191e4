// Tuning files, and the lists of configurations they choose from.
#include "codegen/Tuning.h"

#include "codegen/Candidates.h"

#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

TEST(TuningTable, RoundTrips) {
  TuningTable table("sm_90a");
  table.set("b", {"two", 2.5, 3});
  table.set("a \"quoted\"", {"one", 1, 1});
  std::string text = table.text();
  auto again = TuningTable::parse(text);
  ASSERT_TRUE(bool(again)) << toString(again.takeError());
  EXPECT_EQ(again->arch(), "sm_90a");
  EXPECT_EQ(again->text(), text);
  ASSERT_TRUE(again->find("b"));
  EXPECT_EQ(again->find("b")->choice, "two");
  EXPECT_EQ(again->find("b")->microseconds, 2.5);
  EXPECT_FALSE(again->find("c"));
}

TEST(TuningTable, RefusesWhatIsNone) {
  for (const char *text :
       {"", "{", "[]", "null", "{}", R"({"format": "gpt2c tuning 2", "arch": "x", "entries": []})",
        R"({"format": "gpt2c tuning 1", "entries": []})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80"})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80", "entries": [1]})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80", "entries": [{"key": "a"}]})"}) {
    auto table = TuningTable::parse(text);
    EXPECT_FALSE(bool(table)) << text;
    llvm::consumeError(table.takeError());
  }
}

TEST(TunedChoices, TakeWhatIsStillACandidate) {
  TuningTable table("sm_80");
  table.set("known", {"fast"});
  table.set("old", {"gone"});
  TunedChoices choices(table);
  EXPECT_EQ(choices.choose("known", {"model", "fast"}), 1u);
  EXPECT_EQ(choices.choose("old", {"model", "fast"}), 0u);
  EXPECT_EQ(choices.choose("new", {"model", "fast"}), 0u);
  EXPECT_EQ(choices.used(), std::set<std::string>{"known"});
  EXPECT_EQ(choices.stale(), std::set<std::string>{"old"});
}

template <typename Config> void expectList(const std::vector<Config> &list, const Config &model) {
  ASSERT_GT(list.size(), 1u);
  EXPECT_EQ(nameOf(list.front()), nameOf(model));
  llvm::StringSet<> names;
  for (const Config &c : list)
    EXPECT_TRUE(names.insert(nameOf(c)).second) << nameOf(c);
}

TEST(Candidates, BeginWithTheModelAndHoldNoneTwice) {
  LinearRowDotConfig rowDot{.cols = 3, .k = 768};
  expectList(candidates(rowDot), rowDot);
  LinearSkinnyConfig skinny{.k = 3072};
  expectList(candidates(skinny), skinny);
  LinearWgmmaConfig wgmma;
  expectList(candidates(wgmma, 512, 768, 768, 227 * 1024), wgmma);
  for (const LinearWgmmaConfig &c : candidates(wgmma, 512, 768, 768, 99 * 1024))
    EXPECT_LE(wgmmaSharedBytes(c), 99u * 1024);
  LinearSimtConfig simt;
  expectList(candidates(simt, 512, 768, 768), simt);
  AttentionConfig attention{.headDim = 64, .heads = 12};
  expectList(candidates(attention), attention);
}

} // namespace
