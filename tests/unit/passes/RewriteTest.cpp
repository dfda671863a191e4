// The rewrite engine: what patterns match, in which order guards are asked, and that nothing is
// half-edited.
#include "passes/Rewrite.h"

#include "ir/Error.h"
#include "ir/Text.h"
#include "ir/Verifier.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

using P = Pattern;

struct Parsed {
  explicit Parsed(const std::string &body) {
    auto parsed = parseModule(
        "func @f(%x: f32[n, 2], %y: f32[n, 2]) -> (f32[n, 2]) {\n" + body + "}\n", "test");
    if (!parsed) {
      ADD_FAILURE() << llvm::toString(parsed.takeError());
      std::abort();
    }
    module = std::move(*parsed);
  }
  Function &f() { return *module->functions.front(); }
  std::string text() { return toText(f()); }
  /// The op that defines what is returned.
  Op *root() { return f().returned().front()->def(); }
  std::unique_ptr<Module> module;
};

bool matches(const Pattern &p, Op *root, Pattern::Accept guard = nullptr) {
  Match m;
  return p.match(root->result(), m, guard);
}

Rule ruleOf(Pattern pattern,
            std::function<llvm::Expected<Value *>(const Match &, Builder &)> replace) {
  return {"a-rule", "", std::move(pattern), nullptr, std::move(replace)};
}

TEST(Pattern, ANameUsedTwiceIsOneValue) {
  auto square = P::op(OpCode::Mul, {P::any("a"), P::any("a")});
  Parsed same("  %0 = mul(%x, %x) : f32[n, 2]\n  return %0\n");
  Parsed different("  %0 = mul(%x, %y) : f32[n, 2]\n  return %0\n");
  EXPECT_TRUE(matches(square, same.root()));
  EXPECT_FALSE(matches(square, different.root()));
}

TEST(Pattern, OnlyCommutativeOpsMatchInBothOrders) {
  for (auto [code, name, swaps] : {std::tuple{OpCode::Add, "add", true},
                                   {OpCode::Mul, "mul", true},
                                   {OpCode::Sub, "sub", false},
                                   {OpCode::Div, "div", false}}) {
    auto p = P::op(code, {P::scalar("c"), P::any("v")});
    std::string c = "  %c = constant dense<2.0> : f32[]\n";
    Parsed first(c + "  %0 = " + name + "(%c, %x) : f32[n, 2]\n  return %0\n");
    Parsed second(c + "  %0 = " + name + "(%x, %c) : f32[n, 2]\n  return %0\n");
    EXPECT_TRUE(matches(p, first.root())) << name;
    EXPECT_EQ(matches(p, second.root()), swaps) << name;
  }
}

// The inner sum matches in its first order, with which the outer one cannot match: the inner one is
// turned around.
TEST(Pattern, InnerOrdersAreTriedAgainWhenAnOuterNameDisagrees) {
  auto p = P::op(OpCode::Mul, {P::op(OpCode::Add, {P::any("a"), P::any("b")}), P::any("a")});
  Parsed text("  %0 = add(%x, %y) : f32[n, 2]\n  %1 = mul(%0, %y) : f32[n, 2]\n  return %1\n");
  Match m;
  ASSERT_TRUE(p.match(text.root()->result(), m));
  EXPECT_EQ(m.value("a")->name, "y");
  EXPECT_EQ(m.value("b")->name, "x");
}

TEST(Pattern, TheGuardChoosesAmongMatches) {
  auto p = P::op(OpCode::Add, {P::any("a"), P::any("b")});
  Parsed text("  %0 = add(%x, %y) : f32[n, 2]\n  return %0\n");
  unsigned asked = 0;
  Match m;
  EXPECT_TRUE(p.match(text.root()->result(), m, [&](const Match &found) {
    ++asked;
    return found.value("a")->name == "y";
  }));
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(m.value("a")->name, "y");
  EXPECT_EQ(m.root(), text.root());
  EXPECT_FALSE(matches(p, text.root(), [](const Match &) { return false; }));
}

