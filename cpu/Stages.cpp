#include "cpu/Stages.h"

#include "cpu/RankModule.h"
#include "ir/Error.h"
#include "runtime/group/StageCuts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>

namespace gpt2c {

namespace {

/// Where layers begin among the ops of a function.
class Layers {
public:
  explicit Layers(const Function &f) {
    for (auto &op : f.ops()) {
      const bool appends =
          op->is(OpCode::AppendAttention) || op->is(OpCode::QuantizedAppendAttention);
      if (appends)
        appends_.push_back(ops_.size());
      if (appends || op->is(OpCode::Embed) ||
          llvm::any_of(op->operands(), [&](Value *v) { return v && made_.count(v); }))
        for (Value *v : op->results())
          made_.insert(v);
      place_[op.get()] = ops_.size();
      ops_.push_back(op.get());
    }
  }

  int64_t count() const { return int64_t(appends_.size()); }
  llvm::ArrayRef<Op *> ops() const { return ops_; }

  struct Start {
    size_t place;                         ///< of its first op
    llvm::SmallVector<Value *, 2> handed; ///< what the layers in front of it made
    Value *state;                         ///< the KV state behind those layers
  };
  /// Of any layer but the first: where fewest values cross, as near to its state as can be.
  Start startOf(int64_t layer) const {
    const size_t append = appends_[size_t(layer)];
    Start best{append, {}, ops_[append]->operand(0)};
    for (size_t place = append; place > appends_[size_t(layer) - 1]; --place) {
      llvm::SmallVector<Value *, 2> handed = crossing(place, best.state);
      if (handed.empty() || (!best.handed.empty() && handed.size() >= best.handed.size()))
        continue;
      best.place = place;
      best.handed = std::move(handed);
      if (best.handed.size() == 1)
        break;
    }
    return best;
  }

private:
  /// What ops from `place` on take from before but the state, of the values that ids, and not sizes
  /// and positions alone, decide.
  llvm::SmallVector<Value *, 2> crossing(size_t place, const Value *state) const {
    llvm::SmallSetVector<Value *, 4> found;
    for (size_t i = place; i < ops_.size(); ++i)
      for (Value *v : ops_[i]->operands())
        if (v && v != state && v->def() && place_.lookup(v->def()) < place && made_.count(v))
          found.insert(v);
    return {found.begin(), found.end()};
  }

