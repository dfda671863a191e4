#include "codegen/StepBuilder.h"

#include "codegen/Grid.h"
#include "codegen/KernelCall.h"
#include "ir/Calculate.h"
#include "ir/Error.h"
#include "ir/ResultNumber.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PrefixTiles.h"
#include "runtime/sampling/SampledChoice.h"
#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

namespace gpt2c {

static plan::DType planType(DType t) {
  static_assert(int(DType::Bool) == int(plan::DType::Bool) &&
                int(DType::I32) == int(plan::DType::I32) &&
                int(DType::F64) == int(plan::DType::F64));
  return static_cast<plan::DType>(t);
}

//===-- values -------------------------------------------------------------------------------===//

Value *StepBuilder::resolve(Value *v) const {
  for (auto it = aliases_.find(v); it != aliases_.end(); it = aliases_.find(v))
    v = it->second;
  return v;
}

void StepBuilder::alias(Value *v, Value *of) { aliases_[v] = of; }

static plan::ArgT pointer(plan::ArgKind kind, int index) {
  plan::ArgT a;
  a.kind = kind;
  a.index = index;
  return a;
}

llvm::Expected<plan::ArgT> StepBuilder::read(Value *v) {
  if (!v)
    return null();
  v = resolve(v);
  if (v->def() && v->def()->is(OpCode::Constant))
    return pool_.address(v->def()->constant);
  auto it = places_.find(v);
  if (it == places_.end())
    return makeError(ExitCode::Unsupported, "a step reads a value that no step wrote: " +
                                                (v->def() ? v->def()->describe() : v->name));
  return pointer(it->second.kind, it->second.index);
}

plan::ArgT StepBuilder::rowSums(const Value *w, const Value *factors, const Value *scales,
                                const Value *zeros) {
  auto constant = [](const Value *v) { return v ? &v->def()->constant : nullptr; };
  return pool_.address(
      pool_.sumsOf(*constant(w), constant(factors), constant(scales), constant(zeros)));
}

plan::ArgT StepBuilder::derived(llvm::StringRef what, llvm::ArrayRef<const Value *> of,
                                llvm::function_ref<Tensor()> make) {
  llvm::SmallVector<const Tensor *> tensors;
  for (const Value *v : of)
    tensors.push_back(&v->def()->constant);
  assert(llvm::none_of(tensors, [&](const Tensor *t) { return pool_.partOf(*t); }) &&
         "no kernel of one rank's weights derives others from them");
  return pointer(plan::ArgKind::Weight, pool_.derived(what, tensors, make));
}

int StepBuilder::addBuffer(std::string name, plan::DType dtype, llvm::ArrayRef<Dim> shape) {
  auto buffer = std::make_unique<plan::BufferT>();
  buffer->name = std::move(name);
  buffer->dtype = dtype;
  int64_t bytes = int64_t(rt::dtypeBytes(dtype));
  for (const Dim &d : shape) {
    const int64_t most = maximum(d);
    plan::ExprT size = sizeExpr(d);
    if (readersRange(size).hi > most)
      size = minExpr(size, rt::constantExpr(most));
    buffer->shape.push_back(std::make_unique<plan::ExprT>(std::move(size)));
    bytes = saturatingMultiply(bytes, most);
  }
  buffer->bytes = bytes;
  buffer->first_step = buffer->last_step = out_.steps.size();
  out_.buffers.push_back(std::move(buffer));
  return int(out_.buffers.size()) - 1;
}

llvm::Expected<plan::ArgT> StepBuilder::write(Value *v) {
  if (!places_.count(v)) {
    int buffer = addBuffer(v->name, planType(v->type.dtype), v->type.shape);
    out_.buffers[buffer]->value = v->def() ? resultNumber(*v) : -1;
    places_[v] = {plan::ArgKind::Buffer, buffer};
  }
  return read(v);
}

plan::ArgT StepBuilder::temporary(llvm::StringRef name, plan::DType dtype, int64_t count) {
  return pointer(plan::ArgKind::Buffer, addBuffer(name.str(), dtype, {Dim(count)}));
}

plan::ArgT StepBuilder::addStatistics(Value *v, const Dim &rows, const RowStatistics &statistics) {
  const int buffer = addBuffer(v->name.empty() ? "" : v->name + ".statistics", plan::DType::F32,
                               {Dim(statistics.parts), rows, Dim(2)});
  statistics_[v] = buffer;
  return pointer(plan::ArgKind::Buffer, buffer);
}

plan::ArgT StepBuilder::statistics(Value *v) const {
  auto it = statistics_.find(resolve(v));
  assert(it != statistics_.end() && "the kernel before has left them");
  return pointer(plan::ArgKind::Buffer, it->second);
}

plan::ArgT StepBuilder::null() { return pointer(plan::ArgKind::Null, 0); }
plan::ArgT StepBuilder::exchange(int64_t bytes) {
  return pointer(plan::ArgKind::Exchange, int(bytes));
}

plan::ArgT StepBuilder::exchangeOfShared(bool orCut) {
  return pointer(plan::ArgKind::Exchange, orCut ? -2 : -1);
}

plan::ArgT StepBuilder::f32(float value) {
  plan::ArgT a;
  a.kind = plan::ArgKind::F32;
  a.f32 = value;
  return a;
}

plan::ArgT StepBuilder::tensorMap(plan::ArgT pointer, const Dim &rows, int64_t columns, int boxRows,
                                  const Dim *matrices) {
  pointer.map = std::make_unique<plan::TensorMapT>();
  pointer.map->rows = std::make_unique<plan::ExprT>(sizeExpr(rows));
  pointer.map->columns = columns;
  pointer.map->box_rows = boxRows;
  if (matrices)
    pointer.map->matrices = std::make_unique<plan::ExprT>(sizeExpr(*matrices));
  return pointer;
}

plan::ArgT StepBuilder::i32(const Dim &d) {
  plan::ArgT a;
  a.kind = plan::ArgKind::I32;
  a.expr = std::make_unique<plan::ExprT>(expr(d));
  return a;
}

plan::ArgT StepBuilder::sharedScratch(llvm::StringRef key, int64_t bytes) {
  auto &[at, size] = scratch_[key];
  if (size < bytes) { // or there is none yet
    at = int(out_.scratch_bytes);
    size = bytes;
    out_.scratch_bytes += (bytes + 255) / 256 * 256;
  }
  return pointer(plan::ArgKind::Scratch, at);
}

//===-- expressions --------------------------------------------------------------------------===//

plan::ExprT StepBuilder::expr(const Dim &d) {
  return calculate(d, rt::ExprAlgebra{[&](llvm::StringRef s) {
                     auto it = llvm::find_if(out_.symbols,
                                             [&](auto &symbol) { return symbol->name == s; });
                     if (it == out_.symbols.end()) {
                       auto symbol = std::make_unique<plan::SymbolT>();
                       auto [lo, hi] = boundsOf(bounds_, s);
                       symbol->name = s.str();
                       symbol->min = lo;
                       symbol->max = hi;
                       out_.symbols.push_back(std::move(symbol));
                       it = std::prev(out_.symbols.end());
                     }
                     return int(std::distance(out_.symbols.begin(), it));
                   }});
}

plan::ExprT StepBuilder::sizeExpr(const Dim &d) {
  plan::ExprT size = expr(d);
  return readersRange(size).lo >= 0 ? size : maxExpr(size, rt::constantExpr(0));
}

rt::Range StepBuilder::readersRange(const plan::ExprT &e) const {
  std::vector<rt::Range> symbols;
  for (const auto &s : out_.symbols)
    symbols.push_back({s->min, s->max});
  auto range = rt::exprRange(e, symbols);
  return range ? *range : rt::Range{INT64_MIN, INT64_MAX};
}

void StepBuilder::addLimits() {
  for (const DimBounds::Limit &limit : limits_.limits()) {
    bool told = true; // by the arguments
    limit.sum.forEachSymbol([&](llvm::StringRef s) {
      told &= llvm::any_of(out_.symbols, [&](auto &symbol) { return symbol->name == s; });
    });
    if (limit.sum.asSymbol() || !told)
      continue;
    auto added = std::make_unique<plan::SumLimitT>();
    added->sum = std::make_unique<plan::ExprT>(expr(limit.sum));
    added->most = limit.most;
    if (readersRange(*added->sum).hi > limit.most)
      out_.limits.push_back(std::move(added));
  }
}

//===-- steps --------------------------------------------------------------------------------===//

void StepBuilder::launch(llvm::ArrayRef<llvm::StringRef> nodes, llvm::StringRef what,
                         KernelSource kernel, const Args &args,
                         const std::array<plan::ExprT, 3> &grid, const Dim &bytes,
                         const Dim &flops) {
  auto step = std::make_unique<plan::StepT>();
  step->op = what.str();
  step->mode = pool_.launchMode;
  for (const plan::ExprT &e : grid)
    step->grid.push_back(std::make_unique<plan::ExprT>(e));
  step->block = {kernel.threads, 1, 1};
  step->shared_bytes = kernel.sharedBytes;
  int index = out_.steps.size();
  for (const std::string &name : kernel.params) {
    auto it = args.find(name);
    assert(it != args.end() && "every kernel parameter has an argument");
    auto arg = std::make_unique<plan::ArgT>(it->second);
    if (arg->kind == plan::ArgKind::Buffer)
      out_.buffers[arg->index]->last_step = index;
    if (arg->kind == plan::ArgKind::Output)
      outputs_[arg->index] |= arg->map || !llvm::is_contained(kernel.optional, name);
    // Products fetch their weights before they wait for the steps before them.
    if ((name == "w" || name == "wMap") && arg->kind != plan::ArgKind::Weight &&
        arg->kind != plan::ArgKind::WeightPart)
      step->mode = plan::LaunchMode::Launch;
    step->args.push_back(std::move(arg));
  }
  for (llvm::StringRef n : nodes)
    step->nodes.push_back(n.str());
  step->bytes = std::make_unique<plan::ExprT>(sizeExpr(bytes));
  step->flops = std::make_unique<plan::ExprT>(sizeExpr(flops));
  step->kernel = pool_.kernel(std::move(kernel));
  if (choice_) {
    step->choice_key = std::move(choice_->key);
    step->choice = std::move(choice_->name);
    step->sum_order = std::move(choice_->sumOrder);
    choice_.reset();
  }
  out_.steps.push_back(std::move(step));
}

void StepBuilder::addPastCosts(const Dim &bytes, const Dim &flops) {
  out_.steps.back()->past_bytes = std::make_unique<plan::ExprT>(sizeExpr(bytes));
  out_.steps.back()->past_flops = std::make_unique<plan::ExprT>(sizeExpr(flops));
}

/// Port of an argument or result of a function, its role by the names that the KV transform gives.
static plan::PortT portOf(llvm::StringRef name, const Type &type,
                          llvm::function_ref<plan::ExprT(const Dim &)> size) {
  plan::PortT port;
  port.name = name.str();
  port.dtype = port.exported_dtype = planType(type.dtype);
  for (const Dim &d : type.shape)
    port.shape.push_back(std::make_unique<plan::ExprT>(size(d)));
  static const std::pair<const char *, plan::Role> roles[] = {
      {"ids", plan::Role::Ids},
      {"past", plan::Role::Past},
      {"length", plan::Role::Length},
      {"key_mask", plan::Role::KeyMask},
      {"position_ids", plan::Role::PositionIds},
      {"kv", plan::Role::KvState},
      {"logits", plan::Role::Logits},
      {"next", plan::Role::NextToken}};
  for (auto [n, role] : roles)
    if (name == n)
      port.role = role;
  return port;
}

void StepBuilder::usePages(const Function &extend) {
  const Type &kv = extend.argument("kv")->type, &tables = extend.argument("tables")->type;
  pages_ = {*kv.shape[4].constant(), kv.shape[1], *tables.shape[1].constant(), kv, -1};
}

plan::ArgT StepBuilder::tables() const { return pointer(plan::ArgKind::Input, pages_->input); }

void StepBuilder::addInputs(const Function &f) {
  limits_ = f.limits;
  auto add = [&](llvm::StringRef name, const Type &type) {
    const bool paged = pages_ && name == "kv";
    out_.inputs.push_back(std::make_unique<plan::PortT>(
        portOf(name, paged ? pages_->kv : type, [&](const Dim &d) { return expr(d); })));
  };
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    places_[a] = {plan::ArgKind::Input, int(i)};
    add(a->name, a->type);
  }
  if (!pages_)
    return;
  pages_->input = int(out_.inputs.size());
  add("tables", {DType::I32, {Dim::symbol("batch"), Dim(pages_->columns)}});
}

