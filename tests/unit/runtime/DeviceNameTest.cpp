#include "runtime/device/DeviceName.h"

#include <gtest/gtest.h>

#include <string>

using namespace gpt2c::rt;

namespace {

void expectName(const char *text, DeviceName::Kind kind, int ordinal) {
  const Result<DeviceName> name = parseDeviceName(text);
  ASSERT_TRUE(name.ok()) << text;
  EXPECT_EQ(name->kind, kind) << text;
  EXPECT_EQ(name->ordinal, ordinal) << text;
}

TEST(DeviceName, Known) {
  expectName("auto", DeviceName::Kind::Auto, 0);
  expectName("cpu", DeviceName::Kind::Cpu, 0);
  expectName("cuda", DeviceName::Kind::Cuda, 0);
  expectName("cuda:0", DeviceName::Kind::Cuda, 0);
  expectName("cuda:12", DeviceName::Kind::Cuda, 12);
  expectName("cuda:2147483647", DeviceName::Kind::Cuda, 2147483647);
  expectName("cuda:1,0", DeviceName::Kind::Cuda, 1);
  EXPECT_EQ(parseDeviceName("cuda:1,0,1")->ranks, (std::vector<int>{1, 0, 1}));
  EXPECT_TRUE(parseDeviceName("cuda:1")->ranks.empty()) << "one alone";
}

TEST(DeviceName, Unknown) {
  for (const char *text :
       {"", "gpu", "CPU", "cpu:0", "auto:0", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:-0",
        "cuda:+1", "cuda: 1", "cuda:2147483648", "cuda1", "cuda:0,", "cuda:,1", "cuda:0,-1"}) {
    const Result<DeviceName> name = parseDeviceName(text);
    ASSERT_FALSE(name.ok()) << text;
    EXPECT_EQ(name.status().code(), Code::Usage);
    EXPECT_EQ(name.status().message(), "there is no device '" + std::string(text) +
                                           "'; there are auto, cuda, cuda:N, cuda:N,M,.. and cpu");
  }
}

} // namespace
