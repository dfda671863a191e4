#include "tools/common/verification/GoldenPrompts.h"

#include "runtime/device/FunctionCall.h"
#include "runtime/plan/Golden.h"
#include "tools/common/verification/TextForward.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace gpt2c {

namespace {

/// Tokens of a prompt, and greedy ones behind it: few, as each takes the compiler as long as
/// reading all weights does.
struct Lengths {
  int64_t prompt, greedy;
};
constexpr Lengths usual[] = {{1, 1}, {33, 1}, {7, 5}};
/// More than that at once, as an export may ask for, are no longer few.
constexpr int64_t mostSequences = 256;

llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

class Maker {
public:
  Maker(const ExportedGraph &graph, const Module &module, PlanRunner &runner, int64_t most)
      : graph_(graph), module_(module), runner_(runner), most_(most) {}

  llvm::Expected<std::unique_ptr<plan::GoldenT>> make() {
    auto out = std::make_unique<plan::GoldenT>();
    const bool cached = module_.function("prefill") && module_.function("decode");
    if (llvm::Error e = addPrompts(*out, cached))
      return e;
    if (llvm::Error e = cached ? generate(*out) : runWhole(*out))
      return e;
    return out;
  }

private:
  llvm::Error addPrompts(plan::GoldenT &golden, bool cached) {
    const int64_t vocabulary = graph_.vocabulary();
    if (vocabulary < 1)
      return failure("its vocabulary is not known");
    int64_t room = contextOf(module_);
    if (int64_t positions = graph_.positions())
      room = room ? std::min(room, positions) : positions;
    if (!room)
      room = most_;
    std::vector<Lengths> all(std::begin(usual), std::end(usual));
    if (int64_t fixed = graph_.fixedLength())
      all = {{fixed, usual[2].greedy}};
    if (int64_t fixed = graph_.fixedBatch(); fixed > 1) {
      if (!cached)
        return failure("it has no KV state, and the graph takes several sequences at once");
      if (fixed > mostSequences)
        return failure("the graph takes " + llvm::Twine(fixed) + " sequences at once");
      all.assign(size_t(fixed), all.back());
    }
    std::mt19937_64 random(20);
    for (Lengths lengths : all) {
      if (!cached)
        lengths.greedy = 0;
      if (room) {
        lengths.greedy = std::min(lengths.greedy, room - 1);
        lengths.prompt = std::min(lengths.prompt, room - lengths.greedy);
      }
      greedy_.push_back(lengths.greedy);
      auto &prompt = golden.prompts.emplace_back(std::make_unique<plan::GoldenPromptT>());
      for (int64_t i = 0; i < lengths.prompt; ++i)
        prompt->ids.push_back(int32_t(random() % uint64_t(vocabulary)));
    }
    return llvm::Error::success();
  }

  static llvm::Error addRow(plan::GoldenPromptT &prompt, const Tensor &logits, int64_t row) {
    Tensor wide = logits.cast(DType::F32);
    const int64_t width = wide.dim(-1);
    plan::GoldenRowT golden = rt::goldenRow(
        {std::as_const(wide).data<float>() + row * width, static_cast<size_t>(width)});
    if (golden.top_ids.empty() || !std::isfinite(golden.deviation))
      return failure("no logit of a random prompt is finite");
    prompt.rows.push_back(std::make_unique<plan::GoldenRowT>(std::move(golden)));
    return llvm::Error::success();
  }

  llvm::Error addRows(llvm::ArrayRef<plan::GoldenPromptT *> group,
                      llvm::Expected<StepResult> step) {
    if (!step)
      return step.takeError();
    for (auto [b, prompt] : llvm::enumerate(group))
      if (llvm::Error e = addRow(*prompt, step->logits, int64_t(b)))
        return e;
    return llvm::Error::success();
  }

  /// Through the KV state: one after the other, or all where the graph takes no other number.
  llvm::Error generate(plan::GoldenT &golden) {
    const size_t most = size_t(std::max<int64_t>(1, graph_.fixedBatch()));
    for (size_t first = 0, last; first < golden.prompts.size(); first = last) {
      std::vector<plan::GoldenPromptT *> group;
      for (last = first; last < golden.prompts.size() && last - first < most; ++last)
        group.push_back(golden.prompts[last].get());
      std::vector<TokenIds> texts;
      std::vector<int32_t> past(group.size(), 0), next(group.size());
      for (const plan::GoldenPromptT *prompt : group)
        texts.push_back(prompt->ids);
      if (llvm::Error e = addRows(group, runner_.prefill(texts, past)))
        return e;
      for (int64_t i = 0; i < greedy_[first]; ++i) {
        for (auto [b, prompt] : llvm::enumerate(group)) {
          past[b] = int32_t(prompt->ids.size()) + int32_t(i);
          next[b] = prompt->rows.back()->top_ids.front();
        }
        if (llvm::Error e = addRows(group, runner_.decode(next, past)))
          return e;
      }
    }
    return llvm::Error::success();
  }

  /// Inputs that rt::Session knows what to give for, or that nothing reads.
  bool isKnown(const ExportedPort &port) const {
    return port.role == "ids" || port.role == "key_mask" || port.role == "position_ids" ||
           port.port == rt::tokenTypesName || graph_.function().argument(port.name)->uses().empty();
  }

  /// Without a KV state: the whole graph for each.
  llvm::Error runWhole(plan::GoldenT &golden) {
    const int output = graph_.output("logits");
    if (output < 0)
      return failure("it has no logits");
    for (const ExportedPort &port : graph_.inputs())
      if (!isKnown(port))
        return failure("what to give for the graph's input '" + port.name + "' is not known");
    for (auto &prompt : golden.prompts) {
      GraphCall call;
      call.texts = {prompt->ids};
      auto arguments = graph_.arguments(call);
      if (!arguments)
        return arguments.takeError();
      auto results = runner_.forward(graph_, call, *arguments);
      if (!results)
        return results.takeError();
      const Tensor &logits = (*results)[size_t(output)];
      if (!logits.valid() || logits.rank() < 2 || logits.dim(0) != 1)
        return failure("@forward gives no logits of the sequence");
      if (llvm::Error e = addRow(*prompt, logits, logits.count() / logits.dim(-1) - 1))
        return e;
    }
    return llvm::Error::success();
  }

  const ExportedGraph &graph_;
  const Module &module_;
  PlanRunner &runner_;
  int64_t most_;
  std::vector<int64_t> greedy_; ///< of each prompt
};

} // namespace

llvm::Expected<std::unique_ptr<plan::GoldenT>> makeGolden(const ExportedGraph &graph,
                                                          const Module &module, PlanRunner &runner,
                                                          int64_t most, double tolerance) {
  auto golden = Maker(graph, module, runner, most).make();
  if (golden)
    (*golden)->tolerance = float(tolerance);
  return golden;
}

} // namespace gpt2c
