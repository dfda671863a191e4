// The descent by functions whose time is a formula of their choices.
#include "tools/common/tuning/TuningDescent.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

/// Relative times of functions by their choices, and what it took to find the best.
struct Outcome {
  ChoicesByKey choices;
  int compared = 0;
};

using Time = std::function<double(const ChoicesByKey &)>;

Outcome descendBy(const std::vector<Time> &times, const std::vector<SharesByKey> &shares,
                  const std::map<std::string, std::vector<std::string>> &candidates,
                  ChoicesByKey begin, double error = 0) {
  Outcome out;
  auto compare = [&](const ChoicesByKey &best,
                     const ChoicesByKey &trial) -> llvm::Expected<std::vector<TimeRatio>> {
    ++out.compared;
    std::vector<TimeRatio> ratios;
    for (const Time &time : times)
      ratios.push_back({time(trial) / time(best), error});
    return ratios;
  };
  auto found = descend(shares, candidates, std::move(begin), compare);
  EXPECT_TRUE(bool(found));
  if (found)
    out.choices = *found;
  else
    llvm::consumeError(found.takeError());
  return out;
}

/// `slow` unless the key has the choice.
double cost(const ChoicesByKey &choices, const char *key, const char *choice, double slow) {
  return choices.at(key) == choice ? 1 : slow;
}

TEST(TuningDescent, TakesWhatMakesTheFunctionFaster) {
  auto time = [](const ChoicesByKey &c) {
    return cost(c, "a", "a2", 1.1) + cost(c, "b", "b0", 1.2);
  };
  Outcome out =
      descendBy({time}, {{{"a", 0.5}, {"b", 0.5}}},
                {{"a", {"a0", "a1", "a2"}}, {"b", {"b0", "b1"}}}, {{"a", "a0"}, {"b", "b0"}});
  EXPECT_EQ(out.choices, (ChoicesByKey{{"a", "a2"}, {"b", "b0"}}));
  EXPECT_EQ(out.compared, 3); // a1, a2 and b1, which is not close enough to be tried again
}

TEST(TuningDescent, TriesAgainWhatWasCloseBeforeAnotherChanged) {
  // a1 pays only beside b1, which is found after a1 has been tried.
  auto time = [](const ChoicesByKey &c) {
    return 10 + (c.at("a") == "a1" ? (c.at("b") == "b1" ? -1 : 0.1) : 0) + cost(c, "b", "b1", 2);
  };
  Outcome out = descendBy({time}, {{{"a", 0.6}, {"b", 0.4}}},
                          {{"a", {"a0", "a1"}}, {"b", {"b0", "b1"}}}, {{"a", "a0"}, {"b", "b0"}});
  EXPECT_EQ(out.choices, (ChoicesByKey{{"a", "a1"}, {"b", "b1"}}));
}

TEST(TuningDescent, LeavesWhatMayBeChance) {
  auto time = [](const ChoicesByKey &c) { return cost(c, "a", "a1", 1.01); };
  std::map<std::string, std::vector<std::string>> candidates{{"a", {"a0", "a1"}}};
  EXPECT_EQ(descendBy({time}, {{{"a", 1.0}}}, candidates, {{"a", "a0"}}, 0.01).choices.at("a"),
            "a0");
  EXPECT_EQ(descendBy({time}, {{{"a", 1.0}}}, candidates, {{"a", "a0"}}, 0.001).choices.at("a"),
            "a1");
}

TEST(TuningDescent, TriesAKeyOfEachFunctionAtOnce) {
  auto first = [](const ChoicesByKey &c) { return cost(c, "a", "a1", 1.1); };
  auto second = [](const ChoicesByKey &c) { return cost(c, "b", "b0", 1.1); };
  Outcome out = descendBy({first, second}, {{{"a", 0.9}}, {{"b", 0.9}}},
                          {{"a", {"a0", "a1"}}, {"b", {"b0", "b1"}}}, {{"a", "a0"}, {"b", "b0"}});
  EXPECT_EQ(out.choices, (ChoicesByKey{{"a", "a1"}, {"b", "b0"}}));
  EXPECT_EQ(out.compared, 1);
}

TEST(TuningDescent, AKeyOfTwoFunctionsIsTriedAloneAndServesBoth) {
  // One gains more than the other loses; a third has little of it and is not asked.
  auto gains = [](const ChoicesByKey &c) {
    return cost(c, "a", "a1", 1.2) * cost(c, "b", "b1", 2);
  };
  auto loses = [](const ChoicesByKey &c) { return cost(c, "a", "a0", 1.05); };
  auto little = [](const ChoicesByKey &c) { return cost(c, "a", "a0", 9); };
  Outcome out =
      descendBy({gains, loses, little}, {{{"a", 0.3}, {"b", 0.9}}, {{"a", 0.9}}, {{"a", 0.01}}},
                {{"a", {"a0", "a1"}}, {"b", {"b0", "b1"}}}, {{"a", "a0"}, {"b", "b0"}});
  EXPECT_EQ(out.choices, (ChoicesByKey{{"a", "a1"}, {"b", "b1"}}));
}

TEST(TuningDescent, SmallSharesStay) {
  int compared = descendBy({[](const ChoicesByKey &) { return 1.0; }}, {{{"a", 0.01}}},
                           {{"a", {"a0", "a1"}}}, {{"a", "a0"}})
                     .compared;
  EXPECT_EQ(compared, 0);
}

TEST(TuningDescent, AnErrorEndsIt) {
  auto found = descend(
      {{{"a", 1.0}}}, {{"a", {"a0", "a1"}}}, {{"a", "a0"}},
      [](const ChoicesByKey &, const ChoicesByKey &) -> llvm::Expected<std::vector<TimeRatio>> {
        return llvm::createStringError("lost");
      });
  EXPECT_EQ(toString(found.takeError()), "lost");
}

} // namespace
