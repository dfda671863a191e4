#include "verify/PlanRunner.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace gpt2c {

HostRunner::HostRunner(const Module &module, bool float64) : module_(module) {
  options_.float64 = float64;
  options_.widenedConstants = std::make_shared<ExecOptions::WidenedConstants>();
}

bool HostRunner::has(llvm::StringRef function) const { return module_.function(function); }

std::unique_ptr<PlanRunner> HostRunner::inDouble() const {
  return std::make_unique<HostRunner>(module_, true);
}

llvm::Expected<std::vector<Tensor>> HostRunner::run(const Function &f,
                                                    llvm::ArrayRef<Tensor> arguments) {
  return Executor(f, options_).run(arguments);
}

/// Memory that reads as zeros and is taken page by page as it is written.
static llvm::Expected<Tensor> lazyZeros(DType dtype, llvm::ArrayRef<int64_t> shape) {
  size_t bytes = byteSize(dtype);
  for (int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(bytes, size_t(d), &bytes))
      bytes = SIZE_MAX;
  void *memory = bytes == SIZE_MAX ? nullptr : std::calloc(std::max<size_t>(bytes, 1), 1);
  if (!memory)
    return makeError(ExitCode::OutOfMemory,
                     "the KV state with which the plan is checked takes " + llvm::Twine(bytes) +
                         " bytes, which the system refuses; --verify=off does without");
  return Tensor(dtype, shape, memory,
                std::shared_ptr<const void>(memory, [memory](const void *) { std::free(memory); }));
}

llvm::Expected<Tensor> HostRunner::state(const Value &kv, int64_t batch) {
  if (kv_.valid() && kv_.dim(2) >= batch)
    return kv_;
  llvm::SmallVector<int64_t, 6> shape;
  for (const Dim &d : kv.type.shape)
    shape.push_back(d.constant().value_or(batch));
  DType dtype = options_.float64 && isFloat(kv.type.dtype) ? DType::F64 : kv.type.dtype;
  auto zeros = lazyZeros(dtype, shape);
  if (!zeros)
    return zeros.takeError();
  kv_ = std::move(*zeros);
  return kv_;
}

namespace {

/// A part of an exported past or present tensor in the state kv[layers, 2, slots, heads, context,
/// head_dim].
struct StatePart {
  int64_t layer, which;
};

llvm::SmallVector<StatePart, 2> partsOf(const ExportedPort &port) {
  if (port.part == "both")
    return {{port.layer, 0}, {port.layer, 1}};
  return {{port.layer, port.part == "value"}};
}

/// Calls f(row in the state, row in a tensor [batch, heads, tokens, head_dim]).
void forEachRow(const Tensor &kv, StatePart part, int64_t batch, int64_t tokens,
                llvm::function_ref<void(int64_t, int64_t)> f) {
  int64_t slots = kv.dim(2), heads = kv.dim(3), context = kv.dim(4);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < tokens; ++t)
        f((((part.layer * 2 + part.which) * slots + b) * heads + h) * context + t,
          (b * heads + h) * tokens + t);
}

} // namespace

static llvm::Error stateHasNoTensors() {
  return makeError(ExitCode::Unsupported, "an int8 KV state takes no past tensors");
}

llvm::Error HostRunner::loadPast(const ExportedGraph &graph, const GraphCall &call, Tensor &kv) {
  unsigned index = 0;
  for (const ExportedPort &port : graph.inputs()) {
    if (port.role != "past" || index >= call.past.size())
      continue;
    if (!isFloat(kv.dtype()))
      return stateHasNoTensors();
    Tensor given = call.past[index++].cast(kv.dtype());
    const int64_t bytes = kv.dim(5) * byteSize(kv.dtype());
    const int64_t rows = call.batch() * kv.dim(3) * call.pastTokens();
    const char *from = static_cast<const char *>(std::as_const(given).raw());
    char *to = static_cast<char *>(kv.raw());
    for (auto [i, part] : llvm::enumerate(partsOf(port)))
      forEachRow(kv, part, call.batch(), call.pastTokens(), [&](int64_t row, int64_t source) {
        std::memcpy(to + row * bytes, from + (int64_t(i) * rows + source) * bytes, bytes);
      });
  }
  return llvm::Error::success();
}

/// The present tensor of `port`, as the state holds it.
static Tensor present(const Tensor &kv, const ExportedPort &port, int64_t batch, int64_t tokens) {
  auto parts = partsOf(port);
  llvm::SmallVector<int64_t, 5> shape{batch, kv.dim(3), tokens, kv.dim(5)};
  if (parts.size() == 2)
    shape.insert(shape.begin(), 2);
  Tensor out(kv.dtype(), shape);
  const int64_t bytes = kv.dim(5) * byteSize(kv.dtype()), rows = batch * kv.dim(3) * tokens;
  const char *from = static_cast<const char *>(kv.raw());
  char *to = static_cast<char *>(out.raw());
  for (auto [i, part] : llvm::enumerate(parts))
    forEachRow(kv, part, batch, tokens, [&](int64_t row, int64_t target) {
      std::memcpy(to + (int64_t(i) * rows + target) * bytes, from + row * bytes, bytes);
    });
  return out;
}

