#include "tools/gpt2c-dump/Dump.h"
#include "tools/runtime-common/Table.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace gpt2c {

static std::string plus(const FunctionView &view, const plan::ArgT &arg) {
  if (arg.map)
    return " as map [" + (arg.map->matrices ? view.show(*arg.map->matrices) + ", " : "") +
           view.show(*arg.map->rows) + ", " + std::to_string(arg.map->columns) + "] in boxes of " +
           std::to_string(arg.map->box_rows) + " x 64";
  return arg.expr ? " + " + view.show(*arg.expr) : "";
}

static std::string describeArg(const rt::Plan &plan, const FunctionView &view,
                               const plan::ArgT &arg) {
  auto named = [&](const char *kind, const std::string &name) {
    return std::string(kind) + " " + std::to_string(arg.index) + " '" + printable(name) + "'" +
           plus(view, arg);
  };
  const plan::FunctionT &function = view.function();
  switch (arg.kind) {
  case plan::ArgKind::Buffer:
    return named("buffer", function.buffers[arg.index]->name);
  case plan::ArgKind::Weight:
    return named("weight", plan.meta().weights[arg.index]->name);
  case plan::ArgKind::Input:
    return named("input", function.inputs[arg.index]->name);
  case plan::ArgKind::Output:
    return named("output", function.outputs[arg.index]->name);
  case plan::ArgKind::I32:
    return "i32 " + view.show(*arg.expr);
  case plan::ArgKind::I64:
    return "i64 " + view.show(*arg.expr);
  case plan::ArgKind::F32: {
    std::string out;
    llvm::raw_string_ostream(out) << "f32 " << llvm::format("%.9g", double(arg.f32));
    return out;
  }
  case plan::ArgKind::Null:
    return "null";
  case plan::ArgKind::WeightPart:
    return "part " + std::to_string(arg.index) + " of weights" + plus(view, arg);
  case plan::ArgKind::Exchange:
    return arg.index < 0 ? "exchange, where ranks share a device" : "exchange";
  case plan::ArgKind::Scratch:
    return "scratch + " + std::to_string(arg.index);
  }
  return "?";
}

/// Sum over the steps; nothing when one of them has no value. Saturates.
static std::optional<uint64_t> total(const FunctionView &view,
                                     std::unique_ptr<plan::ExprT> plan::StepT::*member) {
  uint64_t sum = 0;
  for (const auto &step : view.function().steps) {
    if (!((*step).*member))
      continue;
    std::optional<int64_t> value = view.value(*((*step).*member));
    if (!value)
      return std::nullopt;
    if (__builtin_add_overflow(sum, uint64_t(*value), &sum))
      sum = UINT64_MAX;
  }
  return sum;
}

static std::string cost(const FunctionView &view, const std::unique_ptr<plan::ExprT> &expr,
                        std::string (*format)(uint64_t)) {
  if (!expr)
    return "-";
  std::optional<int64_t> value = view.value(*expr);
  return value ? format(uint64_t(*value)) : view.text(*expr);
}

static std::string gridOf(const FunctionView &view, const plan::StepT &step) {
  std::string out;
  bool skipped = false;
  for (const auto &size : step.grid) {
    out += (out.empty() ? "" : " x ") + view.show(*size);
    skipped |= view.value(*size) == 0;
  }
  return skipped ? "skipped" : out;
}

static std::string blockOf(const plan::StepT &step) {
  std::string out = std::to_string(step.block[0]);
  for (size_t i = 1; i < step.block.size() && (step.block[1] > 1 || step.block[2] > 1); ++i)
    out += "x" + std::to_string(step.block[i]);
  return out;
}

/// The kernel that was chosen for a step, and its tile; and the order of its sums, where the plan
/// says it.
static std::string tileOf(const plan::StepT &step) {
  const std::string order = step.sum_order.empty() ? "" : "; sums: " + printable(step.sum_order);
  return step.choice.empty() ? "-" : printable(step.choice) + order;
}

static void printFunctionSteps(const DumpContext &context, const FunctionView &view, bool withArgs,
                               llvm::raw_ostream &os) {
  const plan::FunctionT &function = view.function();
  Table table({">#", "op", "kernel", "tile", "mode", "grid", ">block", ">shared", ">bytes",
               ">flops", "nodes"});
  for (size_t i = 0; i < function.steps.size(); ++i) {
    const plan::StepT &step = *function.steps[i];
    table.addRow({std::to_string(i), printable(step.op),
                  printable(context.plan.meta().kernels[step.kernel]->name), tileOf(step),
                  llvm::StringRef(plan::EnumNameLaunchMode(step.mode)).lower(), gridOf(view, step),
                  blockOf(step), std::to_string(step.shared_bytes),
                  cost(view, step.bytes, formatBytes), cost(view, step.flops, formatCount),
                  printable(llvm::join(step.nodes, " "))});
  }
  os << printable(function.name) << " (" << boundsText(function) << "): " << function.steps.size()
     << " steps";
  std::optional<uint64_t> bytes = total(view, &plan::StepT::bytes);
  std::optional<uint64_t> flops = total(view, &plan::StepT::flops);
  if (view.hasValues() && bytes && flops)
    os << ", " << formatBytes(*bytes) << ", " << formatCount(*flops) << "flop";
  os << "\n";
  table.print(os);
  for (size_t i = 0; withArgs && i < function.steps.size(); ++i) {
    std::vector<std::string> args;
    for (const auto &arg : function.steps[i]->args)
      args.push_back(describeArg(context.plan, view, *arg));
    os << "  " << i << ": " << llvm::join(args, ", ") << "\n";
  }
}

void dumpSteps(const DumpContext &context, bool withArgs, llvm::raw_ostream &os) {
  if (context.plan.meta().images.empty()) {
    os << "The plan has no GPU code: the CPU runs its IR (--ir).\n";
    return;
  }
  bool first = true;
  for (const FunctionView &view : context.functions) {
    os << (first ? "" : "\n");
    first = false;
    printFunctionSteps(context, view, withArgs, os);
  }
}

} // namespace gpt2c