int StepBuilder::addInput(llvm::StringRef name, llvm::ArrayRef<Dim> shape) {
  auto port = std::make_unique<plan::PortT>();
  port->name = name.str();
  port->dtype = port->exported_dtype = plan::DType::I32;
  for (const Dim &d : shape)
    port->shape.push_back(std::make_unique<plan::ExprT>(expr(d)));
  out_.inputs.push_back(std::move(port));
  return int(out_.inputs.size()) - 1;
}

plan::ArgT StepBuilder::choices() {
  if (!drawnRows_)
    return null();
  if (choicesInput_ < 0)
    choicesInput_ = addInput("choices", {*drawnRows_, Dim(rt::sampleRowWords)});
  return pointer(plan::ArgKind::Input, choicesInput_);
}

std::optional<StepBuilder::Prefixes> StepBuilder::prefixes(const Dim &of, int members) {
  if (!prefixes_) {
    const Dim count = Dim::symbol(rt::ports::prefixTiles);
    bounds_[rt::ports::prefixTiles] = {0, maximum(of) + rt::mostPrefixParts};
    const int sequences = addInput(rt::ports::prefixes, {of, Dim(2)});
    const int tiles = addInput(rt::ports::prefixTiles, {count, Dim(rt::prefixTileHead + members)});
    prefixes_ = {pointer(plan::ArgKind::Input, sequences), pointer(plan::ArgKind::Input, tiles),
                 count, members};
  }
  return prefixes_->members == members ? prefixes_ : std::nullopt;
}

