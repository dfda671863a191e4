#include "PlanSample.h"
#include "include/gpt2c.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "tests/unit/runtime/text/TokenizerToy.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace gpt2c::rt {
namespace {

using ::testing::Test;

class CApi : public Test {
protected:
  std::string write(bool tokenizer) {
    sample::Sample made;
    std::string blob;
    if (tokenizer) {
      test::TemporaryFolder files;
      test::Toy().writeVocabAndMerges(files);
      Result<Tokenizer> toy = Tokenizer::fromFiles(files.path());
      EXPECT_TRUE(toy) << toy.status().message();
      blob = toy->serialize();
    }
    made.contents.tokenizer = std::as_bytes(std::span(blob));
    std::string path = folder_.path("sample.plan");
    Status status = writePlan(path, made.contents);
    EXPECT_TRUE(status.ok()) << status.message();
    return path;
  }

  gpt2c_plan *open(bool tokenizer) {
    gpt2c_plan *plan = nullptr;
    EXPECT_EQ(gpt2c_plan_open(write(tokenizer).c_str(), &plan), GPT2C_OK) << gpt2c_last_error();
    return plan;
  }

  static void expectError(gpt2c_status got, gpt2c_status code, const std::string &text) {
    EXPECT_EQ(got, code);
    EXPECT_NE(std::string(gpt2c_last_error()).find(text), std::string::npos) << gpt2c_last_error();
  }

