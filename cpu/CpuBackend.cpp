#include "cpu/CpuBackend.h"

#include "cpu/Convert.h"
#include "cpu/CpuRows.h"
#include "cpu/PlanModule.h"
#include "cpu/RankModule.h"
#include "cpu/Signature.h"
#include "cpu/Stages.h"
#include "ir/Error.h"
#include "ir/Executor.h"
#include "ir/FunctionNames.h"
#include "ir/ResultNumber.h"
#include "ir/Storage.h"
#include "ir/ops/BlasThreads.h"
#include "ir/ops/RowProduct.h"
#include "runtime/device/FunctionCall.h"
#include "runtime/device/MicroBatches.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"
#include "runtime/sampling/Logits.h"

#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

namespace gpt2c {
namespace {

using rt::HostTensor;
using rt::Result;
using rt::Status;
using rt::Tokens;

// The module of a plan has the functions of the plan.
static_assert(std::string_view(functions::forward) == rt::functions::forward &&
              std::string_view(functions::prefill) == rt::functions::prefill &&
              std::string_view(functions::decode) == rt::functions::decode &&
              std::string_view(functions::extend) == rt::functions::extend);

/// An error of the compiler's libraries as the runtime reports it; Unsupported when it has no code.
Status toStatus(llvm::Error e) {
  if (!e)
    return {};
  rt::Code code = rt::Code::Unsupported;
  std::string message;
  llvm::handleAllErrors(std::move(e), [&](const llvm::ErrorInfoBase &info) {
    if (info.isA<CodedError>())
      code = rt::Code(int(static_cast<const CodedError &>(info).code()));
    message += (message.empty() ? "" : "; ") + info.message();
  });
  return Status(code, message);
}

class CpuBackend : public rt::Backend {
public:
  CpuBackend(rt::Plan::Ptr plan, std::unique_ptr<Module> module, int threads, rt::RankLink *link)
      : plan_(std::move(plan)), module_(std::move(module)), threads_(threads), link_(link),
        group_(link ? std::make_unique<LinkedGroup>(*link) : nullptr), rows_(*module_, *plan_) {
    for (auto &function : module_->functions)
      functions_.push_back(signatureOf(*function));
    if (group_)
      nameWholeState();
  }

  /// Takes the weights of its rank.
  Status takeParts() {
    const auto isMine = [&](const Op &op) {
      auto staged = staged_.find(op.function()->name());
      return staged == staged_.end() || staged->second.has(op);
    };
    return group_->size() > 1 ? toStatus(gpt2c::takeParts(*module_, *group_, isMine)) : Status();
  }

  Status allocateState() {
    if (!plan_->meta().kv)
      return {};
    const plan::KvPlanT &kv = *plan_->meta().kv;
    kv_ = lazyZeros(fromPlan(kv.dtype),
                    {kv.layers, 2, kv.max_batch, heads(), kv.max_context, rt::kvRowElements(kv)});
    if (!kv_.valid())
      return Status(rt::Code::OutOfMemory, "the KV state of the plan takes " +
                                               std::to_string(kv.bytes) +
                                               " bytes, which the system refuses");
    return {};
  }

  /// Each of the group's ranks has some of the layers.
  Status cutInStages() {
    for (const auto &f : module_->functions)
      if (f->name() == functions::decode || f->name() == functions::extend) {
        auto layers = cutLayers(*f, link_->stages());
        if (!layers)
          return toStatus(layers.takeError());
        layers_ = std::move(*layers);
        break;
      }
    for (const auto &f : module_->functions)
      if (const Value *kv = f->argument("kv"); kv && kv->type.rank() == 6) {
        auto staged = StagedFunction::create(*f, layers_, link_->stage());
        if (!staged && f->name() == functions::forward) {
          llvm::consumeError(staged.takeError()); // the exported graph: every rank runs it whole
          continue;
        }
        if (!staged)
          return toStatus(staged.takeError());
        staged_.try_emplace(f->name(), std::move(*staged));
      }
    if (staged_.empty())
      return Status(rt::Code::Unsupported, "the plan's IR has no function with a KV state to cut");
    return {};
  }

