// What the whole pipeline may not change about a model: the logits of every token that is not
// padding, in double precision, after every single pass; and once there is a KV state, that
// @prefill and @decode give the logits that the exported graph gives.
#pragma once

#include "ir/Executor.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "tests/unit/passes/RandomGpt.h"

namespace gpt2c::test {

class PipelineProof {
public:
  explicit PipelineProof(RandomGpt &g) : g_(g), before_(toText(g.function)) {}

  /// Runs the pipeline, without the passes of `disabled`; empty, or what differs first, with the
  /// graph as it was and as it is.
  std::string run(std::vector<std::string> disabled = {}) {
    for (Padding p : {Padding::None, Padding::Left, Padding::Holes})
      if (p == Padding::None || (g_.keyMask && !(p == Padding::Left && g_.mixesTokens())))
        if (std::string problem = addCase(p); !problem.empty())
          return problem;
    std::string problem;
    PipelineOptions options;
    options.verifyEach = true;
    options.disabled = std::move(disabled);
    options.afterPass = [&](const Pass &pass, const Module &m, double) {
      if (problem.empty())
        if (std::string p = compare(m); !p.empty())
          problem = "after " + pass.name.str() + ": " + p + "\nbefore: " + before_ +
                    "\nafter: " + text(m);
    };
    PassOptions passOptions;
    PassContext context(g_.module, passOptions, remarks);
    if (llvm::Error e = runPipeline(context, options))
      return llvm::toString(std::move(e)) + "\nbefore: " + before_;
    return problem;
  }

  std::vector<Remark> remarks;

private:
  enum class Padding { None, Left, Holes };

  /// One call of the exported graph, and what came of it.
  struct Case {
    llvm::StringMap<Tensor> inputs;
    std::vector<Tensor> expected;
    /// By how much each element of `expected` moves where weights are rounded.
    std::vector<std::vector<double>> rounding;
    int64_t pastCount = 0;
    Padding padding = Padding::None;
    /// Tokens whose logits mean something: [batch, seq].
    std::vector<bool> valid;
  };

  static constexpr int64_t batch = 3, seq = 4;

  static std::string text(const Module &m) {
    std::string out;
    llvm::raw_string_ostream os(out);
    print(m, os);
    return out;
  }

