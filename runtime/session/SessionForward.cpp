// The plan as the exported graph: its inputs and outputs on one side, the functions' ports and the
// KV state on the other.
// One call, from the inputs that are given to the outputs that are asked for.
#include "runtime/device/FunctionCall.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"
#include "runtime/session/Session.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace gpt2c::rt {
namespace {

/// Which axis of a past or present tensor is which; `Both` has a leading axis of two.
struct PastShape {
  int64_t batch, heads, tokens, headDim;
};

std::optional<PastShape> pastShape(plan::KvPart part, std::span<const int64_t> shape) {
  if (part == plan::KvPart::Both) {
    if (shape.empty() || shape[0] != 2)
      return std::nullopt;
    shape = shape.subspan(1);
  }
  if (shape.size() != 4)
    return std::nullopt;
  return PastShape{shape[0], shape[1], shape[2], shape[3]};
}

/// Half `index` of a tensor whose first axis is two.
HostTensor half(const HostTensor &both, size_t index) {
  HostTensor out(both.dtype, {both.shape.begin() + 1, both.shape.end()});
  std::memcpy(out.data.data(), both.data.data() + index * out.data.size(), out.data.size());
  return out;
}

using Ports = std::vector<std::unique_ptr<plan::PortT>>;

class Forward {
public:
  Forward(const plan::PlanT &meta, Backend &backend, std::span<const HostTensor> inputs)
      : meta_(meta), backend_(backend), given_(inputs),
        forward_(findFunction(backend.functions(), functions::forward)),
        state_(forward_ && std::ranges::any_of(forward_->inputs, [](const auto &port) {
                 return port->role == plan::Role::KvState;
               })) {}

  Result<std::vector<HostTensor>> run() {
    Result<Called> called = call();
    if (!called)
      return called.status();
    return exportedOutputs(*called->function, called->results);
  }

  Result<FunctionProfile> profile(int repetitions, const Backend::WantedSteps &wanted) {
    Result<FunctionCall> call = bind();
    if (!call)
      return call.status();
    return backend_.profileRun(*call->function, arguments_, call->symbols, repetitions, wanted);
  }

  Result<std::vector<HostTensor>> results() {
    Result<Called> called = call();
    if (!called)
      return called.status();
    return std::move(called->results);
  }

  Result<HostTensor> logits() {
    Result<Called> called = call();
    if (!called)
      return called.status();
    for (size_t i = 0; i < called->results.size(); ++i)
      if (called->function->outputs[i]->role == plan::Role::Logits)
        return convert(std::move(called->results[i]), plan::DType::F32);
    return Status(Code::Unsupported,
                  "the plan's @forward has no output of logits, so no text can be run; gpt2c says "
                  "why when it compiles the model. gpt2c-run --test-data and Session.forward take "
                  "any inputs");
  }

private:
  struct Called {
    const plan::FunctionT *function;
    std::vector<HostTensor> results;
  };

  /// The function that runs the inputs, with `arguments_` for it and the KV state filled in.
  Result<FunctionCall> bind() {
    if (Status s = checkInputs(); !s.ok())
      return s;
    if (meta_.kv)
      if (Status s = bindSequences(); !s.ok())
        return s;
    Result<FunctionCall> call = bindFunction();
    if (!call)
      return call.status();
    if (Status s = loadPast(); !s.ok())
      return s;
    return call;
  }

  Result<Called> call() {
    Result<FunctionCall> call = bind();
    if (!call)
      return call.status();
    Result<std::vector<HostTensor>> results =
        backend_.run(*call->function, arguments_, call->symbols);
    if (!results)
      return results.status();
    return Called{call->function, results.take()};
  }

  static Status usage(const std::string &message) { return Status(Code::Usage, message); }

