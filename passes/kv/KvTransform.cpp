// kv-transform: from one graph, with or without past inputs, derive three functions over the same
// weights and one KV state
//   @forward(ids, [key_mask], [position_ids], [token_type_ids], kv, past) -> logits of every token,
//   or of the last one, as exported
//   @prefill(ids, kv, past, length) -> next, logits of each sequence's last token
//   @decode(ids[batch, 1], kv, past) -> next, logits
// where kv is the state T[layers, 2, slots, heads, context, head_dim], updated in place, and
// past[b] counts the tokens of sequence b that it holds already. Sequences of different lengths are
// padded on the right: a causal query never sees the padding, and the next append overwrites it, so
// @prefill and @decode need no mask. Token types are zeros there.
//
// A graph with an attention that was not recognised stays one function @forward without a KV state.
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/Ports.h"
#include "ir/ops/Common.h"
#include "passes/Rewrite.h"
#include "passes/kv/KvPorts.h"
#include "passes/kv/LastRows.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace gpt2c {

/// Whether `table` is one of rows, [.., C, D] with ones in front.
static bool isTable(const Value *table) {
  return table->type.rank() >= 2 && isFloat(table->type.dtype) && constantOp(table) &&
         constantOp(table)->constant.valid() &&
         llvm::all_of(llvm::ArrayRef<Dim>(table->type.shape).drop_back(2),
                      [](const Dim &d) { return d == Dim(1); });
}

/// `table` as [C, D].
static Value *rowsOf(Builder &b, Value *table) {
  if (table->type.rank() == 2)
    return table;
  const Tensor &t = constantOp(table)->constant;
  Value *rows = b.constant(t.reshaped(t.shape().take_back(2)));
  rows->name = table->name;
  return rows;
}

/// Rows of a table that are next to each other are read by position like any others, and tables
/// have no axes of one in front.
static std::vector<Rule> tableRules() {
  using P = Pattern;
  std::vector<Rule> rules;
  auto shaped = [](Builder &b, llvm::Expected<Value *> rows,
                   const Match &m) -> llvm::Expected<Value *> {
    const Shape &shape = m.root()->result()->type.shape;
    if (!rows || (*rows)->type.shape == shape)
      return rows;
    return b.value(OpCode::Reshape, {*rows}, {{"shape", Dims(shape.begin(), shape.end())}});
  };
  rules.push_back(
      {"rows-of-table", "table[from:to] = gather(table, from + 0, 1, 2, ...)",
       P::op(OpCode::Slice, {P::constant("table")}),
       [](const Match &m) {
         const Op &slice = *m.root();
         if (!isTable(m.value("table")))
           return false;
         auto only = [&](llvm::StringRef attr, const Dim &value) {
           return slice.hasAttr(attr) && slice.dimsAttr(attr).size() == 1 &&
                  slice.dimsAttr(attr)[0] == value;
         };
         const int64_t axis = int64_t(m.value("table")->type.rank()) - 2;
         return !slice.result()->type.shape[axis].isConstant() && slice.hasAttr("starts") &&
                slice.hasAttr("ends") && (only("axes", axis) || only("axes", -2)) &&
                (!slice.hasAttr("steps") || only("steps", 1));
       },
       [shaped](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         const Shape &shape = m.root()->result()->type.shape;
         Dim from = m.root()->dimsAttr("starts")[0];
         auto range = b.value(OpCode::Range, {},
                              {{"start", Dims{from}},
                               {"limit", Dims{from + shape[shape.size() - 2]}},
                               {"delta", Dims{1}}});
         if (!range)
           return range.takeError();
         return shaped(b, b.value(OpCode::Gather, {rowsOf(b, m.value("table")), *range}), m);
       }});
  rules.push_back(
      {"rows-of-one-table", "gather(table[1, C, D], i, axis 1) = gather(table[C, D], i)",
       P::op(OpCode::Gather, {P::constant("table"), P::any("i")}),
       [](const Match &m) {
         const int64_t rank = m.value("table")->type.rank(), axis = m.root()->intAttr("axis");
         return rank > 2 && isTable(m.value("table")) && (axis == rank - 2 || axis == -2);
       },
       [shaped](const Match &m, Builder &b) {
         return shaped(b, b.value(OpCode::Gather, {rowsOf(b, m.value("table")), m.value("i")}), m);
       }});
  return rules;
}

