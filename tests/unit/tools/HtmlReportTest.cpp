#include "tools/common/report/HtmlReport.h"

#include "ir/Text.h"
#include "runtime/plan/Expr.h"

#include "llvm/Support/JSON.h"
#include "gtest/gtest.h"

namespace gpt2c {
namespace {

std::unique_ptr<Module> parse(llvm::StringRef text) {
  auto module = parseModule(text, "test");
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  return std::move(*module);
}

constexpr const char *imported = R"(
module @m
func @main(%x: f32[n, 4]) -> (f32[n, 4]) {
  %w = constant dense<1.0> : f32[4, 4]
  %0 = matmul(%x, %w) : f32[n, 4] loc("product")
  %1 = relu(%0) : f32[n, 4] loc("activation")
  %2 = neg(%1) : f32[n, 4] loc("lost")
  return %1
}
)";
constexpr const char *compiled = R"(
module @m
func @forward(%x: f32[n, 4]) -> (f32[n, 4]) {
  %w = constant dense<1.0> : f32[4, 4]
  %0 = linear(%x, %w) {activation = "relu"} : f32[n, 4] loc("activation", "product")
  return %0
}
)";

std::string page(const plan::PlanT &plan, llvm::StringRef before = imported,
                 llvm::StringRef after = compiled) {
  HtmlReport report(*parse(before));
  std::string out;
  llvm::raw_string_ostream os(out);
  report.write(*parse(after), plan, os);
  return out;
}

/// What the page holds between the tags of its data.
llvm::StringRef dataText(llvm::StringRef page) {
  llvm::StringRef rest = page.split("<script type=\"application/json\" id=\"data\">").second;
  EXPECT_FALSE(rest.empty());
  return rest.split("</script>").first;
}

llvm::json::Object dataOf(llvm::StringRef page) {
  auto value = llvm::json::parse(dataText(page));
  EXPECT_TRUE(bool(value)) << llvm::toString(value.takeError());
  return *value->getAsObject();
}

TEST(HtmlReport, AnOpHasTheImportedOpsThatBecameIt) {
  llvm::json::Object data = dataOf(page({}));
  const llvm::json::Object &graph = *(*data.getArray("graphs"))[0].getAsObject();
  EXPECT_EQ(graph.getString("name"), "forward");
  EXPECT_EQ(graph.getInteger("imported"), 4);
  const llvm::json::Object &linear = *(*graph.getArray("nodes"))[0].getAsObject();
  EXPECT_EQ(linear.getString("title"), "linear");
  const llvm::json::Array &members = *linear.getArray("members");
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].getAsObject()->getString("title"), "matmul");
  EXPECT_EQ(members[1].getAsObject()->getString("title"), "relu");
  EXPECT_EQ(*members[1].getAsObject()->getArray("inputs"), llvm::json::Array{0});
  EXPECT_EQ(*graph.getArray("gone"), llvm::json::Array{(llvm::json::Array{"neg", 1})});
}

TEST(HtmlReport, FunctionsWithoutGpuCodeHaveTheCostsOfTheirOps) {
  llvm::json::Object data = dataOf(page({}));
  const llvm::json::Object &function = *(*data.getArray("functions"))[0].getAsObject();
  EXPECT_EQ(function.getString("device"), "cpu");
  ASSERT_EQ(function.getArray("steps")->size(), 1u);
  const llvm::json::Object &step = *(*function.getArray("steps"))[0].getAsObject();
  EXPECT_EQ(step.getString("op"), "linear");
  // 32 n: push 32, symbol 0, multiply.
  EXPECT_EQ(*step.getArray("flops"), (llvm::json::Array{0, 32, 1, 0, 4, 0}));
}

TEST(HtmlReport, EveryStepOfThePlanIsThere) {
  plan::PlanT plan;
  plan.kernels.push_back(std::make_unique<plan::KernelT>());
  plan.kernels[0]->name = "linear_1";
  plan.functions.push_back(std::make_unique<plan::FunctionT>());
  plan::FunctionT &forward = *plan.functions[0];
  forward.name = "forward";
  for (int i = 0; i < 3; ++i) {
    auto step = std::make_unique<plan::StepT>();
    step->op = "step" + std::to_string(i);
    step->block = {64, 1, 1};
    step->bytes = std::make_unique<plan::ExprT>(rt::constantExpr(5));
    forward.steps.push_back(std::move(step));
  }
  llvm::json::Object data = dataOf(page(plan));
  ASSERT_EQ(data.getArray("functions")->size(), 1u);
  const llvm::json::Object &function = *(*data.getArray("functions"))[0].getAsObject();
  EXPECT_EQ(function.getString("device"), "gpu");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ((*function.getArray("steps"))[i].getAsObject()->getString("op"),
              "step" + std::to_string(i));
}

TEST(HtmlReport, RemarksHaveWhatStoppedThemAndWhatTheyCost) {
  plan::PlanT plan;
  plan.remarks.push_back(std::make_unique<plan::RemarkT>());
  plan::RemarkT &remark = *plan.remarks[0];
  remark.severity = "missed";
  remark.op = "tanh";
  remark.attribute = "constant";
  remark.launches = 7;
  remark.bytes = 4096;
  llvm::json::Object data = dataOf(page(plan));
  const llvm::json::Object &r = *(*data.getArray("remarks"))[0].getAsObject();
  EXPECT_EQ(r.getString("severity"), "missed");
  EXPECT_EQ(r.getString("stopped_by"), "tanh.constant");
  EXPECT_EQ(r.getInteger("launches"), 7);
  EXPECT_EQ(r.getInteger("bytes"), 4096);
}

TEST(HtmlReport, NamesCannotLeaveTheData) {
  std::string hostile = R"(</script><script>alert(1)</script><!-- ]]> & \"\\ )";
  plan::PlanT plan;
  plan.model_name = "</script><b>&\xff";
  plan.remarks.push_back(std::make_unique<plan::RemarkT>());
  plan.remarks[0]->message = "<img src=x onerror=alert(1)>";
  std::string after = "module @m\nfunc @forward(%x: f32[n]) -> (f32[n]) {\n  %0 = neg(%x) : f32[n] "
                      "loc(\"" +
                      hostile + "\")\n  return %0\n}\n";
  std::string html = page(plan, after, after);
  EXPECT_EQ(dataText(html).find_first_of("<>&"), llvm::StringRef::npos);
  llvm::json::Object data = dataOf(html);
  EXPECT_EQ(data.getString("model"), "</script><b>&\xEF\xBF\xBD");
  const llvm::json::Object &node =
      *(*(*data.getArray("graphs"))[0].getAsObject()->getArray("nodes"))[0].getAsObject();
  EXPECT_EQ((*node.getArray("from"))[0].getAsString(),
            "</script><script>alert(1)</script><!-- ]]> & \"\\ ");
}

TEST(HtmlReport, EqualInputsGiveEqualPages) { EXPECT_EQ(page({}), page({})); }

} // namespace
} // namespace gpt2c
