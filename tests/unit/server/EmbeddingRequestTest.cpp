#include "server/requests/EmbeddingRequest.h"

#include "ServiceToy.h"

namespace gpt2c::serve {
namespace {

namespace json = boost::json;

class EmbeddingRequestTest : public ::testing::Test {
protected:
  EmbeddingRequest read(const json::value &body) {
    auto got = readEmbedding(body, *model_, {}, rt::Pooling::Mean);
    EXPECT_TRUE(std::holds_alternative<EmbeddingRequest>(got)) << json::serialize(body);
    auto *request = std::get_if<EmbeddingRequest>(&got);
    return request ? *request : EmbeddingRequest();
  }
  ApiError error(const json::value &body) {
    auto got = readEmbedding(body, *model_, {.prompts = 2}, rt::Pooling::Last);
    EXPECT_TRUE(std::holds_alternative<ApiError>(got)) << json::serialize(body);
    auto *error = std::get_if<ApiError>(&got);
    return error ? *error : ApiError();
  }

  std::shared_ptr<Model> model_ = toy::model();
};

TEST_F(EmbeddingRequestTest, AnInputIsOneTextOrSeveral) {
  EXPECT_EQ(read({{"input", "ab"}}).inputs, (std::vector<rt::Tokens>{{'a', 'b'}}));
  EXPECT_EQ(read({{"input", {"ab", "c"}}}).inputs, (std::vector<rt::Tokens>{{'a', 'b'}, {'c'}}));
  EXPECT_EQ(read({{"input", {7, 8}}}).inputs, (std::vector<rt::Tokens>{{7, 8}}));
  EXPECT_EQ(read(json::parse(R"({"input":[[7,8],[9]]})")).tokens(), 3);
  const EmbeddingRequest usual = read({{"input", "a"}});
  EXPECT_EQ(usual.pooling, rt::Pooling::Mean);
  EXPECT_TRUE(usual.normalised && !usual.base64 && usual.dimensions == 0);
  const EmbeddingRequest other = read({{"input", "a"},
                                       {"encoding_format", "base64"},
                                       {"pooling", "last"},
                                       {"normalize", false},
                                       {"dimensions", 4},
                                       {"user", "me"}});
  EXPECT_EQ(other.pooling, rt::Pooling::Last);
  EXPECT_TRUE(!other.normalised && other.base64 && other.dimensions == 4);
}

TEST_F(EmbeddingRequestTest, WhatIsWrongIsToldByItsField) {
  const std::pair<const char *, const char *> cases[] = {
      {R"({})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":""})", "input"},
      {R"({"input":["a","b","c"]})", "input"},
      {R"({"input":[1.5]})", "input"},
      {R"({"input":[1,260]})", "input"},
      {R"({"input":[-1]})", "input"},
      {R"({"input":"a","pooling":"max"})", "pooling"},
      {R"({"input":"a","encoding_format":"int8"})", "encoding_format"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","model":"none"})", "model"},
      {R"({"input":"a","prompt":"a"})", "prompt"}};
  for (const auto &[body, field] : cases)
    EXPECT_EQ(error(json::parse(body)).param, field) << body;
  const ApiError tooLong = error({{"input", std::string(97, 'a')}});
  EXPECT_EQ(tooLong.code, "context_length_exceeded");
  EXPECT_NE(tooLong.message.find("96"), std::string::npos) << tooLong.message;
}

// What generates has its device for that alone.
TEST_F(EmbeddingRequestTest, AModelThatGeneratesHasNone) {
  EXPECT_TRUE(model_->generates());
  EXPECT_FALSE(model_->embed({1}, rt::Pooling::Last, true));
  Service service({});
  service.setModel(model_);
  auto client = std::make_shared<toy::Client>();
  service.handle(toy::post("/v1/embeddings", {{"input", "a"}}), client);
  client->wait();
  EXPECT_EQ(client->response.status, 400);
  EXPECT_NE(client->response.body.find("no_embeddings"), std::string::npos);
}

} // namespace
} // namespace gpt2c::serve
