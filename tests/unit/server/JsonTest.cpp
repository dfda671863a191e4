#include "runtime/text/unicode/Utf8.h"
#include "server/http/Fields.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <random>

namespace gpt2c::serve {
namespace {

namespace json = boost::json;

TEST(Json, WhatIsWrittenIsReadAgain) {
  JsonWriter w;
  w.object().key("a").integer(-3).key("b").array().number(0.1).number(1e300).null().end();
  w.key("c").object().end().key("d").boolean(true).key("e").text("x\"\\\n\t\x01\x7f\xC3\xA9");
  w.end();
  EXPECT_EQ(w.str(), "{\"a\":-3,\"b\":[0.1,1e+300,null],\"c\":{},\"d\":true,"
                     "\"e\":\"x\\\"\\\\\\n\\t\\u0001\\u007f\xC3\xA9\"}");
  const auto read = parseJson(w.str());
  ASSERT_TRUE(std::holds_alternative<json::value>(read));
  JsonWriter again;
  again.value(std::get<json::value>(read));
  EXPECT_EQ(again.str(), w.str());
}

TEST(Json, AByteThatIsNoTextIsReplacedByItself) {
  JsonWriter w;
  w.text("a\xE2\x82z\xFF");
  EXPECT_EQ(w.str(), "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD\"");
}

TEST(Json, NumbersThatJsonDoesNotHave) {
  JsonWriter w;
  w.array().number(INFINITY).number(NAN).end();
  EXPECT_EQ(w.str(), "[null,null]");
}

// Whatever the bytes of a text are, it is valid JSON, and the same text where it was UTF-8.
TEST(Json, EveryTextIsValid) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 12, 0);
    for (char &c : text)
      c = char(random() % (i % 2 ? 256 : 128));
    JsonWriter w;
    w.text(text);
    const auto read = parseJson(w.str());
    ASSERT_TRUE(std::holds_alternative<json::value>(read)) << w.str();
    if (rt::isUtf8(text)) {
      EXPECT_EQ(textOf(std::get<json::value>(read)), text);
    }
  }
}

TEST(Json, DepthIsBounded) {
  auto nested = [](size_t depth) {
    return parseJson(std::string(depth, '[') + std::string(depth, ']'));
  };
  EXPECT_TRUE(std::holds_alternative<json::value>(nested(kJsonDepth)));
  const auto deep = nested(100'000);
  ASSERT_TRUE(std::holds_alternative<ApiError>(deep));
  EXPECT_NE(std::get<ApiError>(deep).message.find("deeper than 64"), std::string::npos);
  EXPECT_TRUE(std::holds_alternative<ApiError>(parseJson("{} x")));
  EXPECT_TRUE(std::holds_alternative<ApiError>(parseJson("")));
  EXPECT_TRUE(std::holds_alternative<ApiError>(parseJson("\"\xFF\"")));
}

TEST(Fields, AreReadByTypeAndRange) {
  const json::object body = json::parse(R"({"i": 7, "f": 3.0, "t": "x", "n": null, "b": true,
                                            "l": ["a", "b"], "ids": [1, 2], "odd": 1})")
                                .get_object();
  Fields f(body);
  int32_t i = 0, none = 5;
  EXPECT_TRUE(f.integer("i", i, 0, 10));
  EXPECT_EQ(i, 7);
  EXPECT_TRUE(f.integer("f", i, 0, 10));
  EXPECT_EQ(i, 3);
  EXPECT_FALSE(f.integer("n", none, 0, 10));
  EXPECT_EQ(none, 5);
  std::vector<std::string> list, one;
  EXPECT_TRUE(f.texts("l", list, 2));
  EXPECT_TRUE(f.texts("t", one, 2));
  EXPECT_EQ(list, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(one, std::vector<std::string>{"x"});
  std::vector<int32_t> ids;
  EXPECT_TRUE(f.ids("ids", ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2}));
  f.ignore({"b"});
  f.finish();
  ASSERT_TRUE(f.error());
  EXPECT_EQ(f.error()->param, "odd");
  EXPECT_EQ(f.error()->code, "unknown_field");
}

TEST(Fields, TheFirstErrorStays) {
  const json::object body = json::parse(R"({"i": 11, "t": 3})").get_object();
  Fields f(body);
  int32_t i = 0;
  std::string t;
  EXPECT_FALSE(f.integer("i", i, 0, 10));
  EXPECT_FALSE(f.text("t", t));
  EXPECT_EQ(f.error()->message, "i must be an integer from 0 to 10, and is 11");
}

} // namespace
} // namespace gpt2c::serve