  Status checkInputs() {
    if (given_.size() != meta_.exported_inputs.size())
      return usage("the graph has " + std::to_string(meta_.exported_inputs.size()) + " inputs, " +
                   std::to_string(given_.size()) + " are given");
    for (size_t i = 0; i < given_.size(); ++i) {
      const plan::ExportedPortT &port = *meta_.exported_inputs[i];
      if (given_[i].dtype != port.dtype)
        return usage("input '" + port.name + "' is " + describe(given_[i].dtype, given_[i].shape) +
                     ", the graph declares " + dtypeName(port.dtype));
      if (given_[i].data.size() != given_[i].count() * dtypeBytes(port.dtype))
        return usage("input '" + port.name + "' has " + std::to_string(given_[i].data.size()) +
                     " bytes, its shape " + describe(port.dtype, given_[i].shape) +
                     " asks for others");
      if (port.role == plan::Role::Ids && meta_.vocab_size > 0)
        if (Status s = checkRange(i, meta_.vocab_size, "token id"); !s.ok())
          return s;
      if (port.role == plan::Role::PositionIds && meta_.kv)
        if (Status s = checkRange(i, meta_.kv->max_context, "position"); !s.ok())
          return s;
    }
    return {};
  }

  /// Indices of tables are checked here, kernels trust them.
  Status checkRange(size_t input, int64_t count, const std::string &what) {
    Result<HostTensor> values = convert(given_[input], plan::DType::I64);
    if (!values)
      return values.status();
    for (int64_t v : values->values<int64_t>())
      if (v < 0 || v >= count)
        return usage("input '" + meta_.exported_inputs[input]->name + "' holds the " + what + " " +
                     std::to_string(v) + "; the plan takes 0 to " + std::to_string(count - 1));
    return {};
  }

  /// Batch, new tokens and past tokens from the ids and the past tensors.
  Status bindSequences() {
    for (size_t i = 0; i < given_.size(); ++i)
      if (meta_.exported_inputs[i]->role == plan::Role::Ids) {
        if (given_[i].shape.size() != 2)
          return usage("input '" + meta_.exported_inputs[i]->name + "' is " +
                       describe(given_[i].dtype, given_[i].shape) + ", expected [batch, seq]");
        batch_ = given_[i].shape[0];
        seq_ = given_[i].shape[1];
      }
    std::optional<int64_t> past;
    for (size_t i = 0; i < given_.size(); ++i) {
      const plan::ExportedPortT &port = *meta_.exported_inputs[i];
      if (port.role != plan::Role::PastTensor)
        continue;
      std::optional<PastShape> s = pastShape(port.part, given_[i].shape);
      if (!s || s->batch != batch_ || s->heads != meta_.kv->heads ||
          s->headDim != meta_.kv->head_dim || (past && s->tokens != *past))
        return usage("input '" + port.name + "' is " + describe(given_[i].dtype, given_[i].shape) +
                     ", expected " + (port.part == plan::KvPart::Both ? "[2, " : "[") +
                     std::to_string(batch_) + ", " + std::to_string(meta_.kv->heads) + ", " +
                     (past ? std::to_string(*past) : "past") + ", " +
                     std::to_string(meta_.kv->head_dim) + "]");
      past = s->tokens;
    }
    past_ = past.value_or(0);
    // Kernels index these by batch, past and seq, whatever the exported graph called its
    // dimensions.
    for (size_t i = 0; i < given_.size(); ++i) {
      plan::Role role = meta_.exported_inputs[i]->role;
      bool mask = role == plan::Role::KeyMask;
      std::vector<int64_t> expected{batch_, mask ? past_ + seq_ : seq_};
      if ((mask || role == plan::Role::PositionIds) && given_[i].shape != expected)
        return usage("input '" + meta_.exported_inputs[i]->name + "' is " +
                     describe(given_[i].dtype, given_[i].shape) + ", expected " +
                     describe(given_[i].dtype, expected));
    }
    if (batch_ > meta_.kv->max_batch)
      return usage("the batch is " + std::to_string(batch_) + ", the plan holds " +
                   std::to_string(meta_.kv->max_batch) +
                   "; compile it with gpt2c --max-batch=" + std::to_string(batch_));
    if (past_ + seq_ > meta_.kv->max_context)
      return usage("the inputs need a context of " + std::to_string(past_ + seq_) +
                   " tokens, the plan holds " + std::to_string(meta_.kv->max_context) +
                   "; where the model has more positions, compile it with gpt2c --max-context=" +
                   std::to_string(past_ + seq_));
    return {};
  }

