#include "server/Metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace gpt2c::serve {
namespace {

TEST(Metrics, BucketsAreCumulative) {
  Histogram h(tokensBounds());
  for (double v : {0.0, 1.0, 1.5, 50.0, 1e9})
    h.observe(v);
  std::string page;
  h.write(page, "x", "a=\"b\"");
  EXPECT_NE(page.find("x_bucket{a=\"b\",le=\"1\"} 2\n"), std::string::npos);
  EXPECT_NE(page.find("x_bucket{a=\"b\",le=\"2\"} 3\n"), std::string::npos);
  EXPECT_NE(page.find("x_bucket{a=\"b\",le=\"50\"} 4\n"), std::string::npos);
  EXPECT_NE(page.find("x_bucket{a=\"b\",le=\"1e+05\"} 4\n"), std::string::npos);
  EXPECT_NE(page.find("x_bucket{a=\"b\",le=\"+Inf\"} 5\n"), std::string::npos);
  EXPECT_NE(page.find("x_count{a=\"b\"} 5\n"), std::string::npos);
}

// Every sample stands below the HELP and TYPE of its family, which are there once.
TEST(Metrics, ThePageIsPrometheusText) {
  Metrics m;
  m.answered("/v1/completions", 200);
  m.answered("/v1/completions", 429);
  m.firstToken.observe(60e-6);
  const rt::EngineStats stats;
  std::istringstream page(m.page("a \"model\"\n", &stats));
  std::set<std::string> families;
  std::string line, family, type;
  int samples = 0;
  while (std::getline(page, line)) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, family.size()), family);
      type = line.substr(8 + family.size());
      continue;
    }
    ++samples;
    EXPECT_TRUE(line.starts_with(family)) << line;
    EXPECT_NE(line.find("{model_name=\"a \\\"model\\\" \",engine=\"0\""), std::string::npos)
        << line;
    EXPECT_EQ(type == "counter", family.ends_with("_total")) << family;
  }
  EXPECT_GT(samples, 250);
  EXPECT_TRUE(families.contains("gpt2c:inter_token_latency_seconds"));
}

} // namespace
} // namespace gpt2c::serve