TEST(Pattern, AlternativesAreTriedUntilTheGuardAgrees) {
  auto p = P::oneOf(
      {P::op(OpCode::Exp, {P::any("a")}), P::op(OpCode::Exp, {P::op(OpCode::Neg, {P::any("a")})})});
  Parsed text("  %0 = neg(%x) : f32[n, 2]\n  %1 = exp(%0) : f32[n, 2]\n  return %1\n");
  Match m;
  EXPECT_TRUE(p.match(text.root()->result(), m,
                      [](const Match &found) { return found.value("a")->name == "x"; }));
  EXPECT_EQ(m.ops.size(), 2u);
  auto codes = p.rootCodes();
  EXPECT_EQ(codes, (llvm::SmallVector<OpCode, 2>{OpCode::Exp, OpCode::Exp}));
}

TEST(Pattern, Leaves) {
  Parsed text(
      "  %two = constant dense<2.0> : f32[]\n  %pair = constant dense<[2.0, 2.0]> : f32[2]\n"
      "  %0 = add(%x, %two) : f32[n, 2]\n  %1 = mul(%0, %pair) : f32[n, 2]\n  return %1\n");
  Op *mul = text.root(), *add = mul->operand(0)->def();
  auto second = [](Op *op, Pattern p) {
    return matches(P::op(op->code(), {P::any(), std::move(p)}), op);
  };
  EXPECT_TRUE(second(add, P::scalar("c")));
  EXPECT_FALSE(second(mul, P::scalar("c"))) << "two elements";
  EXPECT_TRUE(second(mul, P::constant("c")));
  EXPECT_TRUE(second(add, P::number(2)));
  EXPECT_FALSE(second(add, P::number(2 + 1e-9)));
  EXPECT_FALSE(second(mul, P::number(2)));
  EXPECT_TRUE(matches(P::op(OpCode::Add, {P::argument("x"), P::any()}), add));
  EXPECT_FALSE(matches(P::op(OpCode::Add, {P::argument("y"), P::any()}), add));
  EXPECT_FALSE(second(mul, P::argument("pair"))) << "a constant of that name";
}

TEST(Pattern, OperandsBeyondThoseListedAreAbsent) {
  Parsed text("  %w = constant dense<1.0> : f32[2, 2]\n  %0 = linear(%x, %w, none, %y) : f32[n, "
              "2]\n  return %0\n");
  EXPECT_FALSE(matches(P::op(OpCode::Linear, {P::any(), P::any()}), text.root()));
  EXPECT_FALSE(
      matches(P::op(OpCode::Linear, {P::any(), P::any(), P::any(), P::any()}), text.root()))
      << "an absent operand matches nothing";
}

TEST(ApplyRules, LocationsOfAllMatchedOpsReachTheReplacement) {
  Parsed text("  %0 = neg(%x) : f32[n, 2] loc(\"/a\")\n  %1 = neg(%0) : f32[n, 2] loc(\"/b\")\n  "
              "return %1\n");
  auto n = applyRules(text.f(), ruleOf(P::op(OpCode::Neg, {P::op(OpCode::Neg, {P::any("a")})}),
                                       [](const Match &m, Builder &b) {
                                         return b.value(OpCode::Abs, {m.value("a")});
                                       }));
  ASSERT_TRUE(bool(n));
  EXPECT_EQ(*n, 1u);
  EXPECT_NE(text.text().find("%0 = abs(%x) : f32[n, 2] loc(\"/a\", \"/b\")\n  return %0"),
            std::string::npos)
      << text.text();
  EXPECT_FALSE(bool(verify(text.f())));
}

const char *chain =
    "  %0 = exp(%x) : f32[n, 2] loc(\"/exp\")\n  %1 = neg(%0) : f32[n, 2]\n  return %1\n";