  /// Whether a port of @forward is this input or output of the exported graph: by role where the
  /// role says it all, else by name.
  bool same(const plan::PortT &port, const plan::ExportedPortT &exported,
            const Ports &ports) const {
    switch (port.role) {
    case plan::Role::Ids:
    case plan::Role::KeyMask:
    case plan::Role::PositionIds:
    case plan::Role::Logits:
      return exported.role == port.role;
    case plan::Role::KvState:
      return false;
    default: {
      // Without a state past and present tensors are ports like others.
      const bool plain = exported.role == plan::Role::Plain ||
                         (!state_ && (exported.role == plan::Role::PastTensor ||
                                      exported.role == plan::Role::PresentTensor));
      return plain && portName(exported, ports) == port.name;
    }
    }
  }

  const HostTensor *source(const plan::PortT &port, const Ports &ports) const {
    for (size_t i = 0; i < given_.size(); ++i)
      if (same(port, *meta_.exported_inputs[i], ports))
        return &given_[i];
    return nullptr;
  }

  Result<FunctionCall> bindFunction() {
    const plan::FunctionT *any = forward_; // all functions of one name have the same ports
    if (!any)
      return Status(Code::Incompatible, "the plan has no @forward for the device '" +
                                            backend_.kind() +
                                            "'; the CPU runs every plan: "
                                            "--device=cpu");
    std::vector<std::vector<int64_t>> shapes;
    for (const auto &port : any->inputs) {
      HostTensor value(port->dtype, {0});
      if (state_ && port->role == plan::Role::Past) {
        value = HostTensor(plan::DType::I32, {batch_});
        std::ranges::fill(value.values<int32_t>(), static_cast<int32_t>(past_));
      } else if (!state_ || port->role != plan::Role::KvState) {
        const HostTensor *from = source(*port, any->inputs);
        if (!from)
          return Status(Code::Corrupt, "@forward takes '" + port->name +
                                           "', which is no input of the exported graph");
        Result<HostTensor> converted = convert(*from, port->dtype);
        if (!converted)
          return Status(converted.status().code(),
                        "input '" + port->name + "': " + converted.status().message());
        value = converted.take();
      }
      shapes.push_back(value.shape);
      arguments_.push_back(std::move(value));
    }
    return chooseFunction(backend_.functions(), state_ ? meta_.kv.get() : nullptr,
                          functions::forward, shapes, past_);
  }

  static Status noTensors() {
    return Status(Code::Unsupported, "a KV state in int8 or fp8 neither takes past tensors nor "
                                     "gives present ones: compile without --kv-type");
  }

  Status loadPast() {
    for (size_t i = 0; i < given_.size() && state_ && past_ > 0; ++i) {
      const plan::ExportedPortT &port = *meta_.exported_inputs[i];
      if (port.role != plan::Role::PastTensor)
        continue;
      if (isQuantised(*meta_.kv))
        return noTensors();
      Result<HostTensor> values = convert(given_[i], meta_.kv->dtype);
      if (!values)
        return values.status();
      bool both = port.part == plan::KvPart::Both;
      for (plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value})
        if (both || port.part == part)
          if (Status s = backend_.writeKv(
                  port.layer, part, both ? half(*values, part == plan::KvPart::Value) : *values);
              !s.ok())
            return s;
    }
    return {};
  }

  Result<HostTensor> present(const plan::ExportedPortT &port) {
    if (isQuantised(*meta_.kv))
      return noTensors();
    int64_t tokens = past_ + seq_;
    if (port.part != plan::KvPart::Both)
      return backend_.readKv(port.layer, port.part, batch_, tokens);
    HostTensor both(meta_.kv->dtype, {2, batch_, meta_.kv->heads, tokens, meta_.kv->head_dim});
    for (plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value}) {
      Result<HostTensor> one = backend_.readKv(port.layer, part, batch_, tokens);
      if (!one)
        return one;
      std::memcpy(both.data.data() + (part == plan::KvPart::Value) * one->data.size(),
                  one->data.data(), one->data.size());
    }
    return both;
  }

  Result<std::vector<HostTensor>> exportedOutputs(const plan::FunctionT &function,
                                                  std::vector<HostTensor> &results) {
    std::vector<HostTensor> out;
    for (const auto &exported : meta_.exported_outputs) {
      Result<HostTensor> value =
          Status(Code::Corrupt,
                 "the plan computes no value for the graph's output '" + exported->name + "'");
      if (state_ && exported->role == plan::Role::PresentTensor)
        value = present(*exported);
      else
        for (size_t i = 0; i < function.outputs.size() && i < results.size(); ++i)
          if (same(*function.outputs[i], *exported, function.outputs))
            value = results[i];
      if (!value)
        return value.status();
      Result<HostTensor> converted = convert(value.take(), exported->dtype);
      if (!converted)
        return converted.status();
      out.push_back(converted.take());
    }
    return out;
  }

  const plan::PlanT &meta_;
  Backend &backend_;
  std::span<const HostTensor> given_;
  const plan::FunctionT *forward_; ///< null: the device has none
  const bool state_;               ///< whether it reads and fills the KV state
  int64_t batch_ = 0, seq_ = 0, past_ = 0;
  std::vector<HostTensor> arguments_;
};

