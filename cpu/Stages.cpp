#include "cpu/Stages.h"

#include "ir/Error.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

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
    size_t place;  ///< of its first op
    Value *handed; ///< what the layers in front of it made; null: more than one value
    Value *state;  ///< the KV state behind those layers
  };
  /// Of any layer but the first.
  Start startOf(int64_t layer) const {
    const size_t append = appends_[size_t(layer)];
    Start start{append, nullptr, ops_[append]->operand(0)};
    for (; start.place > appends_[size_t(layer) - 1]; --start.place)
      if ((start.handed = crossing(start.place, start.state)))
        break;
    return start;
  }

private:
  /// The one value that ops from `place` on take from before, of those that ids, and not sizes and
  /// positions alone, decide; null: there is none but the state, or more.
  Value *crossing(size_t place, const Value *state) const {
    llvm::DenseSet<Value *> found;
    for (size_t i = place; i < ops_.size(); ++i)
      for (Value *v : ops_[i]->operands())
        if (v && v != state && v->def() && place_.lookup(v->def()) < place && made_.count(v))
          found.insert(v);
    return found.size() == 1 ? *found.begin() : nullptr;
  }

  std::vector<Op *> ops_;
  std::vector<size_t> appends_; ///< one of each layer
  llvm::DenseMap<const Op *, size_t> place_;
  llvm::DenseSet<const Value *> made_; ///< of embeddings and states
};

} // namespace

/// Cuts so that no stage has more than `most`; empty: it cannot be.
static std::vector<int64_t> dealWithin(llvm::ArrayRef<int64_t> bytes, int64_t stages,
                                       int64_t most) {
  std::vector<int64_t> cuts;
  const auto layers = int64_t(bytes.size());
  int64_t sum = 0;
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t cutsLeft = stages - 1 - int64_t(cuts.size()), own = bytes[size_t(l)];
    // A stage ends where it is full, or where each layer that is left has to be a stage.
    if (l > 0 && cutsLeft > 0 && (sum + own > most || layers - l <= cutsLeft)) {
      cuts.push_back(l);
      sum = 0;
    }
    sum += own;
    if (sum > most)
      return {};
  }
  return cuts;
}

std::vector<int64_t> dealLayers(llvm::ArrayRef<int64_t> bytes, int64_t stages) {
  if (stages == 1)
    return {};
  int64_t low = 0, high = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (dealWithin(bytes, stages, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return dealWithin(bytes, stages, high);
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
          if (v && v->def() && v->def()->is(OpCode::Constant))
            bytes[size_t(layer)] += int64_t(v->def()->constant.bytes());
  }
  return dealLayers(bytes, stages);
}

llvm::Expected<StagedFunction> StagedFunction::create(const Function &f,
                                                      llvm::ArrayRef<int64_t> cuts) {
  StagedFunction out;
  out.f_ = &f;
  const Layers layers(f);
  for (const int64_t layer : cuts) {
    if (layer < 1 || layer >= layers.count())
      return makeError(ExitCode::Unsupported,
                       "@" + f.name() + " has other layers than the stages are cut by");
    const Layers::Start start = layers.startOf(layer);
    if (!start.handed)
      return makeError(ExitCode::Unsupported, "@" + f.name() + " cannot be cut in front of layer " +
                                                  llvm::Twine(layer) +
                                                  ": more than one value crosses there");
    out.cuts_.push_back({start.handed, start.state});
  }
  return out;
}

llvm::Error broadcast(Group &group, int from, llvm::MutableArrayRef<char> mine) {
  std::vector<char> all(mine.size() * size_t(group.size()));
  if (llvm::Error e = group.gather(mine, all))
    return e;
  std::copy_n(all.begin() + int64_t(mine.size()) * from, mine.size(), mine.begin());
  return llvm::Error::success();
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

static llvm::MutableArrayRef<char> bytesOf(Tensor &t) {
  return {static_cast<char *>(t.raw()), t.bytes()};
}

llvm::Expected<std::vector<Tensor>> StagedFunction::run(Executor &executor,
                                                        llvm::ArrayRef<Tensor> arguments,
                                                        SymbolMap symbols, Group &group) const {
  Executor::Bindings bound;
  Tensor state;
  for (int round = 0; round < 2; ++round)
    for (auto [i, t] : llvm::enumerate(arguments)) {
      const Value *a = f_->argument(unsigned(i));
      if (auto ok = bindShape(a->type.shape, t.shape(), symbols, a->name); !ok)
        return ok.takeError();
      bound[a] = t;
      if (a->name == "kv")
        state = t;
    }
  const int mine = group.rank(), last = int(cuts_.size());
  std::vector<Tensor> results;
  for (int stage = 0; stage <= last; ++stage) {
    Tensor handed;
    if (stage == mine) {
      llvm::SmallVector<Value *> wanted;
      if (stage < last)
        wanted.push_back(cuts_[size_t(stage)].handed);
      else
        wanted.append(f_->returned().begin(), f_->returned().end());
      auto values = executor.evaluate(wanted, bound, symbols);
      if (!values)
        return values.takeError();
      if (stage < last)
        handed = std::move(values->front());
      else
        results = std::move(*values);
    }
    if (stage == last)
      break;
    // What was computed may lie in memory that others share.
    const Value &v = *cuts_[size_t(stage)].handed;
    auto whole = emptyOf(v, symbols);
    if (!whole)
      return whole.takeError();
    if (stage == mine)
      std::copy_n(static_cast<const char *>(handed.raw()), handed.bytes(),
                  static_cast<char *>(whole->raw()));
    if (llvm::Error e = broadcast(group, stage, bytesOf(*whole)))
      return e;
    if (mine == stage + 1) {
      bound[&v] = std::move(*whole);
      bound[cuts_[size_t(stage)].state] = state;
    }
  }
  std::vector<Tensor> out;
  for (auto [i, v] : llvm::enumerate(f_->returned())) {
    if (v->type.rank() == 6) { // the state, of which every rank has its own
      out.push_back(state);
      continue;
    }
    auto whole = emptyOf(*v, symbols);
    if (!whole)
      return whole.takeError();
    if (mine == last)
      std::copy_n(static_cast<const char *>(results[i].raw()), results[i].bytes(),
                  static_cast<char *>(whole->raw()));
    if (llvm::Error e = broadcast(group, last, bytesOf(*whole)))
      return e;
    out.push_back(std::move(*whole));
  }
  return out;
}

} // namespace gpt2c