/// The argument of the graph that an argument of @forward stands for: by role where its name says
/// one, else by name; -1 when there is none.
static int inputFor(const ExportedGraph &graph, llvm::StringRef name) {
  bool role = name == "ids" || name == "key_mask" || name == "position_ids";
  const Value *a = role ? graph.argument(name) : nullptr;
  for (const ExportedPort &port : graph.inputs())
    if (!a && port.port == name)
      a = graph.function().argument(port.name);
  if (!a)
    a = graph.function().argument(name);
  return a ? int(a->index()) : -1;
}

llvm::Expected<std::vector<Tensor>> HostRunner::forwardArguments(const ExportedGraph &graph,
                                                                 const GraphCall &call,
                                                                 llvm::ArrayRef<Tensor> arguments) {
  const Function &f = *module_.function(functions::forward);
  const bool cached = f.argument("kv");
  std::vector<Tensor> out;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value &a = *f.argument(i);
    if (cached && a.name == "kv") {
      auto kv = state(a, call.batch());
      if (!kv)
        return kv.takeError();
      if (llvm::Error e = loadPast(graph, call, *kv))
        return e;
      out.push_back(*kv);
    } else if (cached && a.name == "past") {
      std::vector<int32_t> past(call.batch(), int32_t(call.pastTokens()));
      out.push_back(Tensor::of<int32_t>(past, {call.batch()}));
    } else {
      int input = inputFor(graph, a.name);
      if (input < 0)
        return makeError(ExitCode::Quality, "@forward takes '" + a.name +
                                                "', which is no input of the exported graph");
      out.push_back(arguments[input].cast(a.type.dtype));
    }
  }
  return out;
}

llvm::Expected<std::vector<Tensor>> HostRunner::forward(const ExportedGraph &graph,
                                                        const GraphCall &call,
                                                        llvm::ArrayRef<Tensor> arguments) {
  auto given = forwardArguments(graph, call, arguments);
  if (!given)
    return given.takeError();
  const Function &f = *module_.function(functions::forward);
  auto results = run(f, *given);
  if (!results)
    return results.takeError();
  std::vector<Tensor> out;
  for (const ExportedPort &port : graph.outputs()) {
    llvm::StringRef name = port.role == "logits" ? llvm::StringRef("logits")
                           : port.port.empty()   ? llvm::StringRef(port.name)
                                                 : llvm::StringRef(port.port);
    auto it = llvm::find(f.resultNames, name);
    if (it != f.resultNames.end())
      out.push_back((*results)[it - f.resultNames.begin()]);
    else if (port.role == "present" && kv_.valid() && isFloat(kv_.dtype()))
      out.push_back(present(kv_, port, call.batch(), call.pastTokens() + call.tokens()));
    else
      out.emplace_back();
  }
  return out;
}

llvm::Expected<std::vector<Tensor>> HostRunner::stepArguments(llvm::StringRef function,
                                                              llvm::ArrayRef<TokenIds> texts,
                                                              llvm::ArrayRef<int32_t> past) {
  const Function &f = *module_.function(function);
  const int64_t batch = int64_t(texts.size());
  int64_t seq = 0;
  std::vector<int32_t> length;
  for (const TokenIds &text : texts) {
    seq = std::max(seq, int64_t(text.size()));
    length.push_back(int32_t(text.size()));
  }
  Tensor ids = Tensor::zeros(DType::I32, {batch, seq});
  for (int64_t b = 0; b < batch; ++b)
    llvm::copy(texts[b], ids.data<int32_t>() + b * seq);
  std::vector<Tensor> out;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value &a = *f.argument(i);
    if (a.name == "ids") {
      out.push_back(ids.cast(a.type.dtype));
    } else if (a.name == "past") {
      out.push_back(Tensor::of<int32_t>(past, {batch}));
    } else if (a.name == "length") {
      out.push_back(Tensor::of<int32_t>(length, {batch}));
    } else if (a.name == "kv") {
      auto kv = state(a, batch);
      if (!kv)
        return kv.takeError();
      out.push_back(*kv);
    } else {
      return makeError(ExitCode::Quality,
                       "@" + function + " takes '" + a.name + "', which has no meaning there");
    }
  }
  return out;
}