  std::string addCase(Padding padding) {
    Case c;
    c.padding = padding;
    c.pastCount = g_.past == RandomGpt::Past::None ? 0 : 3;
    int64_t total = c.pastCount + seq;
    Tensor mask(DType::I64, {batch, total}), ids(DType::I64, {batch, seq}),
        places(DType::I64, {batch, seq});
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < total; ++j)
        mask.data<int64_t>()[b * total + j] =
            padding == Padding::None || (padding == Padding::Left ? j >= b : j == 0 || (j + b) % 3);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t s = 0; s < seq; ++s) {
        int64_t before = 0;
        for (int64_t j = 0; j < c.pastCount + s; ++j)
          before += mask.asInt(b * total + j);
        ids.data<int64_t>()[b * seq + s] = int64_t(noise_() % uint64_t(g_.vocabulary));
        places.data<int64_t>()[b * seq + s] = before;
        c.valid.push_back(padding == Padding::Holes || mask.asInt(b * total + c.pastCount + s));
      }
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < g_.function.numArguments(); ++i) {
      const Value *a = g_.function.argument(i);
      Tensor t = a == g_.keyMask               ? mask.cast(a->type.dtype)
                 : a == g_.positionIds         ? places
                 : a->type.dtype == DType::I64 ? ids
                 : a->type.rank() == 4 ? random({batch, g_.heads, c.pastCount, g_.headDim()})
                                       : random({2, batch, g_.heads, c.pastCount, g_.headDim()});
      c.inputs[a->name] = t;
      arguments.push_back(t);
    }
    c.inputs["ids"] = ids;
    c.inputs["key_mask"] = mask;
    auto expected = Executor(g_.function, {.float64 = true}).run(arguments);
    if (!expected)
      return llvm::toString(expected.takeError()) + "\n" + before_;
    c.expected = *expected;
    for (const Tensor &t : c.expected)
      c.rounding.emplace_back(t.count());
    for (int i = 0; i < 4; ++i)
      if (llvm::Error e = measureRounding(c, arguments))
        return llvm::toString(std::move(e)) + "\n" + before_;
    cases_.push_back(std::move(c));
    return "";
  }

  /// Passes keep what they compute of weights in the weights' own precision. A norm of few elements
  /// that are nearly equal divides by almost nothing, and some of them behind each other make of
  /// such a rounding thousands of times as much.
  llvm::Error measureRounding(Case &c, llvm::ArrayRef<Tensor> arguments) {
    std::vector<std::pair<Op *, Tensor>> exact;
    for (auto &op : g_.function.ops())
      if (op->is(OpCode::Constant) && op->constant.dtype() == DType::F32 &&
          op->constant.count() > 1) {
        exact.emplace_back(op.get(), op->constant);
        Tensor rounded = op->constant.cast(DType::F64);
        for (int64_t j = 0; j < rounded.count(); ++j)
          rounded.data<double>()[j] *= 1 + (signs_() % 2 ? 0x1p-24 : -0x1p-24);
        op->constant = rounded;
      }
    auto results = Executor(g_.function, {.float64 = true}).run(arguments);
    for (auto &[op, constant] : exact)
      op->constant = constant;
    if (!results)
      return results.takeError();
    for (size_t i = 0; i < results->size(); ++i)
      for (int64_t j = 0; j < c.expected[i].count(); ++j)
        if (double d = std::abs((*results)[i].asDouble(j) - c.expected[i].asDouble(j));
            d > c.rounding[i][j])
          c.rounding[i][j] = d;
    return llvm::Error::success();
  }

  Tensor random(llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F64, shape);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<double>()[i] = double(noise_() % 4001) / 2000 - 1;
    return t;
  }

  //===-- calls -----------------------------------------------------------------------------===//

  /// The KV state with the past tensors in it, and room behind.
  Tensor state(const Case &c) const {
    constexpr int64_t slots = batch + 1;
    Tensor kv(DType::F64, {g_.layers, 2, slots, g_.heads, RandomGpt::positions, g_.headDim()});
    std::fill_n(kv.data<double>(), kv.count(), 0.25);
    for (int64_t layer = 0; layer < g_.layers && c.pastCount; ++layer)
      for (int64_t part : {0, 1})
        for (int64_t row = 0; row < batch * g_.heads; ++row)
          for (int64_t i = 0; i < c.pastCount * g_.headDim(); ++i) {
            std::string number = std::to_string(layer);
            bool pair = g_.past == RandomGpt::Past::Pair;
            const Tensor &from =
                pair ? c.inputs.lookup("past_key_values." + number + (part ? ".value" : ".key"))
                     : c.inputs.lookup("past_" + number);
            int64_t rows = batch * g_.heads, count = c.pastCount * g_.headDim();
            kv.data<double>()[(((layer * 2 + part) * slots * g_.heads) + row) *
                                  RandomGpt::positions * g_.headDim() +
                              i] = from.asDouble(((pair ? 0 : part) * rows + row) * count + i);
          }
    return kv;
  }

  static Tensor lengths(llvm::ArrayRef<int64_t> values) {
    return Tensor::of<int64_t>(values, {int64_t(values.size())}).cast(DType::I32);
  }

  static llvm::Expected<std::vector<Tensor>> call(const Function &f,
                                                  const llvm::StringMap<Tensor> &inputs) {
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < f.numArguments(); ++i) {
      auto it = inputs.find(f.argument(i)->name);
      if (it == inputs.end())
        return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                       "unknown argument " + f.argument(i)->name);
      DType wanted = f.argument(i)->type.dtype;
      arguments.push_back(isFloat(wanted) ? it->second : it->second.cast(wanted));
    }
    return Executor(f, {.float64 = true}).run(arguments);
  }

  static Tensor columns(const Tensor &ids, int64_t from, int64_t to) {
    Tensor t(DType::I64, {ids.dim(0), to - from});
    for (int64_t b = 0; b < ids.dim(0); ++b)
      for (int64_t s = from; s < to; ++s)
        t.data<int64_t>()[b * (to - from) + s - from] = ids.asInt(b * ids.dim(1) + s);
    return t;
  }

  //===-- comparisons -----------------------------------------------------------------------===//

  /// Where padding attends to nothing and no guard catches the NaN, the exported graph computes
  /// NaN for later layers too; that is not kept.
  static bool near(double is, const Case &c, size_t result, int64_t at) {
    const double was = c.expected[result].asDouble(at);
    return std::isnan(was) ||
           std::abs(is - was) <= 1e-5 * (1 + std::abs(was)) + 4 * c.rounding[result][at];
  }

  std::string compare(const Module &m) const {
    for (const Case &c : cases_) {
      const Function *forward = m.function("forward");
      std::string problem =
          forward ? compareForward(*forward, c) : compareGraph(*m.functions[0], c);
      if (problem.empty() && c.padding == Padding::None && m.function("decode"))
        problem = compareSteps(*m.function("prefill"), *m.function("decode"), c);
      if (!problem.empty())
        return problem + " (" + paddingName(c.padding) + ")";
    }
    return "";
  }

  static const char *paddingName(Padding p) {
    return p == Padding::None ? "no padding" : p == Padding::Left ? "left padding" : "holes";
  }

  /// The graph with its exported arguments and results.
  std::string compareGraph(const Function &f, const Case &c) const {
    auto actual = call(f, c.inputs);
    if (!actual)
      return llvm::toString(actual.takeError());
    if (std::string p = compareLogits(actual->front(), c); !p.empty())
      return p;
    // Keys and values of later layers depend on what padding attends to.
    for (size_t i = 1; i < actual->size() && c.padding != Padding::Left; ++i)
      for (int64_t j = 0; j < c.expected[i].count(); ++j)
        if (!near((*actual)[i].asDouble(j), c, i, j))
          return "result " + std::to_string(i) + " differs";
    return "";
  }

  std::string compareForward(const Function &f, const Case &c) const {
    llvm::StringMap<Tensor> inputs = c.inputs;
    inputs["kv"] = state(c);
    inputs["past"] = lengths(std::vector<int64_t>(batch, c.pastCount));
    auto actual = call(f, inputs);
    if (!actual)
      return "@forward: " + llvm::toString(actual.takeError());
    std::string p = compareLogits(actual->front(), c);
    return p.empty() ? p : "@forward: " + p;
  }

  std::string compareLogits(const Tensor &actual, const Case &c) const {
    const Tensor &expected = c.expected.front();
    if (actual.shape() != expected.shape())
      return "the logits have another shape";
    for (int64_t i = 0; i < expected.count(); ++i)
      if (c.valid[i / g_.vocabulary] && !near(actual.asDouble(i), c, 0, i))
        return "logit " + std::to_string(i) + " was " + std::to_string(expected.asDouble(i)) +
               ", is " + std::to_string(actual.asDouble(i));
    return "";
  }

  /// @prefill of prompts of different lengths, then @prefill of all but the last token and @decode
  /// of that.
  std::string compareSteps(const Function &prefill, const Function &decode, const Case &c) const {
    llvm::StringMap<Tensor> inputs;
    inputs["ids"] = c.inputs.lookup("ids");
    inputs["kv"] = state(c);
    inputs["past"] = lengths(std::vector<int64_t>(batch, c.pastCount));
    std::vector<int64_t> some;
    for (int64_t b = 0; b < batch; ++b)
      some.push_back(1 + (b + 1) % seq);
    inputs["length"] = lengths(some);
    auto first = call(prefill, inputs);
    if (!first)
      return "@prefill: " + llvm::toString(first.takeError());
    if (std::string p = compareRows((*first)[1], (*first)[0], c, some); !p.empty())
      return "@prefill: " + p;

    inputs["ids"] = columns(c.inputs.lookup("ids"), 0, seq - 1);
    inputs["kv"] = state(c);
    inputs["length"] = lengths(std::vector<int64_t>(batch, seq - 1));
    auto most = call(prefill, inputs);
    if (!most)
      return "@prefill: " + llvm::toString(most.takeError());
    inputs["ids"] = columns(c.inputs.lookup("ids"), seq - 1, seq);
    inputs["kv"] = (*most)[2];
    inputs["past"] = lengths(std::vector<int64_t>(batch, c.pastCount + seq - 1));
    auto last = call(decode, inputs);
    if (!last)
      return "@decode: " + llvm::toString(last.takeError());
    std::string p = compareRows((*last)[1], (*last)[0], c, std::vector<int64_t>(batch, seq));
    return p.empty() ? p : "@decode: " + p;
  }

  /// logits[b] against those that the exported graph has for token lengths[b] - 1, and `next` as
  /// their largest.
  std::string compareRows(const Tensor &logits, const Tensor &next, const Case &c,
                          llvm::ArrayRef<int64_t> lengths) const {
    int64_t n = g_.vocabulary;
    for (int64_t b = 0; b < batch; ++b) {
      int64_t row = b * seq + lengths[b] - 1, greedy = 0;
      for (int64_t i = 0; i < n; ++i) {
        double was = c.expected.front().asDouble(row * n + i), is = logits.asDouble(b * n + i);
        if (!near(is, c, 0, row * n + i))
          return "logit " + std::to_string(i) + " of sequence " + std::to_string(b) + " is " +
                 std::to_string(is) + ", should be " + std::to_string(was);
        if (is > logits.asDouble(b * n + greedy))
          greedy = i;
      }
      if (next.asInt(b) != greedy)
        return "the greedy token of sequence " + std::to_string(b) + " is " +
               std::to_string(next.asInt(b)) + ", should be " + std::to_string(greedy);
    }
    return "";
  }

  RandomGpt &g_;
  std::string before_;
  std::vector<Case> cases_;
  std::mt19937_64 noise_{7}, signs_{11};
};

} // namespace gpt2c::test