TEST(ApplyRules, AFailedReplacementLeavesTheFunctionAsItWas) {
  Parsed text(chain);
  std::string before = text.text();
  auto n =
      applyRules(text.f(), ruleOf(P::op(OpCode::Exp, {P::any("a")}),
                                  [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                                    auto kept = b.value(OpCode::Abs, {m.value("a")});
                                    if (!kept)
                                      return kept.takeError();
                                    Value *three = b.constant(Tensor::zeros(DType::F32, {3}));
                                    return b.value(OpCode::Add, {*kept, three}); // 2 and 3 differ
                                  }));
  ASSERT_FALSE(bool(n));
  std::string message = llvm::toString(n.takeError());
  EXPECT_EQ(message.find("rule a-rule failed at exp (from /exp): "), 0u) << message;
  EXPECT_EQ(text.text(), before);
  EXPECT_FALSE(bool(verify(text.f())));
}

TEST(ApplyRules, TheCodeOfAFailedReplacementStays) {
  Parsed text(chain);
  auto n = applyRules(text.f(), ruleOf(P::op(OpCode::Exp, {P::any("a")}),
                                       [](const Match &, Builder &) -> llvm::Expected<Value *> {
                                         return makeError(ExitCode::OutOfMemory, "no room");
                                       }));
  ASSERT_FALSE(bool(n));
  std::string printed;
  llvm::raw_string_ostream os(printed);
  EXPECT_EQ(printError(n.takeError(), os), ExitCode::OutOfMemory);
  EXPECT_EQ(os.str(), "error: rule a-rule failed at exp (from /exp): no room\n");
}

TEST(ApplyRules, AReplacementOfAnotherTypeIsAnError) {
  Parsed text(chain);
  std::string before = text.text();
  auto n = applyRules(text.f(),
                      ruleOf(P::op(OpCode::Exp, {P::any("a")}), [](const Match &m, Builder &b) {
                        return b.value(OpCode::Cast, {m.value("a")}, {{"to", DType::F16}});
                      }));
  ASSERT_FALSE(bool(n));
  EXPECT_EQ(llvm::toString(n.takeError()),
            "rule a-rule failed at exp (from /exp): the replacement has type "
            "f16[n, 2], the root f32[n, 2]");
  EXPECT_EQ(text.text(), before);
}

TEST(ApplyRules, ARuleMayDecline) {
  Parsed text(chain);
  std::string before = text.text();
  auto n =
      applyRules(text.f(), ruleOf(P::op(OpCode::Exp, {P::any("a")}),
                                  [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                                    if (auto made = b.value(OpCode::Abs, {m.value("a")}); !made)
                                      return made.takeError();
                                    return nullptr;
                                  }));
  ASSERT_TRUE(bool(n));
  EXPECT_EQ(*n, 0u);
  EXPECT_EQ(text.text(), before);
}

TEST(ApplyRules, RulesThatUndoEachOtherAreStopped) {
  Parsed text("  %0 = add(%x, %y) : f32[n, 2]\n  return %0\n");
  auto n = applyRules(text.f(), ruleOf(P::op(OpCode::Add, {P::any("a"), P::any("b")}),
                                       [](const Match &m, Builder &b) {
                                         return b.value(OpCode::Add, {m.value("b"), m.value("a")});
                                       }));
  ASSERT_FALSE(bool(n));
  EXPECT_EQ(llvm::toString(n.takeError()), "rewriting does not end; last rule: a-rule");
  EXPECT_FALSE(bool(verify(text.f())));
}

TEST(ApplyRules, OpsWithoutUsesAreNoRoots) {
  Parsed text("  %0 = exp(%x) : f32[n, 2]\n  return %x\n");
  auto n = applyRules(text.f(),
                      ruleOf(P::op(OpCode::Exp, {P::any("a")}), [](const Match &m, Builder &b) {
                        return b.value(OpCode::Abs, {m.value("a")});
                      }));
  ASSERT_TRUE(bool(n));
  EXPECT_EQ(*n, 0u);
}

} // namespace
