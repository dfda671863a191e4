#include "codegen/PlanPorts.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/Ports.h"
#include "ir/ops/AppendAttention.h"
#include "ir/ops/Common.h"
#include "schedule/Versions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <memory>

namespace gpt2c {

/// The rows of the shortest table of tokens of a graph without a head; 0: none is known.
static int64_t rowsOfTokenTables(const Function &f) {
  int64_t rows = 0;
  auto take = [&](const Value *table) {
    const auto here = table->type.shape[0].constant();
    if (here && (rows == 0 || *here < rows))
      rows = *here;
  };
  const Value *ids = f.argument("ids");
  for (const Use &use : ids ? ids->uses() : llvm::ArrayRef<Use>())
    if (use.op->is(OpCode::Embed) && use.operand == ops::Embed::Ids)
      take(use.op->operand(ops::Embed::Tokens));
    else if (use.op->is(OpCode::Gather) && use.operand == ops::Gather::Indices &&
             use.op->intAttr("axis") == 0)
      take(use.op->operand(ops::Gather::X));
  return rows;
}

llvm::Error describeKv(const Module &module, CodegenOptions &options, plan::PlanT &meta) {
  for (auto &f : module.functions)
    for (auto [i, name] : llvm::enumerate(f->resultNames))
      if (name == "logits")
        meta.vocab_size = f->returned()[i]->type.shape.back().constant().value_or(0);
  if (const Function *forward = module.function(functions::forward); forward && !meta.vocab_size)
    meta.vocab_size = rowsOfTokenTables(*forward);
  if (!meta.vocab_size)
    meta.eos_token = -1; // of a vocabulary that nobody knows
  const Value *kv = kvState(module);
  if (!kv)
    return llvm::Error::success();
  const Shape &s = kv->type.shape;
  options.maxBatch = mostSequences(module, options.maxBatch);
  auto plan = std::make_unique<plan::KvPlanT>();
  plan->layers = *s[0].constant();
  plan->heads = *s[3].constant();
  plan->max_context = *s[4].constant();
  const int64_t row = *s[5].constant();
  plan->head_dim = row - kvScaleBytes(kv->type.dtype);
  plan->max_batch = options.maxBatch;
  plan->dtype = static_cast<plan::DType>(kv->type.dtype);
  plan->bytes_per_token = 2ull * plan->layers * plan->heads * row * byteSize(kv->type.dtype);
  uint64_t perSequence = plan->bytes_per_token * plan->max_context;
  plan->bytes = perSequence * plan->max_batch;
  if (options.kvBudget && plan->bytes > options.kvBudget)
    return makeError(
        ExitCode::OutOfMemory,
        "the KV state of " + llvm::Twine(plan->max_batch) + " sequences of " +
            llvm::Twine(plan->max_context) + " tokens takes " + llvm::Twine(plan->bytes) +
            " bytes, --kv-budget allows " + llvm::Twine(options.kvBudget) + ": that is " +
            llvm::Twine(options.kvBudget / perSequence) + " sequences of this context, or " +
            llvm::Twine(options.kvBudget / plan->bytes_per_token / plan->max_batch) +
            " tokens each for this batch (--max-batch, --max-context)");
  meta.kv = std::move(plan);
  return llvm::Error::success();
}

static plan::ExportedPortT exported(const ExportedPort &p) {
  plan::ExportedPortT port;
  port.name = p.name;
  port.dtype = static_cast<plan::DType>(p.dtype);
  port.layer = p.layer;
  port.role = llvm::StringSwitch<plan::Role>(p.role)
                  .Case("ids", plan::Role::Ids)
                  .Case("key_mask", plan::Role::KeyMask)
                  .Case("position_ids", plan::Role::PositionIds)
                  .Case("logits", plan::Role::Logits)
                  .Case("past", plan::Role::PastTensor)
                  .Case("present", plan::Role::PresentTensor)
                  .Default(plan::Role::Plain);
  port.part = llvm::StringSwitch<plan::KvPart>(p.part)
                  .Case("value", plan::KvPart::Value)
                  .Case("both", plan::KvPart::Both)
                  .Default(plan::KvPart::Key);
  return port;
}

llvm::Error describePorts(const Module &module, plan::PlanT &meta) {
  auto inputs = exportedInputs(module);
  if (!inputs)
    return inputs.takeError();
  auto outputs = exportedOutputs(module);
  if (!outputs)
    return outputs.takeError();
  for (const ExportedPort &p : *inputs)
    meta.exported_inputs.push_back(std::make_unique<plan::ExportedPortT>(exported(p)));
  for (const ExportedPort &p : *outputs)
    meta.exported_outputs.push_back(std::make_unique<plan::ExportedPortT>(exported(p)));
  const Function *forward = module.function(functions::forward);
  for (auto [port, p] : llvm::zip_equal(meta.exported_inputs, *inputs))
    for (unsigned i = 0; forward && i < forward->numArguments() && !p.port.empty(); ++i)
      if (forward->argument(i)->name == p.port)
        port->layer = int(i);
  for (auto [port, p] : llvm::zip_equal(meta.exported_outputs, *outputs))
    for (unsigned i = 0; forward && i < forward->resultNames.size() && !p.port.empty(); ++i)
      if (forward->resultNames[i] == p.port)
        port->layer = int(i);
  if (!meta.kv) // past and present tensors are inputs and outputs of @forward like any other
    for (auto *ports : {&meta.exported_inputs, &meta.exported_outputs})
      for (auto &port : *ports)
        if (port->role == plan::Role::PastTensor || port->role == plan::Role::PresentTensor)
          port->role = plan::Role::Plain, port->layer = -1;
  return llvm::Error::success();
}

} // namespace gpt2c
