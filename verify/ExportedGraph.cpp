#include "verify/ExportedGraph.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "verify/RoundedGraph.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace gpt2c {

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

int64_t GraphCall::pastTokens() const { return past.empty() ? unknownPast : past[0].dim(-2); }

/// Keys and values have at least the axes sequence, head, token and column.
static bool mayBePast(const Value &argument, const ExportedPort *port) {
  return (!port || (port->role == "plain" && port->port.empty())) && isFloat(argument.type.dtype) &&
         argument.type.rank() >= 4;
}

static bool copies(const Op &op, unsigned operand) {
  const bool casts = op.is(OpCode::Cast) && op.result()->type.dtype != DType::Bool;
  return operand == 0 && (casts || op.info().has(DataMovement));
}

/// The fewest rows of a constant table that copies of `index` read; 0: they read none.
static int64_t rowsReadBy(const Value &index) {
  int64_t rows = 0;
  llvm::SmallVector<const Value *> work{&index};
  llvm::DenseSet<const Value *> seen;
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    for (const Use &u : v->uses()) {
      if (copies(*u.op, u.operand))
        work.push_back(u.op->result());
      const Value *table = u.op->operand(0);
      if (!u.op->is(OpCode::Gather) || u.operand != ops::Gather::Indices ||
          table->type.rank() < 2 || !isFloat(table->type.dtype))
        continue;
      if (auto n = table->type.shape[u.op->intAttr("axis")].constant())
        rows = rows ? std::min(rows, *n) : *n;
    }
  }
  return rows;
}

/// The fewest rows of a table that is read by something else than `ids`.
static int64_t rowsOfPositions(const Function &f, const Value *ids) {
  llvm::DenseSet<const Value *> copied;
  if (ids)
    copied.insert(ids);
  int64_t rows = 0;
  for (auto &op : f.ops()) {
    if (op->numOperands() && copied.contains(op->operand(0)) && copies(*op, 0))
      copied.insert(op->result());
    if (!op->is(OpCode::Gather) || copied.contains(op->operand(ops::Gather::Indices)) ||
        op->intAttr("axis") != 0)
      continue;
    const Value *table = op->operand(ops::Gather::X);
    if (!table->def() || !table->def()->is(OpCode::Constant) || table->type.rank() != 2 ||
        !isFloat(table->type.dtype))
      continue;
    int64_t n = table->type.shape[0].constant().value_or(0);
    rows = rows ? std::min(rows, n) : n;
  }
  return rows;
}

llvm::Expected<ExportedGraph> ExportedGraph::of(const Function &function, const Module &ports) {
  ExportedGraph g;
  g.function_ = &function;
  auto inputs = exportedInputs(ports);
  if (!inputs)
    return inputs.takeError();
  auto outputs = exportedOutputs(ports);
  if (!outputs)
    return outputs.takeError();
  g.inputs_ = std::move(*inputs);
  g.outputs_ = std::move(*outputs);
  g.mask_ = wholeMask(ports);
  g.given_ = givenInputsOf(ports);
  auto known = [&](const ExportedPort &p) { return function.argument(p.name) != nullptr; };
  if (g.outputs_.size() != function.returned().size() || !llvm::all_of(g.inputs_, known))
    return makeError(ExitCode::Quality,
                     "the plan was made from another graph: its inputs or outputs are others");
  // A mask that no recognised attention reads is known by its name alone, which is enough to give
  // it the length of the keys.
  auto isMask = [&](const ExportedPort &p) {
    const Value *a = function.argument(p.name);
    return p.role == "plain" && llvm::StringRef(p.name).contains("mask") && a->type.rank() == 2;
  };
  if (!g.has("key_mask") && llvm::count_if(g.inputs_, isMask) == 1)
    llvm::find_if(g.inputs_, isMask)->role = "key_mask";
  const Value *ids = g.argument("ids");
  if (ids)
    g.vocabulary_ = rowsReadBy(*ids);
  int logits = g.logits();
  if (!g.vocabulary_ && logits >= 0 && function.returned()[logits]->type.rank() > 0)
    g.vocabulary_ = function.returned()[logits]->type.shape.back().constant().value_or(0);
  g.positions_ = rowsOfPositions(function, ids);
  g.learnSymbols(ports);
  auto isHalf = [](const Value *v) {
    return v->type.dtype == DType::F16 || v->type.dtype == DType::BF16;
  };
  for (auto &op : function.ops())
    g.half_ |= llvm::any_of(op->results(), isHalf);
  return g;
}