void StepBuilder::addOutputs(const Function &f) {
  for (auto [i, v] : llvm::enumerate(f.returned())) {
    llvm::StringRef name = i < f.resultNames.size() ? llvm::StringRef(f.resultNames[i]) : "";
    const bool paged = pages_ && name == "kv";
    out_.outputs.push_back(std::make_unique<plan::PortT>(
        portOf(name, paged ? pages_->kv : v->type, [&](const Dim &d) { return sizeExpr(d); })));
  }
}

bool StepBuilder::mayOverwrite(Value *v) const {
  auto it = places_.find(resolve(v));
  if (it == places_.end())
    return false;
  return it->second.kind != plan::ArgKind::Input ||
         out_.inputs[it->second.index]->role == plan::Role::KvState;
}

/// Results that no step computed into their output, such as an argument that is handed on or a
/// value that is returned twice, are copied there.
llvm::Error StepBuilder::copyOutputs(const Function &f) {
  for (auto [i, v] : llvm::enumerate(f.returned())) {
    if (out_.outputs[i]->role == plan::Role::KvState)
      continue;
    auto from = read(v);
    if (!from)
      return from.takeError();
    if (from->kind == plan::ArgKind::Output && from->index == int(i))
      continue;
    Dim count = elementCount(v->type.shape);
    llvm::ArrayRef<llvm::StringRef> nodes;
    if (v->def())
      nodes = v->def()->locations;
    if (llvm::Error e =
            launchCopy(*this, "copy", nodes, v->type.dtype, {{count}, {{Dim(1)}, {Dim(1)}}},
                       pointer(plan::ArgKind::Output, i), std::move(from), rt::constantExpr(0),
                       rt::constantExpr(0)))
      return e;
  }
  return llvm::Error::success();
}

