#include "runtime/session/Embeddings.h"

#include "runtime/device/FunctionCall.h"
#include "runtime/plan/FunctionNames.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::rt {

static bool isFloat(plan::DType type) {
  return type == plan::DType::F32 || type == plan::DType::F16 || type == plan::DType::BF16;
}

std::optional<size_t> hiddenOutput(Session &session) {
  const plan::FunctionT *forward = findFunction(session.backend().functions(), functions::forward);
  std::optional<size_t> found;
  for (size_t i = 0; forward && i < forward->outputs.size(); ++i) {
    const plan::PortT &port = *forward->outputs[i];
    if (port.role != plan::Role::Plain || port.shape.size() != 3 || !isFloat(port.dtype))
      continue;
    if (port.name == "last_hidden_state")
      return i;
    if (found)
      return std::nullopt; // which of them is meant nobody says
    found = i;
  }
  return found;
}

Result<std::vector<float>> embed(Session &session, const Tokens &tokens, Pooling pooling,
                                 bool normalised) {
  const std::optional<size_t> output = hiddenOutput(session);
  if (!output)
    return {Code::Unsupported, "the plan gives no hidden states: compile it with --output-hidden"};
  Result<std::vector<HostTensor>> results = session.results({&tokens, 1});
  if (!results)
    return results.status();
  Result<HostTensor> hidden = convert(std::move((*results)[*output]), plan::DType::F32);
  if (!hidden)
    return hidden.status();
  const auto rows = int64_t(tokens.size());
  if (hidden->shape.size() != 3 || hidden->shape[0] != 1 || hidden->shape[1] != rows)
    return {Code::Unsupported, "the plan's hidden states are " +
                                   describe(hidden->dtype, hidden->shape) +
                                   ", not one for each of " + std::to_string(rows) + " tokens"};
  const auto width = size_t(hidden->shape[2]);
  const std::span<const float> all = hidden->values<float>();
  std::vector<double> sum(width);
  const size_t first = pooling == Pooling::Last ? size_t(rows) - 1 : 0;
  for (size_t row = first; row < size_t(rows); ++row)
    for (size_t i = 0; i < width; ++i)
      sum[i] += double(all[row * width + i]);
  double square = 0;
  for (double &x : sum) {
    x /= double(size_t(rows) - first);
    square += x * x;
  }
  if (!std::isfinite(square))
    return {Code::Quality, "a hidden state is no number: an overflow, in fp16 most likely; compile "
                           "with --precision=fp32"};
  const double scale = normalised && square > 0 ? 1 / std::sqrt(square) : 1;
  std::vector<float> out(width);
  std::ranges::transform(sum, out.begin(), [&](double x) { return float(x * scale); });
  return out;
}

} // namespace gpt2c::rt
