// Inputs for plans without a KV state, which run a graph as a whole.
#include "runtime/device/FunctionCall.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "tools/gpt2c-bench/Measure.h"
#include "tools/runtime-common/Report.h"

#include <random>

namespace gpt2c {

/// Gives every symbol of `dim` this value.
static void setSymbols(const plan::ExprT &dim, int64_t value, std::vector<int64_t> &symbols) {
  for (size_t i = 0; i + 1 < dim.code.size(); i += 2)
    if (dim.code[i] == int64_t(rt::ExprOp::Symbol))
      symbols[dim.code[i + 1]] = value;
}

static rt::HostTensor valuesFor(const plan::PortT &port, std::vector<int64_t> shape,
                                int64_t vocabulary) {
  std::mt19937 random(unsigned(shape.size()) * 7919u);
  const bool isFloat = port.dtype == plan::DType::F32 || port.dtype == plan::DType::F16 ||
                       port.dtype == plan::DType::BF16 || port.dtype == plan::DType::F64;
  if (isFloat) {
    // Tensors may be large: a block of random values, repeated.
    constexpr size_t blockSize = 1 << 16;
    rt::HostTensor t(plan::DType::F32, std::move(shape));
    std::span<float> values = t.values<float>();
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = i < blockSize ? float(random()) / float(1u << 30) - 2 : values[i - blockSize];
    return t;
  }
  rt::HostTensor t(plan::DType::I32, std::move(shape));
  const int64_t last = t.shape.empty() ? 1 : std::max<int64_t>(t.shape.back(), 1);
  const std::span<int32_t> values = t.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = port.role == plan::Role::Ids
                    ? int32_t(random() % uint32_t(std::max<int64_t>(1, vocabulary)))
                : port.role == plan::Role::PositionIds ? int32_t(int64_t(i) % last)
                : port.name == rt::tokenTypesName      ? 0
                                                       : 1;
  return t;
}

rt::Result<std::vector<rt::HostTensor>> randomInputs(rt::Session &session, int batch, int tokens) {
  const plan::PlanT &meta = session.plan().meta();
  const plan::FunctionT *forward =
      rt::findFunction(session.backend().functions(), rt::functions::forward);
  if (!forward || forward->inputs.empty())
    return rt::Status(rt::Code::Unsupported,
                      "the plan has no @forward with inputs for this device");
  std::vector<int64_t> symbols;
  for (const auto &symbol : forward->symbols)
    symbols.push_back(symbol->min);
  if (const auto &first = forward->inputs.front()->shape; !first.empty()) {
    setSymbols(*first.front(), batch, symbols);
    setSymbols(*first.back(), tokens, symbols);
  }
  std::vector<rt::HostTensor> inputs;
  for (const auto &exported : meta.exported_inputs) {
    auto port = std::ranges::find_if(forward->inputs, [&](const auto &p) {
      return p->role == exported->role && (exported->role != plan::Role::Plain ||
                                           p->name == rt::portName(*exported, forward->inputs));
    });
    rt::HostTensor value(exported->dtype, {0}); // of an input that nothing reads
    if (port != forward->inputs.end()) {
      auto shape = rt::portShape(**port, symbols);
      if (!shape)
        return shape.status();
      auto converted =
          rt::convert(valuesFor(**port, shape.take(), meta.vocab_size), exported->dtype);
      if (!converted)
        return converted.status();
      value = converted.take();
    }
    inputs.push_back(std::move(value));
  }
  return inputs;
}

} // namespace gpt2c