/// Bytes of a step of one token that a graph without a KV state spends on the tokens before it.
static Dim bytesOfRepetition(const Function &f) {
  Dim all;
  for (auto &op : f.ops())
    if (isLaunched(*op))
      all = all + leastBytes(*op);
  all = inStepSymbols(all, f);
  return all - all.substitute("seq", Dim(1));
}

/// Replaces the index of a position table by past + iota, and the table by its rows from that of
/// position 0 on.
static llvm::Error usePositions(Function &f, Op *gather, int64_t rowsInFront, Value *ids,
                                Value *past) {
  Builder b(f, gather);
  b.setLocations(gather->locations);
  auto positions = b.value(OpCode::Positions, {past}, {{"seq", Dims{ids->type.shape[1]}}});
  if (!positions)
    return positions.takeError();
  // [seq, D] as one sequence becomes all of them.
  auto isOneSequence = [&](const Op *op) {
    const Shape &rows = op->operand(0)->type.shape, &shape = op->result()->type.shape;
    return op->is(OpCode::Reshape) && rows.size() == 2 && shape.size() == 3 && shape[0] == Dim(1) &&
           llvm::ArrayRef(shape).drop_front() == llvm::ArrayRef(rows);
  };
  for (const Use &u : llvm::SmallVector<Use>(gather->result()->uses()))
    if (u.operand == 0 && isOneSequence(u.op))
      u.op->result()->replaceAllUsesWith(gather->result());
  gather->setOperand(ops::Gather::Indices, *positions);
  if (!rowsInFront)
    return llvm::Error::success();
  Value *table = gather->operand(ops::Gather::X);
  auto rows = b.create(
      OpCode::Slice, {table},
      {{"starts", Dims{rowsInFront}}, {"ends", Dims{table->type.shape[0]}}, {"axes", Dims{0}}});
  if (!rows)
    return rows.takeError();
  auto data = evaluateOp(**rows, {constantOp(table)->constant}, {});
  if (!data)
    return data.takeError();
  f.erase(*rows);
  Value *from = b.constant((*data)[0]);
  from->name = table->name;
  gather->setOperand(ops::Gather::X, from);
  return llvm::Error::success();
}

/// Attention becomes an append to the state and a read of it; the state is threaded through the
/// layers.
static llvm::Expected<Value *> cacheAttentions(Function &f, Value *kv, Value *past) {
  llvm::SmallVector<Op *> attentions;
  for (auto &op : f.ops())
    if (op->is(OpCode::Attention))
      attentions.push_back(op.get());
  const auto layers = stateLayers(attentions);
  for (auto [layer, a] : llvm::zip_equal(layers, attentions)) {
    Builder b(f, a);
    b.setLocations(a->locations);
    auto next = b.value(OpCode::KvAppend,
                        {kv, a->operand(ops::Attention::K), a->operand(ops::Attention::V), past},
                        {{"layer", layer}});
    if (!next)
      return next.takeError();
    kv = *next;
    llvm::SmallVector<NamedAttr> attrs{
        {"layer", layer}, {"num_heads", a->intAttr("num_heads")}, {"scale", a->floatAttr("scale")}};
    if (int64_t window = a->intAttr("window"))
      attrs.push_back({"window", window});
    if (double cap = a->floatAttr("soft_cap"); cap != 0)
      attrs.push_back({"soft_cap", cap});
    auto out = b.value(
        OpCode::CachedAttention,
        {a->operand(ops::Attention::Q), kv, past, a->operand(ops::Attention::KeyMask)}, attrs);
    if (!out)
      return out.takeError();
    a->result()->replaceAllUsesWith(*out);
  }
  f.eraseDeadOps();
  return kv;
}