/// An input of @forward for `batch` sequences of one token and nothing before it, where that has no
/// elements: the past of a graph that gets no KV state.
std::optional<HostTensor> emptyInput(const plan::FunctionT &forward, int64_t batch,
                                     const plan::ExportedPortT &exported) {
  std::vector<int64_t> least;
  for (const auto &symbol : forward.symbols)
    least.push_back(symbol->min);
  for (const auto &port : forward.inputs)
    for (size_t axis = 0; axis < port->shape.size() && port->role == plan::Role::Ids; ++axis) {
      const std::vector<int64_t> &code = port->shape[axis]->code;
      for (size_t i = 0; i + 1 < code.size(); i += 2)
        if (code[i] == int64_t(ExprOp::Symbol))
          least[code[i + 1]] = axis == 0 ? batch : 1;
    }
  for (const auto &port : forward.inputs)
    if (port->name == portName(exported, forward.inputs))
      if (Result<std::vector<int64_t>> shape = portShape(*port, least)) {
        HostTensor value(exported.dtype, *shape);
        if (value.count() == 0)
          return value;
      }
  return std::nullopt;
}

bool reads(const plan::FunctionT &forward, const plan::ExportedPortT &exported) {
  return std::ranges::any_of(forward.inputs, [&](const auto &port) {
    return port->name == portName(exported, forward.inputs);
  });
}

/// Tokens of each sequence where the export fixed them.
std::optional<int64_t> fixedLength(const plan::FunctionT &forward) {
  for (const auto &port : forward.inputs)
    if (port->role == plan::Role::Ids && port->shape.size() == 2)
      if (const std::vector<int64_t> &code = port->shape[1]->code;
          code.size() == 2 && code[0] == int64_t(ExprOp::Push))
        return code[1];
  return std::nullopt;
}

/// The inputs of the exported graph for sequences of one length without a past.
Result<std::vector<HostTensor>> inputsOf(const plan::PlanT &meta, const plan::FunctionT *forward,
                                         std::span<const Tokens> sequences) {
  int64_t batch = static_cast<int64_t>(sequences.size());
  int64_t n = static_cast<int64_t>(sequences[0].size());
  if (const auto fixed = forward ? fixedLength(*forward) : std::nullopt; fixed && *fixed != n)
    return Status(Code::Usage, "a text of " + std::to_string(n) +
                                   " tokens is given, the model was exported for exactly " +
                                   std::to_string(*fixed) +
                                   "; export it with an open length, by dynamic axes or shapes");
  std::vector<HostTensor> inputs;
  for (const auto &port : meta.exported_inputs) {
    HostTensor values(plan::DType::I32, {batch, n});
    std::span<int32_t> to = values.values<int32_t>();
    switch (port->role) {
    case plan::Role::Ids:
      for (int64_t b = 0; b < batch; ++b)
        std::ranges::copy(sequences[b], to.begin() + b * n);
      break;
    case plan::Role::KeyMask:
      std::ranges::fill(to, 1);
      break;
    case plan::Role::PositionIds:
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = static_cast<int32_t>(i % size_t(n));
      break;
    case plan::Role::PastTensor:
      if (meta.kv) {
        std::vector<int64_t> empty{batch, meta.kv->heads, 0, meta.kv->head_dim};
        if (port->part == plan::KvPart::Both)
          empty.insert(empty.begin(), 2);
        values = HostTensor(port->dtype, empty);
        break;
      }
      [[fallthrough]];
    default:
      if (forward && portName(*port, forward->inputs) == tokenTypesName)
        break; // zeros
      if (forward && !reads(*forward, *port)) {
        values = HostTensor(port->dtype, {0});
        break;
      }
      if (forward)
        if (std::optional<HostTensor> empty = emptyInput(*forward, batch, *port)) {
          values = std::move(*empty);
          break;
        }
      return Status(
          Code::Unsupported,
          (meta.kv ? "the plan cannot run a whole text through @forward: what to give for the "
                     "graph's input '"
                   : "the plan cannot run a text: it has no KV state, and what to give for the "
                     "graph's input '") +
              port->name +
              "' is not known. Export the model with token ids alone, or with a mask [batch, "
              "tokens], position ids and growing past keys and values beside them, or set it for "
              "good (gpt2c --set-input=" +
              port->name + "=1); gpt2c-run --test-data and Session.forward take any inputs");
    }
    Result<HostTensor> exported = convert(std::move(values), port->dtype);
    if (!exported)
      return exported.status();
    inputs.push_back(exported.take());
  }
  return inputs;
}

} // namespace