  std::string name() const override {
    return "CPU, " + std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads");
  }
  std::string kind() const override { return "cpu"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return functions_;
  }

  Result<rt::StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                                 bool wantLogits) override {
    past_.assign(past.begin(), past.end());
    std::vector<StepCall> calls;
    for (size_t first = 0, count; first < sequences.size(); first += count) {
      count = withLittlePadding(sequences.subspan(first), past.subspan(first));
      auto [ids, length] = rectangle(sequences.subspan(first, count));
      calls.push_back({int64_t(first), std::move(ids), std::move(length)});
    }
    Result<rt::StepOutput> out = runSteps(rt::functions::prefill, calls, wantLogits);
    if (!out)
      return out;
    for (size_t b = 0; b < sequences.size(); ++b)
      past_[b] += static_cast<int32_t>(sequences[b].size());
    return out;
  }

  Result<std::vector<Tokens>> decode(int steps) override {
    std::vector<Tokens> out;
    for (int i = 0; i < steps; ++i) {
      Tokens now = next_;
      Result<rt::StepOutput> one = step(now, false);
      if (!one)
        return one.status();
      out.push_back(std::move(one->next));
    }
    return out;
  }

  Result<rt::StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    const auto all = int64_t(tokens.size()), most = groupRows(all);
    std::vector<StepCall> calls;
    for (int64_t first = 0; first < all; first += most) {
      Tensor ids(DType::I32, {std::min(most, all - first), 1});
      std::copy_n(tokens.begin() + first, ids.count(), ids.data<int32_t>());
      calls.push_back({first, std::move(ids), {}});
    }
    Result<rt::StepOutput> out = runSteps(rt::functions::decode, calls, wantLogits);
    for (int32_t &p : past_)
      ++p;
    return out;
  }

  rt::PagedState pagedState() const override { return rows_.state(); }
  bool samples() const override { return true; }
  Status allocatePages(uint64_t bytes) override { return rows_.allocate(bytes); }
  Status extend(std::span<const rt::Segment> segments) override {
    int64_t rows = 0;
    for (const rt::Segment &s : segments)
      rows += int64_t(s.tokens.size());
    return rows_.extend(segments, groupRows(rows), [&](CpuRows::Arguments arguments) {
      std::vector<StagedFunction::Run> runs;
      for (auto &some : arguments)
        runs.push_back({std::move(some), {}});
      return execute(functions::extend, runs);
    });
  }
  Result<rt::RowsOutput> extended() override { return rows_.extended(); }
  Status allocateHostPages(int32_t count, bool checks) override {
    return rows_.allocateHost(count, checks);
  }
  Status movePages(std::span<const rt::PageMove> moves) override { return rows_.move(moves); }
  Result<rt::MovedPages> movedPages(bool) override { return rows_.moved(); }
  std::span<std::byte> hostPage(int32_t page) override { return rows_.hostPage(page); }

  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override {
    auto [arguments, known] = runArguments(function, inputs, symbols);
    Result<std::vector<std::vector<Tensor>>> results =
        execute(function.name, StagedFunction::Run{std::move(arguments), std::move(known)});
    if (!results)
      return results.status();
    std::vector<HostTensor> out;
    for (size_t i = 0; i < results->front().size(); ++i)
      out.push_back(function.outputs[i]->role == plan::Role::KvState ? HostTensor()
                                                                     : toHost(results->front()[i]));
    return out;
  }

  Result<const plan::FunctionT *> trace(std::string_view name, std::span<const Tokens> sequences,
                                        std::span<const int32_t> past,
                                        const rt::OnValue &onValue) override {
    const Function *function = module_->function(llvm::StringRef(name));
    if (!function)
      return lacks(llvm::StringRef(name));
    auto [ids, length] = rectangle(sequences);
    past_.assign(past.begin(), past.end());
    Result<std::vector<Tensor>> arguments = stepArguments(*function, ids, length);
    if (!arguments)
      return arguments.status();
    if (Status s = traceValues(*function, *arguments, {}, onValue); !s.ok())
      return s;
    return rt::findFunction(functions_, name);
  }