static void setReturned(Function &f, llvm::ArrayRef<Value *> values,
                        std::vector<std::string> names) {
  f.terminator()->setOperands(values);
  f.resultNames = std::move(names);
  f.eraseDeadOps();
}

/// Removes arguments without uses whose names are not in `keep`.
static void dropArguments(Function &f, llvm::ArrayRef<llvm::StringRef> keep) {
  for (unsigned i = f.numArguments(); i-- > 0;)
    if (f.argument(i)->uses().empty() && !llvm::is_contained(keep, f.argument(i)->name))
      f.eraseArgument(i);
}

/// Token types become zeros.
static llvm::Error useTypesZero(Function &f) {
  Value *types = f.argument("token_type_ids");
  if (!types || types->uses().empty())
    return llvm::Error::success();
  Builder b(f, f.ops().front().get());
  Value *zero = b.constant(Tensor::zeros(types->type.dtype, {}));
  const Shape &shape = types->type.shape;
  auto zeros = b.value(OpCode::Expand, {zero}, {{"shape", Dims(shape.begin(), shape.end())}});
  if (!zeros)
    return zeros.takeError();
  types->replaceAllUsesWith(*zeros);
  return llvm::Error::success();
}

/// @prefill from @forward: positions from past, no masks, the head on the last tokens, the greedy
/// choice.
static llvm::Error makePrefill(Module &m, Function &forward, const KvInterface &io,
                               unsigned logitsIndex) {
  llvm::DenseMap<Value *, Value *> copies;
  auto owned = forward.clone(functions::prefill, &copies);
  Function &f = *owned;
  m.functions.push_back(std::move(owned));
  Value *ids = f.argument("ids"), *past = f.argument("past");
  for (auto &op : f.ops())
    if (op->is(OpCode::CachedAttention) && op->operand(ops::CachedAttention::KeyMask))
      op->setOperand(ops::CachedAttention::KeyMask, nullptr);
  for (auto &op : forward.ops()) {
    Op *g = llvm::is_contained(io.positionGathers, op.get()) ? copies.lookup(op->result())->def()
                                                             : nullptr;
    const Op *index = g ? g->operand(ops::Gather::Indices)->def() : nullptr;
    if (g && (!index || !index->is(OpCode::Positions)))
      if (llvm::Error e = usePositions(f, g, io.rowsInFront.lookup(op.get()), ids, past))
        return e;
  }
  if (llvm::Error e = useTypesZero(f))
    return e;
  Value *length = f.addArgument(Type{DType::I32, {past->type.shape[0]}}, "length");
  Op *takesLast = io.lastToken ? copies.lookup(io.lastToken->result())->def() : nullptr;
  auto last = lastLogits(f, f.returned()[logitsIndex], takesLast, length);
  if (!last)
    return last.takeError();
  Value *kv = f.returned().back();
  Builder b(f, f.terminator());
  // Columns that no token has are never chosen.
  if ((*last)->type.shape.back() != Dim(io.vocabulary))
    last = b.value(OpCode::Slice, {*last},
                   {{"starts", Dims{0}}, {"ends", Dims{io.vocabulary}}, {"axes", Dims{-1}}});
  if (!last)
    return last.takeError();
  auto next = b.value(OpCode::ArgMax, {*last},
                      {{"axis", int64_t(-1)}, {"keepdims", false}, {"dtype", DType::I32}});
  if (!next)
    return next.takeError();
  setReturned(f, {*next, *last, kv}, {"next", "logits", "kv"});
  dropArguments(f, {"ids", "kv", "past", "length"});
  if (llvm::Error e = f.inferTypes())
    return e;
  return sinkLastRows(f, /*belowSums=*/false);
}