/// Whether `logits` are those of `tokens` tokens of each sequence; one token's may lack the axis.
static bool isLogitsOf(const HostTensor &logits, std::span<const Tokens> sequences,
                       int64_t tokens) {
  const std::vector<int64_t> &shape = logits.shape;
  int64_t batch = static_cast<int64_t>(sequences.size());
  if (shape.empty() || shape[0] != batch || shape.back() < 1)
    return false;
  return shape.size() == 3 ? shape[1] == tokens : shape.size() == 2 && tokens == 1;
}

Result<std::vector<HostTensor>> Session::wholeInputs(std::span<const Tokens> sequences) {
  if (Status s = checkBatch(sequences.size()); !s.ok())
    return s;
  for (size_t b = 0; b < sequences.size(); ++b) {
    std::string what = "sequence " + std::to_string(b + 1);
    if (sequences[b].empty() || sequences[b].size() != sequences[0].size())
      return Status(Code::Usage, what + " has " + std::to_string(sequences[b].size()) +
                                     " tokens, the first has " +
                                     std::to_string(sequences[0].size()) +
                                     "; all need one length, at least one token");
    if (Status s = checkIds(sequences[b], what); !s.ok())
      return s;
  }
  endBatch();
  return inputsOf(plan_->meta(), findFunction(backend_->functions(), functions::forward),
                  sequences);
}

Result<std::vector<HostTensor>> Session::results(std::span<const Tokens> sequences) {
  Result<std::vector<HostTensor>> inputs = wholeInputs(sequences);
  if (!inputs)
    return inputs;
  return Forward(plan_->meta(), *backend_, *inputs).results();
}

Result<HostTensor> Session::anyLogits(std::span<const Tokens> sequences) {
  Result<std::vector<HostTensor>> inputs = wholeInputs(sequences);
  if (!inputs)
    return inputs.status();
  return Forward(plan_->meta(), *backend_, *inputs).logits();
}

Result<HostTensor> Session::logits(std::span<const Tokens> sequences) {
  Result<HostTensor> out = anyLogits(sequences);
  if (!out)
    return out;
  if (!isLogitsOf(*out, sequences, int64_t(sequences[0].size())))
    return Status(Code::Unsupported, "the plan's logits are " + describe(out->dtype, out->shape) +
                                         ", not one row for each token");
  return out;
}

Result<std::vector<HostTensor>> Session::forward(std::span<const HostTensor> inputs) {
  endBatch();
  return Forward(plan_->meta(), *backend_, inputs).run();
}

Result<HostTensor> Session::lastLogits(const Tokens &sequence) {
  Result<HostTensor> out = anyLogits({&sequence, 1});
  if (!out)
    return out;
  int64_t n = int64_t(sequence.size());
  if (!isLogitsOf(*out, {&sequence, 1}, n) && !isLogitsOf(*out, {&sequence, 1}, 1))
    return Status(Code::Unsupported, "the plan's logits are " + describe(out->dtype, out->shape) +
                                         ", which are not those of a text of " + std::to_string(n) +
                                         " tokens");
  return out;
}

Result<FunctionProfile> Session::profileForward(std::span<const HostTensor> inputs, int repetitions,
                                                const Backend::WantedSteps &wanted) {
  endBatch();
  return Forward(plan_->meta(), *backend_, inputs).profile(repetitions, wanted);
}

} // namespace gpt2c::rt