/// Sizes that the graph's inputs leave open and the compiler found: of @forward's arguments, and of
/// past tensors from a KV state [layers, 2, slots, heads, context, head_dim].
void ExportedGraph::learnSymbols(const Module &plan) {
  auto learn = [&](const Dim &open, const Dim &found) {
    if (auto symbol = open.asSymbol())
      if (auto value = found.constant())
        known_.try_emplace(*symbol, *value);
  };
  const Value *kv = nullptr;
  for (auto &f : plan.functions)
    if (!kv)
      kv = f->argument("kv");
  const Function *forward = plan.function(functions::forward);
  for (const ExportedPort &p : inputs_) {
    const Shape &shape = function_->argument(p.name)->type.shape;
    if (p.role == "past" && kv && kv->type.rank() == 6 && isFloat(kv->type.dtype) &&
        shape.size() >= 4) {
      learn(shape[shape.size() - 3], kv->type.shape[3]);
      learn(shape.back(), kv->type.shape[5]);
    }
    const Value *same = forward ? forward->argument(p.port.empty() ? p.name : p.port) : nullptr;
    if (same && same->type.rank() == shape.size())
      for (auto [open, found] : llvm::zip_equal(shape, same->type.shape))
        learn(open, found);
  }
}

const Value *ExportedGraph::argument(llvm::StringRef role) const {
  for (const ExportedPort &p : inputs_)
    if (p.role == role)
      return function_->argument(p.name);
  return nullptr;
}

int ExportedGraph::output(llvm::StringRef role) const {
  for (auto [i, p] : llvm::enumerate(outputs_))
    if (p.role == role && i < function_->returned().size())
      return int(i);
  return -1;
}

int ExportedGraph::logits() const {
  for (auto [i, p] : llvm::enumerate(outputs_))
    if (p.role == "logits" || isProbabilities(p))
      return int(i);
  return -1;
}

Tensor ExportedGraph::asGiven(const Tensor &logits) const {
  const int output = this->logits();
  if (output < 0 || !isProbabilities(outputs_[output]))
    return logits;
  const bool logarithms = outputs_[output].role == "log_probabilities";
  const int64_t width = logits.dim(-1);
  Tensor out(DType::F64, logits.shape());
  logits.load(0, {out.data<double>(), size_t(out.count())});
  for (double *row = out.data<double>(), *end = row + out.count(); row != end; row += width) {
    const double largest = *std::max_element(row, row + width);
    double sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += std::exp(row[i] - largest);
    for (int64_t i = 0; i < width; ++i)
      row[i] = logarithms ? row[i] - largest - std::log(sum) : std::exp(row[i] - largest) / sum;
  }
  return out;
}

int64_t ExportedGraph::fixed(unsigned axis) const {
  const Value *ids = argument("ids");
  return ids && ids->type.rank() == 2 ? ids->type.shape[axis].constant().value_or(0) : 0;
}

const ExportedPort *ExportedGraph::port(const Value &argument) const {
  auto it = llvm::find_if(inputs_, [&](const ExportedPort &p) { return p.name == argument.name; });
  return it == inputs_.end() ? nullptr : &*it;
}

bool ExportedGraph::hasUnknownPast() const {
  const Value *ids = argument("ids");
  for (unsigned i = 0; ids && i < function_->numArguments(); ++i) {
    const Value &a = *function_->argument(i);
    auto isOwn = [&](const Dim &d) {
      return d.asSymbol() && !llvm::is_contained(ids->type.shape, d);
    };
    if (mayBePast(a, port(a)) && llvm::any_of(a.type.shape, isOwn))
      return true;
  }
  return false;
}

/// Whether a size is a symbol that no input has.
bool ExportedGraph::countsNothingGiven(const Dim &size) const {
  auto symbol = size.asSymbol();
  auto uses = [&](unsigned i) {
    return llvm::any_of(function_->argument(i)->type.shape,
                        [&](const Dim &d) { return d.uses(*symbol); });
  };
  return symbol && llvm::none_of(llvm::seq(function_->numArguments()), uses);
}