/// @decode from @prefill: one token per sequence.
static llvm::Error makeDecode(Module &m, Function &prefill, const Dim &seq) {
  auto owned = prefill.clone(functions::decode);
  Function &f = *owned;
  m.functions.push_back(std::move(owned));
  if (auto symbol = seq.asSymbol())
    f.substitute(*symbol, Dim(1));
  for (auto &op : f.ops())
    if (op->is(OpCode::GatherLast)) {
      Builder b(f, op.get());
      const Shape &s = op->result()->type.shape;
      auto row = b.value(OpCode::Reshape, {op->operand(ops::GatherLast::X)},
                         {{"shape", Dims(s.begin(), s.end())}});
      if (!row)
        return row.takeError();
      op->result()->replaceAllUsesWith(*row);
    }
  f.eraseDeadOps();
  dropArguments(f, {"ids", "kv", "past"});
  return f.inferTypes();
}

static llvm::Error makeFunctions(PassContext &ctx, Function &f, KvInterface &io) {
  Op *first = io.attentions[0];
  int64_t headDim =
      *first->operand(ops::Attention::Q)->type.shape[2].constant() / first->intAttr("num_heads");
  int64_t heads = *first->operand(ops::Attention::K)->type.shape[2].constant() / headDim;
  int64_t context = ctx.options().maxContext ? ctx.options().maxContext : io.positions;
  if (io.positions && context > io.positions)
    return makeError(ExitCode::Usage, "a context of " + llvm::Twine(context) +
                                          " tokens was asked for, the model has " +
                                          llvm::Twine(io.positions) + " positions");
  nameSymbols(f, io);
  Dim batch = io.ids->type.shape[0], seq = io.ids->type.shape[1];

  // Positions that follow from shapes are taken from `past` from here on; those given as input or
  // computed from the mask stay in @forward.
  llvm::SmallVector<Op *> computed;
  for (Op *g : io.positionGathers) {
    BackwardSlice s =
        backwardSlice(g->operand(ops::Gather::Indices), [](Value *) { return false; });
    if (s.leaves.empty()) // kvObstacle has proven them
      computed.push_back(g);
  }

  f.setName(functions::forward);
  if (llvm::Error e = nameArguments(f, io))
    return e;
  const auto layers = stateLayers(io.attentions);
  Type state{ctx.options().precision,
             {Dim(*llvm::max_element(layers) + 1), Dim(2), Dim::symbol("slots"), Dim(heads),
              Dim(context), Dim(headDim)}};
  Value *kv = f.addArgument(state, "kv"), *past = f.addArgument(Type{DType::I32, {batch}}, "past");
  for (Op *g : computed)
    if (llvm::Error e = usePositions(f, g, io.rowsInFront.lookup(g), io.ids, past))
      return e;

  std::vector<Value *> kept;
  std::vector<std::string> names;
  std::optional<unsigned> logits;
  for (auto [i, p] : llvm::enumerate(io.outputs)) {
    if (p.role == "present")
      continue;
    if (int(i) == io.logits)
      logits = kept.size();
    kept.push_back(f.returned()[i]);
    names.push_back(p.role == "logits" ? "logits" : p.port.empty() ? p.name : p.port);
  }
  setReturned(f, kept, names);
  auto updated = cacheAttentions(f, kv, past);
  if (!updated)
    return updated.takeError();
  kept.assign(f.returned().begin(), f.returned().end());
  kept.push_back(*updated);
  names.push_back("kv");
  setReturned(f, kept, names);
  dropArguments(f, {"ids", "key_mask", "position_ids", "token_type_ids", "kv", "past"});
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (isFloat(f.argument(i)->type.dtype) && f.argument(i)->name != "kv")
      return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                     "input '" + f.argument(i)->name +
                                         "' is used by more than the attention's past");
  if (llvm::Error e = f.inferTypes())
    return e;

  if (!logits) {
    if (io.logitsDoubt.empty())
      ctx.note("the graph has no head over the vocabulary: only @forward is made, it cannot "
               "generate text");
    return llvm::Error::success();
  }
  if (!seq.asSymbol()) {
    ctx.note("the graph's ids have a fixed length: only @forward is made, it cannot generate text");
    return llvm::Error::success();
  }
  if (llvm::Error e = makePrefill(ctx.module(), f, io, *logits))
    return e;
  Function &prefill = *ctx.module().function(functions::prefill);
  if (llvm::Error e = makeDecode(ctx.module(), prefill, seq))
    return e;
  return sinkLastRows(prefill, /*belowSums=*/true); // in @decode there would be nothing to gain
}