  Status traceRun(const plan::FunctionT &function, std::span<const HostTensor> inputs,
                  std::span<const int64_t> symbols, const rt::OnValue &onValue) override {
    const Function *body = module_->function(function.name);
    if (!body)
      return lacks(function.name);
    auto [arguments, known] = runArguments(function, inputs, symbols);
    return traceValues(*body, arguments, std::move(known), onValue);
  }

  Status writeKv(int layer, plan::KvPart part, const HostTensor &values) override {
    if (!hasLayer(layer))
      return {};
    const std::byte *from = values.data.data();
    forEachRun(layer, part, values.shape[0], values.shape[2], [&](char *state, size_t bytes) {
      std::memcpy(state, from, bytes);
      from += bytes;
    });
    return {};
  }

  Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) override {
    if (!hasLayer(layer))
      return HostTensor(plan_->meta().kv->dtype, {0, kv_.dim(3), tokens, kv_.dim(5)});
    HostTensor out(plan_->meta().kv->dtype, {batch, kv_.dim(3), tokens, kv_.dim(5)});
    std::byte *to = out.data.data();
    forEachRun(layer, part, batch, tokens, [&](char *state, size_t bytes) {
      std::memcpy(to, state, bytes);
      to += bytes;
    });
    return out;
  }

private:
  bool hasLayer(int layer) const {
    return layers_.empty() ||
           llvm::upper_bound(layers_, int64_t(layer)) - layers_.begin() == link_->stage();
  }

  /// Rows that stages work on at a time. Sums of products with other rows have other bits, unless
  /// the plan is batch-invariant.
  int64_t groupRows(int64_t rows) const {
    constexpr int64_t least = 8; // whose products cost as much as reading the weights
    const int64_t all = std::max<int64_t>(1, rows);
    if (layers_.empty() || (link_->microRows() == 0 && !plan_->meta().batch_invariant))
      return all;
    return link_->microRows() ? std::min<int64_t>(all, link_->microRows())
                              : rt::microRows(rows, link_->stages(), least);
  }

  /// Of the KV state that the device holds: with ranks, some of the plan's.
  int64_t heads() const {
    if (group_)
      for (const auto &function : module_->functions)
        if (const Value *kv = function->argument("kv"); kv && kv->type.rank() == 6)
          return kv->type.shape[3].constant().value_or(plan_->meta().kv->heads);
    return plan_->meta().kv->heads;
  }

  /// A caller knows one device with all heads.
  void nameWholeState() {
    for (auto &function : functions_)
      for (auto *ports : {&function->inputs, &function->outputs})
        for (auto &port : *ports)
          if (port->role == plan::Role::KvState && port->shape.size() == 6 && plan_->meta().kv)
            *port->shape[3] = rt::constantExpr(plan_->meta().kv->heads);
  }

  /// How many of the sequences, from the first on, are computed in one call: so many that padding
  /// costs no more than reading the weights for each by itself would, and stays in the context, and
  /// no more than stages work on at a time.
  size_t withLittlePadding(std::span<const Tokens> sequences, std::span<const int32_t> past) const {
    constexpr size_t rowsOfWeights = 8; // whose products cost as much as reading the weights
    size_t all = 0;
    for (const Tokens &tokens : sequences)
      all += tokens.size();
    const auto most = size_t(groupRows(int64_t(all)));
    size_t count = 1, longest = sequences[0].size(), sum = longest;
    int64_t deepest = past[0];
    for (; count < sequences.size(); ++count) {
      const size_t length = sequences[count].size(), width = std::max(longest, length);
      deepest = std::max<int64_t>(deepest, past[count]);
      if (width * (count + 1) > sum + length + rowsOfWeights * count ||
          (most < all && width * (count + 1) > most) || deepest + int64_t(width) > kv_.dim(4))
        break;
      longest = width, sum += length;
    }
    return count;
  }

  /// The KV state of the sequences from `first` on: slots keep their distance, so that of each
  /// layer it begins as many slots later. Those that do not exist at its end are never asked for.
  Tensor kvFrom(int64_t first) {
    if (first == 0)
      return kv_;
    const size_t slot = kv_.dim(3) * kv_.dim(4) * kv_.dim(5) * byteSize(kv_.dtype());
    return Tensor(kv_.dtype(), kv_.shape(), static_cast<char *>(kv_.raw()) + first * slot, nullptr);
  }

  /// Sequences padded with zeros on the right, and how long each is.
  static std::pair<Tensor, Tensor> rectangle(std::span<const Tokens> sequences) {
    int64_t batch = static_cast<int64_t>(sequences.size()), seq = 0;
    for (const Tokens &tokens : sequences)
      seq = std::max<int64_t>(seq, tokens.size());
    Tensor ids = Tensor::zeros(DType::I32, {batch, seq}), length(DType::I32, {batch});
    for (int64_t b = 0; b < batch; ++b) {
      std::copy(sequences[b].begin(), sequences[b].end(), ids.data<int32_t>() + b * seq);
      length.data<int32_t>()[b] = static_cast<int32_t>(sequences[b].size());
    }
    return {std::move(ids), std::move(length)};
  }

  static Status lacks(llvm::StringRef name) {
    return Status(rt::Code::Corrupt, "the plan's IR has no function @" + name.str());
  }

  std::pair<std::vector<Tensor>, SymbolMap> runArguments(const plan::FunctionT &function,
                                                         std::span<const HostTensor> inputs,
                                                         std::span<const int64_t> symbols) const {
    SymbolMap known;
    for (size_t i = 0; i < symbols.size(); ++i)
      known[function.symbols[i]->name] = symbols[i];
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < inputs.size(); ++i)
      arguments.push_back(function.inputs[i]->role == plan::Role::KvState ? kv_
                                                                          : toTensor(inputs[i]));
    return {std::move(arguments), std::move(known)};
  }

  /// Runs the function and hands over all of its results in floating point but the KV state.
  Status traceValues(const Function &function, llvm::ArrayRef<Tensor> arguments, SymbolMap symbols,
                     const rt::OnValue &onValue) try {
    std::vector<Value *> values;
    for (const auto &op : function.ops())
      for (Value *v : op->results())
        if (!op->is(OpCode::Constant) && isFloat(v->type.dtype) && v->type.rank() < 6)
          values.push_back(v);
    Executor::Bindings bound;
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < arguments.size(); ++i) {
        const Value *a = function.argument(unsigned(i));
        if (auto ok = bindShape(a->type.shape, arguments[i].shape(), symbols, a->name); !ok)
          return toStatus(ok.takeError());
        bound[a] = arguments[i];
      }
    const RowInvariance invariance(plan_->meta().batch_invariant);
    auto tensors = executorOf(function.name())->evaluate(values, std::move(bound), symbols);
    if (!tensors)
      return toStatus(tensors.takeError());
    for (size_t i = 0; i < values.size(); ++i) {
      size_t step = 0;
      for (const auto &op : function.ops()) {
        if (op.get() == values[i]->def())
          break;
        ++step;
      }
      if (Status s = onValue(step, resultNumber(*values[i]), toHost((*tensors)[i])); !s.ok())
        return s;
    }
    return {};
  } catch (const std::bad_alloc &e) {
    return Status(rt::Code::OutOfMemory,
                  "@" + function.name() + " needs more memory than there is: " + e.what());
  }

  /// Calls f with the first `tokens` positions of each head of each sequence.
  template <typename F>
  void forEachRun(int layer, plan::KvPart part, int64_t batch, int64_t tokens, F f) {
    int64_t slots = kv_.dim(2), heads = kv_.dim(3);
    size_t row = kv_.dim(5) * byteSize(kv_.dtype());
    char *state = static_cast<char *>(kv_.raw()) +
                  (layer * 2 + (part == plan::KvPart::Value)) * slots * heads * kv_.dim(4) * row;
    for (int64_t i = 0; i < batch * heads; ++i)
      f(state + i * kv_.dim(4) * row, tokens * row);
  }

  /// The runs one after the other, in stages each on another.
  Result<std::vector<std::vector<Tensor>>> execute(llvm::StringRef name,
                                                   llvm::ArrayRef<StagedFunction::Run> runs) try {
    Executor *executor = executorOf(name);
    if (!executor)
      return lacks(name);
    const RowInvariance invariance(plan_->meta().batch_invariant);
    const StoragePool::Scope scope(storage_);
    const Group::Scope ranks(group_.get());
    auto inPlace = [&](llvm::Error e) {
      return toStatus(group_ ? inContext("@" + name, std::move(e)) : std::move(e));
    };
    if (auto staged = staged_.find(name); staged != staged_.end()) {
      auto results = staged->second.run(*executor, runs, *link_);
      return results ? Result<std::vector<std::vector<Tensor>>>(std::move(*results))
                     : inPlace(results.takeError());
    }
    std::vector<std::vector<Tensor>> out;
    for (const StagedFunction::Run &run : runs) {
      auto results = executor->run(run.arguments, run.symbols);
      if (!results)
        return inPlace(results.takeError());
      out.push_back(std::move(*results));
    }
    return out;
  } catch (const std::bad_alloc &e) {
    return Status(rt::Code::OutOfMemory,
                  "@" + name.str() + " needs more memory than there is: " + e.what());
  }

  Executor *executorOf(llvm::StringRef name) {
    std::unique_ptr<Executor> &executor = executors_[name];
    if (!executor)
      if (const Function *function = module_->function(name))
        executor = std::make_unique<Executor>(*function, options_);
    return executor.get();
  }

  /// The choice of the next token passes over NaN, so it is told here. `length`: tokens that the
  /// step appends to each sequence; none: one.
  Status checkLogits(const Tensor &logits, const Tensor &length, int64_t first,
                     int64_t rows) const {
    Tensor wide = logits.cast(DType::F32);
    const int64_t vocab = rows ? wide.count() / rows : 0;
    for (int64_t b = 0; b < rows; ++b)
      if (Status s = rt::checkLogits({wide.data<float>() + b * vocab, size_t(vocab)}, first + b,
                                     past_[first + b] + (length.valid() ? length.asInt(b) : 1));
          !s.ok())
        return s;
    return {};
  }

  /// Arguments of @prefill and @decode for the sequences from `first` on, by name.
  Result<std::vector<Tensor>> stepArguments(const Function &function, const Tensor &ids,
                                            const Tensor &length, int64_t first = 0) {
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < function.numArguments(); ++i) {
      llvm::StringRef argument = function.argument(i)->name;
      if (argument == "ids")
        arguments.push_back(ids);
      else if (argument == "past")
        arguments.push_back(Tensor::of<int32_t>(
            llvm::ArrayRef<int32_t>(past_).slice(first, ids.dim(0)), {ids.dim(0)}));
      else if (argument == "length")
        arguments.push_back(length);
      else if (argument == "kv")
        arguments.push_back(kvFrom(first));
      else
        return Status(rt::Code::Corrupt, "@" + function.name() + " in the plan's IR takes '" +
                                             argument.str() + "', which has no meaning there");
    }
    return arguments;
  }

  /// Of @prefill or @decode, for the sequences from `first` on.
  struct StepCall {
    int64_t first;
    Tensor ids, length; ///< length: not valid for @decode
  };

  /// What the calls give together: results next, logits and the state.
  Result<rt::StepOutput> runSteps(llvm::StringRef name, llvm::ArrayRef<StepCall> calls,
                                  bool wantLogits) {
    const Function *function = module_->function(name);
    if (!function)
      return lacks(name);
    rt::StepOutput out;
    // Results of all are there at once where stages work on them.
    const size_t together = layers_.empty() ? 1 : calls.size();
    for (size_t at = 0; at < calls.size(); at += together) {
      std::vector<StagedFunction::Run> runs;
      for (const StepCall &call : calls.slice(at, together)) {
        Result<std::vector<Tensor>> arguments =
            stepArguments(*function, call.ids, call.length, call.first);
        if (!arguments)
          return arguments.status();
        runs.push_back({arguments.take(), {}});
      }
      Result<std::vector<std::vector<Tensor>>> results = execute(name, runs);
      if (!results)
        return results.status();
      for (size_t i = 0; i < together; ++i)
        if (Status s = addStep(*function, calls[at + i], (*results)[i], wantLogits, out); !s.ok())
          return s;
    }
    next_ = out.next;
    return out;
  }

  Status addStep(const Function &function, const StepCall &call, const std::vector<Tensor> &results,
                 bool wantLogits, rt::StepOutput &out) const {
    const int64_t rows = call.ids.dim(0);
    const size_t wanted = out.next.size() + size_t(rows);
    for (size_t i = 0; i < results.size() && i < function.resultNames.size(); ++i) {
      const Tensor &value = results[i];
      if (function.resultNames[i] == "logits")
        if (Status s = checkLogits(value, call.length, call.first, rows); !s.ok())
          return s;
      if (function.resultNames[i] == "next")
        for (int64_t b = 0; b < value.count(); ++b)
          out.next.push_back(static_cast<int32_t>(value.asInt(b)));
      if (function.resultNames[i] == "logits" && wantLogits) {
        Tensor wide = value.cast(DType::F32);
        out.logits.insert(out.logits.end(), wide.data<float>(), wide.data<float>() + wide.count());
      }
    }
    if (out.next.size() != wanted)
      return Status(rt::Code::Corrupt,
                    "@" + function.name() + " in the plan's IR does not return the next tokens");
    return {};
  }

  rt::Plan::Ptr plan_;
  std::unique_ptr<Module> module_;
  int threads_;
  rt::RankLink *link_;           ///< null: alone
  std::unique_ptr<Group> group_; ///< the team's
  std::vector<int64_t> layers_;  ///< in front of each stage but the first; empty: no stages
  llvm::StringMap<StagedFunction> staged_;
  std::vector<std::unique_ptr<plan::FunctionT>> functions_;
  ExecOptions options_{.widenedConstants = std::make_shared<ExecOptions::WidenedConstants>()};
  Tensor kv_;
  llvm::StringMap<std::unique_ptr<Executor>> executors_;
  std::shared_ptr<StoragePool> storage_ = std::make_shared<StoragePool>();
  std::vector<int32_t> past_;
  Tokens next_;
  CpuRows rows_;
};

} // namespace