bool ExportedGraph::hasRows() const {
  int logits = this->logits();
  const Value *ids = argument("ids");
  if (logits < 0 || !ids || ids->type.rank() != 2)
    return false;
  const Type &type = function_->returned()[logits]->type;
  // As many rows as an input asks for, which is one.
  if (!given_.empty() && type.rank() == 3 && countsNothingGiven(type.shape[1]))
    return false;
  return type.rank() == 3 && (fixedLength() == 1 || type.shape[1] != Dim(1));
}

/// Numbers for an input whose meaning is not known.
static Tensor plainNumbers(DType dtype, llvm::ArrayRef<int64_t> shape) {
  Tensor out(DType::F32, shape);
  std::mt19937 random(1);
  float *to = out.data<float>();
  for (int64_t i = 0; i < out.count(); ++i) {
    double u = (double(random()) + 1) / 4294967297.0, v = double(random()) / 4294967296.0;
    to[i] = isFloat(dtype) ? float(std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v))
                           : float(v < 0.5);
  }
  return out.cast(dtype);
}

static Tensor table(llvm::ArrayRef<int64_t> shape,
                    llvm::function_ref<int64_t(int64_t row, int64_t column)> f) {
  Tensor out(DType::I64, shape);
  for (int64_t i = 0; i < out.count(); ++i)
    out.data<int64_t>()[i] = f(i / shape[1], i % shape[1]);
  return out;
}

/// Of queries that come behind `before` keys.
static Tensor causalMask(llvm::ArrayRef<int64_t> shape, int64_t before, const WholeMask &mask) {
  Tensor out(DType::F64, shape);
  const int64_t keys = shape.back(), queries = shape[shape.size() - 2];
  const bool forAll = shape.size() > 2 && queries == 1; // of whom the last sees all
  for (int64_t i = 0; i < out.count(); ++i)
    out.data<double>()[i] =
        forAll || i % keys <= before + i / keys % queries ? mask.keep : mask.hide;
  return out;
}

/// The shape of an argument: what symbols do not say is `unknown`.
static llvm::SmallVector<int64_t, 4> shapeOf(const Type &type, SymbolMap &symbols,
                                             int64_t unknown) {
  llvm::SmallVector<int64_t, 4> shape;
  for (const Dim &d : type.shape) {
    if (auto symbol = d.asSymbol())
      symbols.try_emplace(*symbol, unknown);
    shape.push_back(d.evaluate(symbols).value_or(unknown));
  }
  return shape;
}

llvm::Expected<Tensor> ExportedGraph::argument(const Value &a, const ExportedPort *port,
                                               const GraphCall &call, SymbolMap &symbols,
                                               unsigned &past) const {
  llvm::StringRef role = port ? llvm::StringRef(port->role) : "plain";
  const int64_t batch = call.batch(), tokens = call.tokens(), before = call.pastTokens();
  const DType dtype = a.type.dtype;
  if ((role == "ids" || role == "key_mask" || role == "position_ids") && a.type.rank() != 2)
    return failure("input '" + a.name + "' is " + a.type.str() + ", not a row for each sequence");
  if (role == "ids")
    return table({batch, tokens}, [&](int64_t b, int64_t t) { return call.texts[b][t]; })
        .cast(dtype);
  if (role == "key_mask")
    return table({batch, before + tokens},
                 [&](int64_t b, int64_t t) {
                   return call.hidden.empty() ? 1 : int64_t(!call.hidden[b][t]);
                 })
        .cast(dtype);
  if (role == "position_ids") {
    int64_t rows = a.type.shape[0].constant().value_or(batch);
    return table({rows, tokens},
                 [&](int64_t b, int64_t t) {
                   return call.positions.empty() ? before + t : call.positions[b][t];
                 })
        .cast(dtype);
  }
  if (role == "past") {
    if (past < call.past.size())
      return call.past[past++].cast(dtype);
    return Tensor::zeros(dtype, shapeOf(a.type, symbols, 0));
  }
  if (mask_ && mask_->name == a.name) {
    auto shape = shapeOf(a.type, symbols, before + tokens);
    const int64_t keys = shape.back();
    return causalMask(shape, keys - tokens, *mask_).cast(dtype);
  }
  for (const GivenInput &given : given_)
    if (given.name == a.name) {
      Tensor out(DType::I64, shapeOf(a.type, symbols, tokens));
      for (int64_t i = 0; i < out.count(); ++i)
        out.data<int64_t>()[i] = given.kind == GivenInput::Kind::One    ? 1
                                 : given.kind == GivenInput::Kind::Past ? before
                                                                        : before + i;
      return out.cast(dtype);
    }
  // Types of tokens are zeros unless given, and @prefill and @decode have no other.
  if (port && port->port == "token_type_ids")
    return Tensor::zeros(dtype, shapeOf(a.type, symbols, tokens));
  // A vector of whole numbers is one for each token.
  const int64_t size =
      a.type.rank() == 1 && isInteger(dtype) ? tokens : std::max<int64_t>(tokens, 2);
  auto shape = shapeOf(a.type, symbols, mayBePast(a, port) ? before : size);
  int64_t elements = 1;
  for (int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements) || elements > (int64_t(1) << 28))
      return failure("input '" + a.name + "' of type " + a.type.str() + " is too large to fill");
  return plainNumbers(dtype, shape);
}