/// What @generation tells of past and present tensors of the graph that it was made from, and of
/// logits, of which the graph may have any number of rows.
static void takeStateRoles(KvInterface &exported, const KvInterface &generation) {
  for (auto [to, from] :
       {std::pair{&exported.inputs, &generation.inputs}, {&exported.outputs, &generation.outputs}})
    for (ExportedPort &p : *to) {
      auto same = llvm::find_if(*from, [&](const ExportedPort &g) { return g.name == p.name; });
      if (same == from->end() || (same->role != "past" && same->role != "present"))
        continue;
      p.role = same->role;
      p.layer = same->layer;
      p.part = same->part;
    }
  if (exported.logits >= 0 || generation.logits < 0 || generation.addsLogits)
    return;
  for (auto [i, p] : llvm::enumerate(exported.outputs))
    if (p.name == generation.outputs[generation.logits].name) {
      p.role = "logits";
      exported.logits = int(i);
    }
}

/// @generation becomes @prefill and @decode; its own @forward goes, the exported graph is @forward.
static llvm::Error makeGeneration(PassContext &ctx, Function &generation, KvInterface &io,
                                  Function &exported, KvInterface &exportedIo) {
  Module &m = ctx.module();
  if (llvm::Error e = makeFunctions(ctx, generation, io))
    return e;
  llvm::erase_if(m.functions, [&](auto &f) { return f.get() == &generation; });
  return keepGraph(exported, exportedIo);
}

/// The type with the fewest digits among the floating-point ones of 32 bits and less.
static DType narrowestOf(const Function &f) {
  DType out = DType::F32;
  for (auto &op : f.ops())
    for (const Value *v : op->results())
      if (v->type.dtype == DType::BF16 || (v->type.dtype == DType::F16 && out == DType::F32))
        out = v->type.dtype;
  return out;
}

llvm::Error kvTransform(PassContext &ctx) {
  Module &m = ctx.module();
  Function *generation = m.function(functions::generation);
  if (m.functions.size() != (generation ? 2 : 1) || m.function(functions::forward))
    return llvm::Error::success(); // done before
  Function &exported = *m.functions.front(), &f = generation ? *generation : exported;
  if (auto n = applyRules(f, tableRules()); !n)
    return n.takeError();
  KvInterface exportedIo = findKvInterface(exported);
  addLogits(exported, exportedIo);
  KvInterface io = exportedIo;
  if (generation) {
    io = findKvInterface(f);
    addLogits(f, io);
    takeStateRoles(exportedIo, io);
  }
  renamePlainPorts(exported, exportedIo);
  setExportedPrecision(m, narrowestOf(exported));
  setExportedPorts(m, exportedIo.inputs,
                   llvm::ArrayRef(exportedIo.outputs).drop_back(exportedIo.addsLogits));
  if (!generation)
    io = exportedIo;
  notePorts(ctx, f, io);
  if (ctx.options().level == 0) {
    ctx.note("the graph runs as it was exported, without a KV state: every step runs all of it")
        .of("kv");
    return keepGraph(exported, exportedIo);
  }
  if (!io.ids && io.attentions.empty()) {
    ctx.note("the graph is no language model: it runs as it is, without a KV state").of("kv");
    return keepGraph(exported, exportedIo);
  }
  if (auto why = kvObstacle(f, io, ctx.options().maxContext)) {
    auto nodes = why->op ? llvm::ArrayRef(why->op->locations) : llvm::ArrayRef<llvm::StringRef>();
    ctx.missed("kv: the graph gets no KV state, since " + why->reason +
                   "; every step runs the whole graph",
               nodes)
        .of("kv")
        .stoppedBy(*why)
        .bytes = bytesOfRepetition(f);
    if (generation)
      m.functions.pop_back();
    return keepGraph(exported, exportedIo);
  }
  return generation ? makeGeneration(ctx, f, io, exported, exportedIo) : makeFunctions(ctx, f, io);
}

} // namespace gpt2c
