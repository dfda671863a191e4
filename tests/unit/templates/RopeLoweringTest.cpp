// A rotary embedding in front of attention, and the append behind it: in the kernel of attention
// where that computes them, in launches of their own elsewhere.
#include "tests/unit/templates/LoweredText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpt2c {
namespace {

struct Decoder {
  std::string type = "f16", arch = "sm_90a", state = ""; ///< of the state: `type`
  int seq = 1, heads = 8, kvHeads = 2, headDim = 64, pairs = 32;
  int turned = 10; ///< heads
  std::string positions = "%past", positionsType = "";
  std::string attrs = "";
  bool readTwice = false;
};

/// `ropeHeader`: where its kernel comes from, if there is one.
std::vector<std::string> launches(const Decoder &d, std::string *ropeHeader = nullptr) {
  const std::string &state = d.state.empty() ? d.type : d.state;
  const int row = (d.heads + 2 * d.kvHeads) * d.headDim;
  const std::string qkv = llvm::formatv("{0}[b, {1}, {2}]", d.type, d.seq, row),
                    y = llvm::formatv("{0}[b, {1}, {2}]", d.type, d.seq, d.heads * d.headDim),
                    kv = llvm::formatv("{0}[1, 2, slots, {1}, 128, {2}]", state, d.kvHeads,
                                       d.headDim + (state == "i8" ? 4 : 0));
  std::string text = "module @m {}\n\nfunc @f(%qkv: " + qkv + ", %kv: " + kv + ", %past: i32[b]" +
                     d.positionsType + ") -> (%y: " + y + ", %next: " + kv +
                     (d.readTwice ? ", %r: " + qkv : "") + ") {\n";
  for (const char *name : {"cos", "sin"})
    text += llvm::formatv("  %{0} = constant dense<0.5> : f32[128, {1}]\n", name, d.pairs);
  text += llvm::formatv("  %r = rope(%qkv, {0}, %cos, %sin) {{head_dim = {1}, heads = {2}} : {3}\n",
                        d.positions, d.headDim, d.turned, qkv);
  text += llvm::formatv("  %next, %y = append_attention(%kv, %r, %past) {{layer = 0, num_heads = "
                        "{0}, scale = 0.125{1}} : {2}, {3}\n  return %y, %next{4}\n}\n",
                        d.heads, d.attrs, kv, y, d.readTwice ? ", %r" : "");
  const LoweredText lowered(text, d.arch, {{"b", {1, 8}}, {"slots", {8, 8}}});
  std::vector<std::string> out;
  for (auto &step : lowered.function.steps)
    out.push_back(step->op + " " + lowered.kernelOf(*step));
  for (const KernelSource &kernel : lowered.pool.kernels())
    if (ropeHeader && llvm::StringRef(kernel.name).starts_with("rope"))
      *ropeHeader = kernel.headers.front();
  return out;
}

using Launches = std::vector<std::string>;

const Launches one{"rope+append_attention attention_decode"},
    grouped{"rope+append_attention attention_decode_group"};

TEST(RopeLowering, DecodeIsOneLaunch) {
  EXPECT_EQ(launches({}), grouped);
  EXPECT_EQ(launches({.type = "bf16"}), grouped);
  EXPECT_EQ(launches({.arch = "sm_80"}), grouped);
  EXPECT_EQ(launches({.pairs = 10}), grouped); // a part of a head
  EXPECT_EQ(launches({.attrs = ", window = 16"}), grouped);
  EXPECT_EQ(launches({.headDim = 128, .pairs = 64}), grouped);
  EXPECT_EQ(launches({.type = "f32"}), one);
  EXPECT_EQ(launches({.state = "i8"}), grouped);
  EXPECT_EQ(launches({.seq = 3}), one);
  EXPECT_EQ(launches({.kvHeads = 8, .turned = 16}), one);
  EXPECT_EQ(launches({.heads = 18, .turned = 20}), one); // groups of nine
}

TEST(RopeLowering, OthersHaveTheirOwn) {
  EXPECT_EQ(launches({.turned = 9}).front(), "rope rope");
  EXPECT_EQ(launches({.positions = "%p", .positionsType = ", %p: i32[b, 1]"}).front(), "rope rope");
  EXPECT_EQ(launches({.positions = "%p", .positionsType = ", %p: i32[b]"}).front(), "rope rope");
  EXPECT_EQ(launches({.readTwice = true}).front(), "rope rope");
  EXPECT_EQ(launches({.seq = 5}).front(), "rope rope");
}

TEST(RopeLowering, HeadsThatAreTurnedAsAWholeGoByUnits) {
  auto header = [](const Decoder &d) {
    std::string text;
    launches(d, &text);
    return text;
  };
  const std::string units = "templates/generic/rope.cuh", pairs = "templates/generic/map.cuh";
  EXPECT_EQ(header({.seq = 100}), units);
  EXPECT_EQ(header({.type = "bf16", .seq = 100}), units);
  EXPECT_EQ(header({.type = "f32", .seq = 100, .headDim = 8, .pairs = 4}), units);
  EXPECT_EQ(header({.seq = 100, .pairs = 10}), pairs);                // a part of a head
  EXPECT_EQ(header({.seq = 100, .headDim = 24, .pairs = 12}), pairs); // no units of eight
}

TEST(RopeLowering, PromptsAppendWhereTheyAttend) {
  const Launches prompt{"rope rope", "append_attention attention_prefill_wgmma"},
      wide{"rope rope", "append_attention attention_prefill_wide"},
      copied{"rope rope", "kv_append kv_append", "cached_attention attention_prefill_mma"};
  EXPECT_EQ(launches({.seq = 100}), prompt);
  EXPECT_EQ(launches({.type = "bf16", .seq = 100}), prompt);
  EXPECT_EQ(launches({.arch = "sm_80", .seq = 100}), copied);
  EXPECT_EQ(launches({.seq = 100, .attrs = ", window = 16"}), wide);
  EXPECT_EQ(launches({.seq = 100, .headDim = 128, .pairs = 64}), wide);
}

} // namespace
} // namespace gpt2c
