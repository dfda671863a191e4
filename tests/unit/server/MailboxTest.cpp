// Updates on their way from an engine's thread to mailboxes.
#include "server/Mailbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

namespace gpt2c::serve {
namespace {

rt::Update token(int32_t id, bool ends = false) {
  rt::Update update{.choice = rt::Choice{.token = id}};
  if (ends)
    update.ending = rt::Ending{};
  return update;
}

std::vector<int32_t> tokensOf(const std::vector<Mailbox::Item> &items) {
  std::vector<int32_t> tokens;
  for (const Mailbox::Item &item : items)
    tokens.push_back(item.update.choice->token);
  return tokens;
}

TEST(Mailbox, WakesForTheFirstForSoManyAndForTheEnd) {
  int woken = 0;
  Mailbox box([&] { ++woken; }, 1, 3);
  box.put({0, token(1), {}});
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(tokensOf(box.take()), (std::vector<int32_t>{1}));
  box.put({0, token(2), {}});
  box.put({0, token(3), {}});
  EXPECT_EQ(woken, 1);
  box.put({0, token(4), {}});
  box.put({0, token(5), {}}); // it is awake already
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(tokensOf(box.take()), (std::vector<int32_t>{2, 3, 4, 5}));
  box.put({0, token(6, true), {}});
  EXPECT_EQ(woken, 3);
  box.close();
  box.put({0, token(7, true), {}});
  EXPECT_EQ(woken, 3);
  EXPECT_TRUE(box.take().empty());
}

// Whatever comes together costs one run, none where one is under way, and has one time.
TEST(Delivery, RunsOncePerFlush) {
  auto delivery = std::make_shared<Delivery>();
  std::deque<std::function<void()>> runs;
  delivery->dealtOutBy([&](std::function<void()> run) { runs.push_back(std::move(run)); });
  auto a = std::make_shared<Mailbox>([] {}, 1, 1), b = std::make_shared<Mailbox>([] {}, 1, 1);
  delivery->flush();
  EXPECT_TRUE(runs.empty());
  delivery->put(a, 0, token(1));
  delivery->put(b, 0, token(2));
  EXPECT_TRUE(runs.empty());
  delivery->flush();
  delivery->put(a, 1, token(3));
  delivery->flush();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(a->take().empty());
  runs.front()();
  const std::vector<Mailbox::Item> ofA = a->take(), ofB = b->take();
  EXPECT_EQ(tokensOf(ofA), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokensOf(ofB), (std::vector<int32_t>{2}));
  EXPECT_EQ(ofA[0].at, ofB[0].at);
  EXPECT_EQ(ofA[1].choice, 1u);
  delivery->put(a, 0, token(4));
  delivery->flush();
  EXPECT_EQ(runs.size(), 2u);
  // What the one before was asked for is done by the next.
  delivery->dealtOutBy(nullptr);
  delivery->put(b, 0, token(5));
  delivery->flush();
  EXPECT_EQ(tokensOf(a->take()), (std::vector<int32_t>{4}));
  EXPECT_EQ(tokensOf(b->take()), (std::vector<int32_t>{5}));
}

TEST(Delivery, KeepsTheOrderOverThreads) {
  auto delivery = std::make_shared<Delivery>();
  std::vector<std::jthread> dealers;
  delivery->dealtOutBy([&](std::function<void()> run) { dealers.emplace_back(std::move(run)); });
  auto box = std::make_shared<Mailbox>([] {}, 1, 1);
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < 2000; ++i) {
    expected.push_back(i);
    delivery->put(box, 0, token(i));
    if (i % 7 == 6)
      delivery->flush();
  }
  delivery->flush();
  dealers.clear();
  EXPECT_EQ(tokensOf(box->take()), expected);
}

} // namespace
} // namespace gpt2c::serve