llvm::Expected<StepResult> HostRunner::step(llvm::StringRef function,
                                            llvm::ArrayRef<TokenIds> texts,
                                            llvm::ArrayRef<int32_t> past) {
  auto arguments = stepArguments(function, texts, past);
  if (!arguments)
    return arguments.takeError();
  const Function &f = *module_.function(function);
  auto results = run(f, *arguments);
  if (!results)
    return results.takeError();
  return stepResult(f, *results, texts.size());
}

llvm::Expected<StepResult> HostRunner::stepResult(const Function &f, llvm::ArrayRef<Tensor> results,
                                                  size_t rows) const {
  StepResult out;
  for (auto [i, name] : llvm::enumerate(f.resultNames)) {
    const Tensor &t = results[i];
    if (name == "logits")
      out.logits = t;
    if (name == "next")
      for (int64_t b = 0; b < t.count(); ++b)
        out.next.push_back(int32_t(t.asInt(b)));
  }
  if (!out.logits.valid() || out.next.size() != rows)
    return makeError(ExitCode::Quality, "@" + f.name() +
                                            " does not return logits and the next "
                                            "tokens");
  return out;
}

llvm::Expected<std::vector<Tensor>> HostRunner::rowsArguments(llvm::ArrayRef<RowsOfText> parts,
                                                              size_t texts) {
  constexpr int64_t pieceTokens = 23; // no divisor of a page
  const Function &f = *module_.function(functions::extend);
  const Value *kv = f.argument("kv"), *tables = f.argument("tables");
  const int64_t columns =
      tables && tables->type.rank() == 2 ? tables->type.shape[1].constant().value_or(0) : 0;
  if (!kv || kv->type.rank() != 6 || columns < 1)
    return makeError(ExitCode::Quality, "@extend has no state in pages");
  const int64_t count = int64_t(texts), pages = count * columns;
  if (!pages_.valid() || pages_.dim(0) < pages) {
    llvm::SmallVector<int64_t, 6> shape;
    for (const Dim &d : kv->type.shape)
      shape.push_back(d.constant().value_or(pages));
    auto zeros = lazyZeros(options_.float64 ? DType::F64 : kv->type.dtype, shape);
    if (!zeros)
      return zeros.takeError();
    pages_ = std::move(*zeros);
  }
  std::vector<int32_t> ids, positions, pieces, table, last;
  for (auto [number, part] : llvm::enumerate(parts)) {
    const auto tokens = int64_t(part.tokens.size());
    for (int64_t from = 0; from < tokens; from += pieceTokens)
      for (int64_t word : {int64_t(ids.size()) + from, std::min(pieceTokens, tokens - from),
                           part.past + from, int64_t(number)})
        pieces.push_back(int32_t(word));
    for (int64_t t = 0; t < tokens; ++t)
      positions.push_back(int32_t(part.past + t));
    llvm::append_range(ids, part.tokens);
    last.push_back(int32_t(ids.size()) - 1);
    for (int64_t i = 0; i < columns; ++i)
      table.push_back(int32_t(i * count + int64_t(part.text)));
  }
  const int64_t rows = int64_t(ids.size()), segments = int64_t(parts.size());
  const std::pair<llvm::StringRef, Tensor> known[] = {
      {"ids", Tensor::of<int32_t>(ids, {1, rows})},
      {"positions", Tensor::of<int32_t>(positions, {1, rows})},
      {"kv", pages_},
      {"pieces", Tensor::of<int32_t>(pieces, {int64_t(pieces.size()) / 4, 4})},
      {"tables", Tensor::of<int32_t>(table, {segments, columns})},
      {"last", Tensor::of<int32_t>(last, {segments})}};
  std::vector<Tensor> out;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value &a = *f.argument(i);
    auto it = llvm::find_if(known, [&](auto &argument) { return argument.first == a.name; });
    if (it == std::end(known))
      return makeError(ExitCode::Quality,
                       "@extend takes '" + a.name + "', which has no meaning there");
    out.push_back(a.name == "kv" ? it->second : it->second.cast(a.type.dtype));
  }
  return out;
}

llvm::Expected<StepResult> HostRunner::extend(llvm::ArrayRef<RowsOfText> parts, size_t texts) {
  auto arguments = rowsArguments(parts, texts);
  if (!arguments)
    return arguments.takeError();
  const Function &f = *module_.function(functions::extend);
  auto results = run(f, *arguments);
  if (!results)
    return results.takeError();
  return stepResult(f, *results, parts.size());
}

llvm::Expected<StepResult> HostRunner::prefill(llvm::ArrayRef<TokenIds> texts,
                                               llvm::ArrayRef<int32_t> past) {
  return step(functions::prefill, texts, past);
}

llvm::Expected<StepResult> HostRunner::decode(llvm::ArrayRef<int32_t> tokens,
                                              llvm::ArrayRef<int32_t> past) {
  std::vector<TokenIds> texts;
  for (int32_t t : tokens)
    texts.push_back({t});
  return step(functions::decode, texts, past);
}

} // namespace gpt2c