llvm::Expected<std::vector<Tensor>> ExportedGraph::arguments(const GraphCall &call) const {
  SymbolMap symbols = known_;
  if (const Value *ids = argument("ids"); ids && ids->type.rank() == 2) {
    auto bound = bindShape(ids->type.shape, {call.batch(), call.tokens()}, symbols, "the ids");
    if (!bound)
      return bound.takeError();
  }
  unsigned past = 0;
  std::vector<Tensor> out;
  for (unsigned i = 0; i < function_->numArguments(); ++i) {
    const Value &a = *function_->argument(i);
    auto value = argument(a, port(a), call, symbols, past);
    if (!value)
      return value.takeError();
    out.push_back(std::move(*value));
  }
  return out;
}

llvm::Expected<SymbolMap> ExportedGraph::symbols(llvm::ArrayRef<Tensor> arguments) const {
  SymbolMap symbols;
  for (int round = 0; round < 2; ++round)
    for (auto [i, t] : llvm::enumerate(arguments)) {
      const Value &a = *function_->argument(i);
      auto bound = bindShape(a.type.shape, t.shape(), symbols, "input '" + a.name + "'");
      if (!bound)
        return bound.takeError();
    }
  return symbols;
}

ExecOptions ExportedGraph::execution(Arithmetic arithmetic) const {
  ExecOptions options;
  const bool moved = arithmetic == Arithmetic::Moved || arithmetic == Arithmetic::MovedOtherwise;
  options.float64 =
      moved || arithmetic == Arithmetic::Double || (arithmetic == Arithmetic::Usual && half_);
  options.roundingSeed = moved ? uint64_t(arithmetic) : 0;
  return options;
}

llvm::Expected<std::vector<Tensor>> ExportedGraph::run(llvm::ArrayRef<Tensor> arguments,
                                                       Arithmetic arithmetic) const {
  const bool rounds = arithmetic == Arithmetic::Rounded;
  return Executor(rounds ? *rounded_ : *function_, execution(arithmetic)).run(arguments);
}

llvm::Error ExportedGraph::roundTo(DType type) {
  llvm::SmallVector<const Value *> data;
  for (unsigned i = 0; i < function_->numArguments(); ++i) {
    const Value *a = function_->argument(i);
    if (a == argument("ids") || isFloat(a->type.dtype))
      data.push_back(a);
  }
  auto rounded = roundedGraph(*function_, data, type);
  if (!rounded)
    return rounded.takeError();
  rounded_ = std::move(*rounded);
  return llvm::Error::success();
}

TokenIds ExportedGraph::text(int64_t tokens, uint64_t seed) const {
  std::mt19937_64 random(seed);
  const uint64_t vocabulary = vocabulary_ ? uint64_t(vocabulary_) : 2;
  TokenIds out;
  for (int64_t i = 0; i < tokens; ++i) {
    uint64_t kind = random() % 16, pick = random();
    if (kind < 3 && i > 0)
      out.push_back(out[pick % uint64_t(i)]);
    else
      out.push_back(int32_t(pick % vocabulary));
  }
  if (tokens > 4)
    out[2] = 0;
  if (tokens > 8)
    out[6] = int32_t(vocabulary - 1);
  if (tokens > 12 && vocabulary > 2)
    out[10] = int32_t(vocabulary - 2);
  return out;
}

} // namespace gpt2c