  test::TemporaryFolder folder_;
};

TEST_F(CApi, SaysWhatAPlanHolds) {
  gpt2c_plan *plan = open(false);
  gpt2c_plan_info info = GPT2C_PLAN_INFO_INIT;
  ASSERT_EQ(gpt2c_plan_get_info(plan, &info), GPT2C_OK);
  EXPECT_EQ(info.vocab_size, 11);
  EXPECT_EQ(info.eos_token, 10);
  EXPECT_EQ(info.max_batch, 2);
  EXPECT_EQ(info.max_context, 16);
  EXPECT_EQ(info.has_tokenizer, 0);
  size_t count = 0;
  expectError(gpt2c_encode(plan, "a", 1, nullptr, 0, &count), GPT2C_UNSUPPORTED, "no tokenizer");
  gpt2c_plan_close(plan);
}

TEST_F(CApi, EncodesAndDecodesInTwoCalls) {
  gpt2c_plan *plan = open(true);
  const std::string text = "hello hello \xff";
  size_t count = 0, bytes = 0;
  ASSERT_EQ(gpt2c_encode(plan, text.data(), text.size(), nullptr, 0, &count), GPT2C_OK);
  ASSERT_GT(count, 2u);
  std::vector<int32_t> tokens(count, -7);
  size_t again = 0;
  ASSERT_EQ(gpt2c_encode(plan, text.data(), text.size(), tokens.data(), 1, &again), GPT2C_OK);
  EXPECT_EQ(again, count);
  EXPECT_GE(tokens[0], 0);
  EXPECT_EQ(tokens[1], -7); // beyond the capacity nothing is written
  ASSERT_EQ(gpt2c_encode(plan, text.data(), text.size(), tokens.data(), count, &again), GPT2C_OK);
  std::string back(text.size(), '\0');
  ASSERT_EQ(gpt2c_decode_text(plan, tokens.data(), count, back.data(), back.size(), &bytes),
            GPT2C_OK);
  EXPECT_EQ(bytes, text.size());
  EXPECT_EQ(back, text);
  gpt2c_plan_close(plan);
}

TEST_F(CApi, ErrorsComeAsCodesWithAMessage) {
  gpt2c_plan *plan = nullptr;
  expectError(gpt2c_plan_open("/nowhere.plan", &plan), GPT2C_IO, "/nowhere.plan");
  EXPECT_EQ(plan, nullptr);
  expectError(gpt2c_plan_open(nullptr, &plan), GPT2C_USAGE, "'path' is null");
  expectError(gpt2c_plan_open("x", nullptr), GPT2C_USAGE, "'plan' is null");
  std::string path = write(false);
  std::vector<std::byte> bytes = sample::readFile(path);
  bytes[bytes.size() / 2] ^= std::byte(0x40);
  sample::writeFile(path, bytes);
  expectError(gpt2c_plan_open(path.c_str(), &plan), GPT2C_CORRUPT, "sample.plan");
  plan = open(false);
  EXPECT_STREQ(gpt2c_last_error(), ""); // a success clears it
  expectError(gpt2c_session_create(plan, nullptr, nullptr), GPT2C_USAGE, "'session' is null");
  expectError(gpt2c_decode(nullptr, 1, nullptr), GPT2C_USAGE, "'session' is null");
  gpt2c_plan_close(plan);
  gpt2c_plan_close(nullptr);
  gpt2c_session_destroy(nullptr);
}

TEST_F(CApi, StructsMayBeOlderOrNewer) {
  gpt2c_plan *plan = open(false);
  struct {
    gpt2c_plan_info info = GPT2C_PLAN_INFO_INIT;
    int64_t later = 7;
  } newer;
  newer.info.struct_size = sizeof newer;
  ASSERT_EQ(gpt2c_plan_get_info(plan, &newer.info), GPT2C_OK);
  EXPECT_EQ(newer.info.max_batch, 2);
  EXPECT_EQ(newer.info.struct_size, sizeof newer);
  EXPECT_EQ(newer.later, 0); // the library does not know it
  gpt2c_plan_info older = GPT2C_PLAN_INFO_INIT;
  older.struct_size = offsetof(gpt2c_plan_info, max_batch);
  older.max_batch = -5;
  ASSERT_EQ(gpt2c_plan_get_info(plan, &older), GPT2C_OK);
  EXPECT_EQ(older.vocab_size, 11);
  EXPECT_EQ(older.max_batch, -5);
  older.struct_size = 0;
  expectError(gpt2c_plan_get_info(plan, &older), GPT2C_USAGE, "struct_size of 'info' is 0");

  struct {
    gpt2c_session_options options = GPT2C_SESSION_OPTIONS_INIT;
    int64_t later = 0;
  } options;
  options.options.struct_size = sizeof options;
  options.options.device = "tpu";
  gpt2c_session *session = nullptr;
  expectError(gpt2c_session_create(plan, &options.options, &session), GPT2C_USAGE,
              "no device 'tpu'");
  options.later = 1;
  expectError(gpt2c_session_create(plan, &options.options, &session), GPT2C_USAGE,
              "sets fields that gpt2c");
  gpt2c_plan_close(plan);
}

TEST_F(CApi, DevicesAreChecked) {
  gpt2c_plan *plan = open(false);
  gpt2c_session *session = nullptr;
  gpt2c_session_options options = GPT2C_SESSION_OPTIONS_INIT;
  for (const char *name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "CPU"}) {
    options.device = name;
    expectError(gpt2c_session_create(plan, &options, &session), GPT2C_USAGE, "there is no device");
  }
  options.device = "cpu";
  options.threads = -1;
  expectError(gpt2c_session_create(plan, &options, &session), GPT2C_USAGE, "-1 threads");
  gpt2c_plan_close(plan);
}

TEST_F(CApi, StreamsHoldBackStopStrings) {
  gpt2c_plan *plan = open(true);
  const char *const stops[] = {"lo h"};
  gpt2c_stream *stream = nullptr;
  ASSERT_EQ(gpt2c_stream_create(plan, stops, 1, &stream), GPT2C_OK);
  const char *piece = nullptr;
  size_t bytes = 0;
  int32_t stop = 5;
  std::string shown;
  for (char c : std::string("hello hell")) {
    ASSERT_EQ(gpt2c_stream_push(stream, c, &piece, &bytes, &stop), GPT2C_OK);
    shown.append(piece, bytes);
  }
  EXPECT_EQ(shown, "hel");
  EXPECT_EQ(stop, 0);
  ASSERT_EQ(gpt2c_stream_finish(stream, &piece, &bytes), GPT2C_OK);
  EXPECT_EQ(bytes, 0u);
  const char *const empty[] = {""};
  expectError(gpt2c_stream_create(plan, empty, 1, &stream), GPT2C_USAGE, "is empty");
  gpt2c_stream_destroy(stream);
  gpt2c_plan_close(plan);
}

} // namespace
} // namespace gpt2c::rt