llvm::Error StepBuilder::build(Function &f, const Schedule &schedule, Emission emit) {
  limits_ = f.limits;
  addInputs(f);
  addOutputs(f);
  addLimits();
  for (auto [i, returned] : llvm::enumerate(f.returned())) {
    Value *v = returned;
    // Computed straight into the output; the KV state is updated where it is.
    while (v->def() && isView(*v->def()))
      v = v->def()->operand(0);
    bool inPlace = out_.outputs[i]->role == plan::Role::KvState;
    if (!inPlace && v->def() && !v->def()->is(OpCode::Constant) && !places_.count(v))
      places_[v] = {plan::ArgKind::Output, int(i)};
  }
  for (const Group &group : schedule.groups) {
    const size_t before = out_.buffers.size();
    if (llvm::Error e = emit(*this, group))
      return e;
    for (auto &buffer : llvm::drop_begin(out_.buffers, before))
      buffer->whole_step = std::max(buffer->first_step, int(out_.steps.size()) - 1);
  }
  if (llvm::Error e = copyOutputs(f))
    return e;
  for (auto [output, needed] : outputs_)
    out_.outputs[output]->optional = !needed;
  planMemory();
  return llvm::Error::success();
}

/// Offsets by first fit over the buffers in order of size: two buffers share bytes only when no
/// step needs both.
void StepBuilder::planMemory() {
  constexpr uint64_t alignment = 256;
  std::vector<plan::BufferT *> placed;
  std::vector<size_t> order(out_.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::sort(order, [&](size_t a, size_t b) {
    uint64_t bytesA = out_.buffers[a]->bytes, bytesB = out_.buffers[b]->bytes;
    return bytesA != bytesB ? bytesA > bytesB : a < b;
  });
  for (size_t i : order) {
    plan::BufferT *b = out_.buffers[i].get();
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (plan::BufferT *p : placed)
      if (p->first_step <= b->last_step && b->first_step <= p->last_step)
        taken.push_back({p->offset, p->offset + p->bytes});
    llvm::sort(taken);
    uint64_t at = 0;
    for (auto [begin, end] : taken) {
      if (at + b->bytes <= begin)
        break;
      at = std::max(at, (end + alignment - 1) / alignment * alignment);
    }
    b->offset = at;
    placed.push_back(b);
    out_.arena_bytes = std::max(out_.arena_bytes, at + b->bytes);
  }
}

} // namespace gpt2c