rt::Result<std::unique_ptr<rt::Backend>> makeCpuBackend(rt::Plan::Ptr plan,
                                                        const CpuOptions &options) {
  auto module = loadPlanModule(plan);
  if (!module)
    return toStatus(module.takeError());
  rt::RankLink *link = options.link;
  if (!link || link->teamSize() == 1)
    keepWhole(**module);
  else if (llvm::Error e = keepDivision(**module, plan->meta(), link->teamSize()))
    return toStatus(std::move(e));
  int threads = options.threads;
  if (threads <= 0)
    threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (!setProductThreads(threads))
    return Status(rt::Code::OutOfMemory,
                  std::to_string(threads) +
                      " threads need more address space than its limit (ulimit -v) leaves: give "
                      "--threads, or raise it");
  threads = productThreads(); // of a number too large, those there can be
  auto backend = std::make_unique<CpuBackend>(std::move(plan), std::move(*module), threads, link);
  if (Status s = link && link->stages() > 1 ? backend->cutInStages() : Status(); !s.ok())
    return s;
  if (Status s = link ? backend->takeParts() : Status(); !s.ok())
    return s;
  if (Status s = backend->allocateState(); !s.ok())
    return s;
  return std::unique_ptr<rt::Backend>(std::move(backend));
}

} // namespace gpt2c
