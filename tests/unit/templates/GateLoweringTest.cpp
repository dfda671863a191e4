// A gate behind a product: in its epilogue, where a kernel applies it there.
#include "codegen/StepBuilder.h"

#include "templates/Lowerings.h"

#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

struct Gate {
  std::string type = "f16", arch = "sm_90a";
  int rows = 1, width = 256, hidden = 512;
  bool int8 = false, interleaved = true, readTwice = false;
};

std::vector<std::string> launches(const Gate &g) {
  const std::string d = std::to_string(g.width), both = std::to_string(2 * g.hidden),
                    x = g.type + "[b, " + d + "]", h = g.type + "[b, " + both + "]",
                    y = g.type + "[b, " + std::to_string(g.hidden) + "]",
                    w = (g.int8 ? "i8[" : g.type + "[") + both + ", " + d + "]";
  std::string text = "module @m {}\n\nfunc @f(%x: " + x + ") -> (%y: " + y +
                     (g.readTwice ? ", %h: " + h : "") + ") {\n  %w = constant dense<" +
                     (g.int8 ? "1" : "0.5") + "> : " + w + "\n";
  if (g.int8)
    text +=
        "  %s = constant dense<0.5> : f32[" + both + ", 1]\n  %h = quantized_linear(%x, %w, %s)";
  else
    text += "  %h = linear(%x, %w)";
  text += " : " + h + "\n  %y = gated(%h)" + (g.interleaved ? " {interleaved = true}" : "") +
          " : " + y + "\n  return %y" + (g.readTwice ? ", %h" : "") + "\n}\n";
  auto module = parseModule(text, "test.ir");
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return {};
  }
  PlanPool pool;
  plan::FunctionT function;
  pool.target = Target::of({g.arch});
  StepBuilder b(pool, function, {{"b", {1, g.rows}}});
  if (llvm::Error e = build(b, *(*module)->functions.front()))
    ADD_FAILURE() << llvm::toString(std::move(e));
  std::vector<std::string> out;
  for (auto &step : function.steps)
    out.push_back(step->op);
  return out;
}

using Launches = std::vector<std::string>;

TEST(GateLowering, KernelsApplyIt) {
  const Launches one{"linear+silu gate"};
  EXPECT_EQ(launches({}), one);
  for (int rows : {1, 8, 32, 64, 512, 4096})
    for (const char *type : {"f16", "f32"})
      for (const char *arch : {"sm_90a", "sm_80"})
        EXPECT_EQ(launches({.type = type, .arch = arch, .rows = rows}), one)
            << rows << " rows in " << type << " for " << arch;
  EXPECT_EQ(launches({.arch = "sm_80", .rows = 512, .width = 36}), one); // linear_mma
  // As wide as a vocabulary.
  for (int rows : {1, 32, 128, 512})
    EXPECT_EQ(launches({.rows = rows, .width = 64, .hidden = 8192}), one) << rows;
  for (int rows : {1, 16, 128})
    EXPECT_EQ(launches({.rows = rows, .int8 = true}), Launches{"quantized_linear+silu gate"});
  // Int8 weights as wide as a vocabulary; of more rows they become halves first.
  for (int rows : {1, 32, 64, 128, 512})
    EXPECT_EQ(launches({.rows = rows, .width = 64, .hidden = 8192, .int8 = true}),
              Launches{"quantized_linear+silu gate"})
        << rows;
  for (int rows : {513, 4096})
    EXPECT_EQ(launches({.rows = rows, .int8 = true}),
              (Launches{"dequantize", "quantized_linear+silu gate"}))
        << rows;
}

TEST(GateLowering, OthersHaveALaunch) {
  const Launches two{"linear", "gated"};
  EXPECT_EQ(launches({.interleaved = false}), two);
  EXPECT_EQ(launches({.readTwice = true}), two);
  EXPECT_EQ(launches({.type = "f32", .rows = 512, .hidden = 513}), two); // not by fours
}

} // namespace
} // namespace gpt2c
