#include "tools/common/HostForward.h"

#include "cpu/Convert.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

int64_t contextOf(const Function &function) {
  const Value *kv = function.argument("kv");
  return kv && kv->type.rank() == 6 ? kv->type.shape[4].constant().value_or(0) : 0;
}

llvm::Expected<Tensor> HostForward::argument(const Value &a,
                                             std::span<const rt::Tokens> sequences) {
  int64_t batch = int64_t(sequences.size()), seq = int64_t(sequences[0].size());
  if (a.name == "kv") {
    if (!kv_.valid()) {
      llvm::SmallVector<int64_t> shape;
      for (const Dim &d : a.type.shape)
        shape.push_back(d.constant().value_or(batch_));
      kv_ = Tensor::zeros(a.type.dtype, shape);
    }
    return kv_;
  }
  if (a.name == "past")
    return Tensor::zeros(a.type.dtype, {batch});
  Tensor out(DType::I32, {batch, seq});
  int32_t *to = out.data<int32_t>();
  for (int64_t i = 0; i < batch * seq; ++i)
    if (a.name == "ids")
      to[i] = sequences[i / seq][i % seq];
    else if (a.name == "position_ids")
      to[i] = int32_t(i % seq);
    else if (a.name == "key_mask")
      to[i] = 1;
    else
      return makeError(ExitCode::Unsupported, "@" + function_.name() +
                                                  " cannot run a text: what "
                                                  "to give for its input '" +
                                                  a.name + "' is not known");
  return out.cast(a.type.dtype);
}

llvm::Expected<std::vector<Tensor>> HostForward::run(std::span<const rt::Tokens> sequences) {
  std::vector<Tensor> arguments;
  for (unsigned i = 0; i < function_.numArguments(); ++i) {
    auto t = argument(*function_.argument(i), sequences);
    if (!t)
      return t.takeError();
    arguments.push_back(std::move(*t));
  }
  return executor_.run(arguments);
}

llvm::Expected<rt::HostTensor> HostForward::logits(std::span<const rt::Tokens> sequences) {
  auto it = llvm::find(function_.resultNames, "logits");
  if (it == function_.resultNames.end())
    return makeError(ExitCode::Unsupported, "@" + function_.name() + " has no logits");
  auto results = run(sequences);
  if (!results)
    return results.takeError();
  return toHost((*results)[it - function_.resultNames.begin()].cast(DType::F32));
}

} // namespace gpt2c