  std::vector<Op *> ops_;
  std::vector<size_t> appends_; ///< one of each layer
  llvm::DenseMap<const Op *, size_t> place_;
  llvm::DenseSet<const Value *> made_; ///< of embeddings and states
};

} // namespace

/// What an op reads of a weight, of a rank its part.
static int64_t weightBytes(const Value *v) {
  if (!v || !v->def())
    return 0;
  const Op &op = *v->def();
  if (op.is(OpCode::Constant))
    return int64_t(op.constant.bytes());
  if (!op.is(OpCode::RankPart) || weightBytes(op.operand(0)) == 0)
    return 0;
  int64_t count = 1;
  for (const Dim &d : v->type.shape)
    count *= d.constant().value_or(0);
  return count * int64_t(byteSize(v->type.dtype));
}

llvm::Expected<std::vector<int64_t>> cutLayers(const Function &f, int64_t stages) {
  const Layers layers(f);
  if (layers.count() < stages)
    return makeError(ExitCode::Unsupported, "@" + f.name() + " has " + llvm::Twine(layers.count()) +
                                                " layers with a KV state, too few for " +
                                                llvm::Twine(stages) + " stages");
  std::vector<int64_t> bytes(size_t(layers.count()));
  for (int64_t layer = 0; layer < layers.count(); ++layer) {
    const size_t begin = layer ? layers.startOf(layer).place : 0,
                 end = layer + 1 < layers.count() ? layers.startOf(layer + 1).place
                                                  : layers.ops().size();
    for (const Op *op : layers.ops().slice(begin, end - begin))
      if (!op->is(OpCode::Embed)) // which reads some rows alone
        for (const Value *v : op->operands())
          bytes[size_t(layer)] += weightBytes(v);
  }
  return rt::dealLayers(bytes, stages);
}

llvm::Expected<StagedFunction> StagedFunction::create(const Function &f,
                                                      llvm::ArrayRef<int64_t> cuts, int stage) {
  StagedFunction out;
  out.f_ = &f;
  out.stage_ = stage;
  const Layers layers(f);
  for (const int64_t layer : cuts) {
    if (layer < 1 || layer >= layers.count())
      return makeError(ExitCode::Unsupported,
                       "@" + f.name() + " has other layers than the stages are cut by");
    Layers::Start start = layers.startOf(layer);
    if (start.handed.empty())
      return makeError(ExitCode::Unsupported, "@" + f.name() + " cannot be cut in front of layer " +
                                                  llvm::Twine(layer) +
                                                  ": no value is handed on there");
    out.cuts_.push_back({std::move(start.handed), start.state});
  }
  out.findMine();
  return out;
}

/// What the stage computes: what it hands on, or the results.
llvm::SmallVector<Value *> StagedFunction::wanted() const {
  llvm::SmallVector<Value *> out;
  if (size_t(stage_) < cuts_.size())
    llvm::append_range(out, cuts_[size_t(stage_)].handed);
  else
    llvm::append_range(out, f_->returned());
  return out;
}

/// All ops behind what is handed to the stage and in front of what it wants.
void StagedFunction::findMine() {
  llvm::DenseSet<const Value *> given;
  if (stage_ > 0) {
    const Cut &before = cuts_[size_t(stage_) - 1];
    given.insert(before.handed.begin(), before.handed.end());
    given.insert(before.state);
  }
  llvm::SmallVector<Value *> open = wanted();
  while (!open.empty()) {
    const Value *v = open.pop_back_val();
    if (v && v->def() && !given.count(v) && mine_.insert(v->def()).second)
      llvm::append_range(open, v->def()->operands());
  }
}

/// A tensor of the value's type at these symbols.
static llvm::Expected<Tensor> emptyOf(const Value &v, const SymbolMap &symbols) {
  std::vector<int64_t> shape;
  for (const Dim &d : v.type.shape) {
    auto size = d.evaluate(symbols);
    if (!size)
      return makeError(ExitCode::Unsupported,
                       "stages cannot hand on a value whose size depends on data");
    shape.push_back(*size);
  }
  return Tensor::zeros(v.type.dtype, shape);
}

static llvm::Error sendTo(rt::RankLink &link, int rank, const Tensor &t) {
  return toError(link.send(rank, {static_cast<const std::byte *>(t.raw()), t.bytes()}));
}

static llvm::Expected<Tensor> receiveFrom(rt::RankLink &link, int rank, const Value &v,
                                          const SymbolMap &symbols) {
  auto t = emptyOf(v, symbols);
  if (!t)
    return t;
  if (llvm::Error e = toError(link.receive(rank, {static_cast<std::byte *>(t->raw()), t->bytes()})))
    return e;
  return t;
}

static bool isState(const Value &v) { return v.type.rank() == 6; }

/// Takes what is handed to the stage, and hands on what it made of it: the last one its results to
/// all that stand in the same place of another.
llvm::Error StagedFunction::runOne(Executor &executor, const Run &run, rt::RankLink &link,
                                   std::vector<Tensor> &results, SymbolMap &symbols) const {
  Executor::Bindings bound;
  Tensor state;
  symbols = run.symbols;
  for (int round = 0; round < 2; ++round)
    for (auto [i, t] : llvm::enumerate(run.arguments)) {
      const Value *a = f_->argument(unsigned(i));
      if (auto ok = bindShape(a->type.shape, t.shape(), symbols, a->name); !ok)
        return ok.takeError();
      bound[a] = t;
      if (a->name == "kv")
        state = t;
    }
  const int team = link.teamSize();
  if (stage_ > 0) {
    const Cut &before = cuts_[size_t(stage_) - 1];
    bound[before.state] = state;
    for (const Value *v : before.handed) {
      auto given = receiveFrom(link, link.rank() - team, *v, symbols);
      if (!given)
        return given.takeError();
      bound[v] = std::move(*given);
    }
  }
  auto values = executor.evaluate(wanted(), bound, symbols);
  if (!values)
    return values.takeError();
  if (size_t(stage_) < cuts_.size()) {
    for (const Tensor &t : *values)
      if (llvm::Error e = sendTo(link, link.rank() + team, t))
        return e;
    return llvm::Error::success();
  }
  for (auto [t, v] : llvm::zip(*values, f_->returned()))
    for (int to = link.placeInTeam(); !isState(*v) && to < link.rank(); to += team)
      if (llvm::Error e = sendTo(link, to, t))
        return e;
  results = std::move(*values);
  return llvm::Error::success();
}

llvm::Expected<std::vector<std::vector<Tensor>>>
StagedFunction::run(Executor &executor, llvm::ArrayRef<Run> runs, rt::RankLink &link) const {
  std::vector<std::vector<Tensor>> out(runs.size());
  std::vector<SymbolMap> symbols(runs.size());
  for (size_t i = 0; i < runs.size(); ++i)
    if (llvm::Error e = runOne(executor, runs[i], link, out[i], symbols[i]))
      return e;
  const int last = link.size() - link.teamSize() + link.placeInTeam();
  for (size_t i = 0; i < runs.size() && link.rank() != last; ++i)
    for (const Value *v : f_->returned()) {
      if (isState(*v)) { // of which every rank has its own
        out[i].emplace_back();
        continue;
      }
      auto result = receiveFrom(link, last, *v, symbols[i]);
      if (!result)
        return result.takeError();
      out[i].push_back(std::move(*result));
    }
  return out;
}

} // namespace gpt2c
