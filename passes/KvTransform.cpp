// kv-transform: from one graph, with or without past inputs, derive three functions over the same
// weights and one KV state
//   @forward(ids, [key_mask], [position_ids], kv, past)  -> logits of every token: the exported
//   graph's meaning
//   @prefill(ids, kv, past, length)                      -> next, logits of each sequence's last
//   token
//   @decode(ids[batch, 1], kv, past)                     -> next, logits
// where kv is the state T[layers, 2, slots, heads, context, head_dim], updated in place, and
// past[b] counts the tokens of sequence b that it holds already. Sequences of different lengths are
// padded on the right: a causal query never sees the padding, and the next append overwrites it, so
// @prefill and @decode need no mask.
//
// A graph with an attention that was not recognised stays one function @forward without a KV state.
#include "ir/Error.h"
#include "ir/Ports.h"
#include "ir/ops/Common.h"
#include "passes/AttentionProbe.h"
#include "passes/TokenWise.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

/// What the exported graph's arguments and results are.
struct Interface {
  Value *ids = nullptr, *keyMask = nullptr, *positionIds = nullptr;
  llvm::SmallVector<Op *> attentions; // in layer order
  llvm::SmallVector<Op *> tokenGathers, positionGathers;
  int64_t positions = 0, vocabulary = 0;
  int logits = -1; // result index; -1: the graph has no head
  std::vector<ExportedPort> inputs, outputs;
};

} // namespace

/// The argument that `v` is a copy of (through casts and reshapes); null when it is computed.
static Value *copiedArgument(Value *v) {
  while (v->def() && (v->def()->is(OpCode::Cast) || v->def()->is(OpCode::Reshape)))
    v = v->def()->operand(0);
  return v->def() ? nullptr : v;
}

/// The argument, given in any type, that tells `attention` which keys count; null when there is
/// none.
static Value *keyMaskOf(const Op &attention) {
  Value *mask = attention.operand(5);
  if (mask && mask->def() && mask->def()->is(OpCode::Cast))
    mask = mask->def()->operand(0);
  return mask && !mask->def() ? mask : nullptr;
}

/// Rows of a table that are next to each other are read by position like any others.
static std::vector<Rule> tableRules() {
  using P = Pattern;
  std::vector<Rule> rules;
  rules.push_back({"rows-of-table", "table[from:to] = gather(table, from + 0, 1, 2, ...)",
                   P::op(OpCode::Slice, {P::constant("table")}),
                   [](const Match &m) {
                     const Op &slice = *m.root();
                     auto only = [&](llvm::StringRef attr, const Dim &value) {
                       return slice.hasAttr(attr) && slice.dimsAttr(attr).size() == 1 &&
                              slice.dimsAttr(attr)[0] == value;
                     };
                     const Type &rows = slice.result()->type;
                     return m.value("table")->type.rank() == 2 && isFloat(rows.dtype) &&
                            !rows.shape[0].isConstant() && slice.hasAttr("starts") &&
                            slice.hasAttr("ends") && (only("axes", 0) || only("axes", -2)) &&
                            (!slice.hasAttr("steps") || only("steps", 1));
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     Dim from = m.root()->dimsAttr("starts")[0];
                     auto range =
                         b.value(OpCode::Range, {},
                                 {{"start", Dims{from}},
                                  {"limit", Dims{from + m.root()->result()->type.shape[0]}},
                                  {"delta", Dims{1}}});
                     if (!range)
                       return range.takeError();
                     return b.value(OpCode::Gather, {m.value("table"), *range});
                   }});
  return rules;
}

static void findEmbeddings(Function &f, Interface &io) {
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::Gather) || !constantOp(op->operand(0)) ||
        op->operand(0)->type.rank() != 2 || op->intAttr("axis") != 0 ||
        !isFloat(op->result()->type.dtype))
      continue;
    Value *index = copiedArgument(op->operand(1));
    int64_t rows = *op->operand(0)->type.shape[0].constant();
    // Token ids are the first integer argument that indexes a table directly; other tables hold
    // positions.
    bool first = index && index->type.rank() == 2 && (!io.ids || io.ids == index) &&
                 (index->index() == 0 || llvm::StringRef(index->name).contains("id")) &&
                 !llvm::StringRef(index->name).contains("pos");
    if (first) {
      io.ids = index;
      io.vocabulary = rows;
      io.tokenGathers.push_back(op.get());
    } else {
      io.positionGathers.push_back(op.get());
      io.positions = rows;
      if (index)
        io.positionIds = index;
    }
  }
}

/// Which part of which layer's KV state a result of the graph is.
static bool classifyPresent(Function &f, Interface &io, unsigned index, ExportedPort &port) {
  Value *v = f.returned()[index];
  auto sameHeads = [&](const HeadLayout &l, const Op &attention, unsigned operand) {
    Value *x = attention.operand(operand);
    Value *source = x->def() && x->def()->is(OpCode::Slice) ? x->def()->operand(0) : x;
    int64_t offset = source == x ? 0 : *x->def()->dimsAttr("starts")[0].constant();
    return l.source == source && l.offset == offset && l.factor == 1;
  };
  Obstacle why;
  if (v->type.rank() == 4) {
    auto l = probeHeads(f, v, false, why);
    for (auto [layer, attention] : llvm::enumerate(io.attentions))
      for (unsigned operand : {1u, 2u})
        if (l && sameHeads(*l, *attention, operand)) {
          port.role = "present";
          port.layer = layer;
          port.part = operand == 1 ? "key" : "value";
          return true;
        }
    return false;
  }
  if (v->type.rank() != 5 || v->type.shape[0] != Dim(2))
    return false;
  // [2, b, h, t, d]: both halves, as slices made for the probe alone.
  Builder b(f, f.terminator());
  unsigned found = 0;
  int layer = -1;
  for (int64_t part : {0, 1}) {
    auto half = b.value(OpCode::Slice, {v},
                        {{"starts", Dims{part}}, {"ends", Dims{part + 1}}, {"axes", Dims{0}}});
    if (!half) {
      llvm::consumeError(half.takeError());
      break;
    }
    Shape s((*half)->type.shape.begin() + 1, (*half)->type.shape.end());
    auto flat = b.value(OpCode::Reshape, {*half}, {{"shape", Dims(s.begin(), s.end())}});
    if (!flat) {
      llvm::consumeError(flat.takeError());
      break;
    }
    auto l = probeHeads(f, *flat, false, why);
    for (auto [i, attention] : llvm::enumerate(io.attentions))
      if (l && (layer < 0 || layer == int(i)) && sameHeads(*l, *attention, 1 + part)) {
        layer = i;
        ++found;
        break;
      }
  }
  for (Op *op : llvm::reverse(b.created()))
    f.erase(op);
  if (found != 2)
    return false;
  port.role = "present";
  port.layer = layer;
  port.part = "both";
  return true;
}

static void describePorts(Function &f, Interface &io) {
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    ExportedPort p{a->name, "plain", -1, "", a->type.dtype};
    if (a == io.ids)
      p.role = "ids";
    else if (a == io.keyMask)
      p.role = "key_mask";
    else if (a == io.positionIds)
      p.role = "position_ids";
    for (auto [layer, attention] : llvm::enumerate(io.attentions))
      for (unsigned operand : {3u, 4u}) {
        Value *past = attention->operand(operand);
        if (!past)
          continue;
        bool stacked = past != a;
        while (past->def() && (past->def()->is(OpCode::Slice) || past->def()->is(OpCode::Reshape)))
          past = past->def()->operand(0);
        if (past != a)
          continue;
        p.role = "past";
        p.layer = layer;
        p.part = stacked ? "both" : operand == 3 ? "key" : "value";
      }
    io.inputs.push_back(std::move(p));
  }
  for (unsigned i = 0; i < f.returned().size(); ++i) {
    Value *v = f.returned()[i];
    ExportedPort p{i < f.resultNames.size() ? f.resultNames[i] : "output" + std::to_string(i),
                   "plain", -1, "", v->type.dtype};
    if (v->type.rank() == 3 && v->type.shape[2] == Dim(io.vocabulary) && io.logits < 0) {
      p.role = "logits";
      io.logits = i;
    } else
      classifyPresent(f, io, i, p);
    io.outputs.push_back(std::move(p));
  }
}

/// True when `index` equals past + 0, 1, 2, ... along the last axis in every row, with every mask
/// of ones.
static bool isPastPlusIota(Function &f, const Interface &io, Value *index) {
  BackwardSlice s = backwardSlice(index, [](Value *) { return false; });
  for (Value *leaf : s.leaves)
    if (leaf != io.keyMask)
      return false;
  for (unsigned trial = 0; trial < 4; ++trial) {
    SymbolMap symbols = probeSymbols(f, trial);
    auto idsShape = concreteShape(io.ids->type, symbols);
    if (!idsShape)
      return false;
    int64_t past = 0;
    if (Value *k = io.attentions[0]->operand(3))
      past = k->type.shape[2].evaluate(symbols).value_or(0);
    Executor::Bindings bound;
    if (s.hasLeaf(io.keyMask)) {
      auto shape = concreteShape(io.keyMask->type, symbols);
      if (!shape)
        return false;
      Tensor ones(DType::I64, *shape);
      std::fill_n(ones.data<int64_t>(), ones.count(), 1);
      bound[io.keyMask] = ones.cast(io.keyMask->type.dtype);
    }
    auto value = probe(f, index, bound, symbols);
    int64_t seq = (*idsShape)[1];
    if (!value || value->rank() == 0 || value->dim(-1) != seq)
      return false;
    for (int64_t i = 0; i < value->count(); ++i)
      if (value->asInt(i) != past + i % seq)
        return false;
  }
  return true;
}

/// The reason why the graph cannot have a KV state; none when it can.
static std::optional<Obstacle> obstacle(Function &f, Interface &io, int64_t maxContext) {
  for (auto &op : f.ops())
    if (op->is(OpCode::Softmax) || op->is(OpCode::MaskedSoftmax))
      return Obstacle{"an attention was not recognised: " + op->describe(), op.get()};
  if (io.attentions.empty())
    return Obstacle{"it has no attention"};
  if (!io.ids)
    return Obstacle{"no argument of token ids was found"};
  for (Op *a : io.attentions) {
    if (!a->boolAttr("causal"))
      return Obstacle{a->describe() + " is not causal, so later tokens would change earlier ones",
                      a, "causal"};
    if (a->operand(6))
      return Obstacle{a->describe() +
                          " adds a bias to its scores, which the KV state's attention does not",
                      a, "bias"};
    if (a->operand(0)->type.shape[2] != io.attentions[0]->operand(0)->type.shape[2] ||
        a->intAttr("num_heads") != io.attentions[0]->intAttr("num_heads"))
      return Obstacle{a->describe() +
                          " differs from other layers in the number or size of its heads",
                      a, "num_heads"};
    if (a->operand(5) && keyMaskOf(*a) != io.keyMask)
      return Obstacle{a->describe() + " has a mask of its own", a, "key_mask"};
  }
  for (const ExportedPort &p : io.inputs)
    if (p.role == "plain")
      return Obstacle{"the meaning of input '" + p.name + "' is not known"};
  if (!io.positions && !maxContext)
    return Obstacle{"it has no table of positions that bounds its context; --max-context does"};
  for (Op *g : io.positionGathers) {
    Value *given = copiedArgument(g->operand(1));
    if (!(given && given == io.positionIds) && !isPastPlusIota(f, io, g->operand(1)))
      return Obstacle{g->describe() +
                          " reads positions that are neither an input nor past + 0, 1, 2, ...",
                      g, "indices"};
  }
  llvm::SmallVector<Op *> embeddings(io.tokenGathers);
  embeddings.append(io.positionGathers);
  Dim batch = io.ids->type.shape[0], tokens = io.ids->type.shape[1];
  for (Op *a : io.attentions)
    for (unsigned i = 0; i < 3; ++i)
      if (auto mixing = tokenMixing(a->operand(i), embeddings, batch, tokens))
        return mixing;
  for (auto [i, p] : llvm::enumerate(io.outputs)) {
    Value *v = f.returned()[i];
    if (p.role == "present")
      continue;
    if (auto mixing = tokenMixing(v, embeddings, batch, tokens))
      return mixing;
    if (p.role == "logits" && (v->type.shape[0] != batch || v->type.shape[1] != tokens))
      return Obstacle{"its logits " + v->type.str() + " are not those of every token", v->def()};
  }
  return std::nullopt;
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

/// `v` (of any type in the exported graph) becomes an i32 argument called `name`, cast back where
/// it is used.
static llvm::Error renameArgument(Function &f, Value *v, llvm::StringRef name) {
  v->name = name.str();
  if (v->type.dtype == DType::I32)
    return llvm::Error::success();
  DType exported = v->type.dtype;
  llvm::SmallVector<Use> uses(v->uses());
  v->type.dtype = DType::I32;
  Builder b(f, f.ops().front().get());
  auto cast = b.value(OpCode::Cast, {v}, {{"to", exported}});
  if (!cast)
    return cast.takeError();
  for (const Use &u : uses) {
    bool takesBoth = (u.op->is(OpCode::Gather) && u.operand == 1) ||
                     (u.op->is(OpCode::Attention) && u.operand == 5) ||
                     (u.op->is(OpCode::MaskedSoftmax) && u.operand == 1);
    if (!takesBoth)
      u.op->setOperand(u.operand, *cast);
  }
  if ((*cast)->uses().empty())
    f.erase((*cast)->def());
  return llvm::Error::success();
}

static llvm::Error nameArguments(Function &f, Interface &io) {
  // Attention reads the mask as an i32, whatever it was cast from.
  for (Op *a : io.attentions)
    if (io.keyMask && keyMaskOf(*a) == io.keyMask)
      a->setOperand(5, io.keyMask);
  for (auto [v, name] :
       {std::pair{io.ids, "ids"}, {io.keyMask, "key_mask"}, {io.positionIds, "position_ids"}})
    if (v)
      if (llvm::Error e = renameArgument(f, v, name))
        return e;
  return llvm::Error::success();
}

/// The graph as it is, with the names that the runtime knows its ports by.
static llvm::Error keepGraph(Function &f, Interface &io) {
  f.setName("forward");
  if (io.logits >= 0)
    f.resultNames[io.logits] = "logits";
  if (llvm::Error e = nameArguments(f, io))
    return e;
  return f.inferTypes();
}

/// Replaces the index of a position table by past + iota.
static llvm::Error usePositions(Function &f, Op *gather, Value *ids, Value *past) {
  Builder b(f, gather);
  b.setLocations(gather->locations);
  auto positions = b.value(OpCode::Positions, {past}, {{"seq", Dims{ids->type.shape[1]}}});
  if (!positions)
    return positions.takeError();
  gather->setOperand(1, *positions);
  return llvm::Error::success();
}

/// Attention becomes an append to the state and a read of it; the state is threaded through the
/// layers.
static llvm::Expected<Value *> cacheAttentions(Function &f, Value *kv, Value *past) {
  llvm::SmallVector<Op *> attentions;
  for (auto &op : f.ops())
    if (op->is(OpCode::Attention))
      attentions.push_back(op.get());
  for (auto [layer, a] : llvm::enumerate(attentions)) {
    Builder b(f, a);
    b.setLocations(a->locations);
    auto next = b.value(OpCode::KvAppend, {kv, a->operand(1), a->operand(2), past},
                        {{"layer", int64_t(layer)}});
    if (!next)
      return next.takeError();
    kv = *next;
    auto out = b.value(OpCode::CachedAttention, {a->operand(0), kv, past, a->operand(5)},
                       {{"layer", int64_t(layer)},
                        {"num_heads", a->intAttr("num_heads")},
                        {"scale", a->floatAttr("scale")}});
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

/// Last-token rows commute with row-wise ops, so that the head runs on one row per sequence.
static std::vector<Rule> lastRowRules() {
  using P = Pattern;
  auto sink = [](OpCode code, llvm::StringRef name, llvm::StringRef formula,
                 std::vector<Pattern> operands) {
    return Rule{
        name, formula,
        P::op(OpCode::GatherLast, {P::op(code, std::move(operands), "inner"), P::any("length")}),
        [](const Match &m) {
          auto isVector = [](const Value *v) { return v && v->type.rank() > 0; };
          return m.value("inner")->hasOneUse() && !isVector(m.value("scale")) &&
                 !isVector(m.value("zero"));
        },
        [code](const Match &m, Builder &b) -> llvm::Expected<Value *> {
          llvm::SmallVector<Value *> operands(m.op("inner")->operands());
          auto last = b.value(OpCode::GatherLast, {operands[0], m.value("length")});
          if (!last)
            return last.takeError();
          operands[0] = *last;
          return b.value(code, operands, m.op("inner")->givenAttrs());
        }};
  };
  std::vector<Rule> rules;
  rules.push_back(sink(OpCode::Linear, "last-row-of-linear", "last(linear(x)) = linear(last(x))",
                       {P::any("x"), P::any("w")}));
  rules.push_back(sink(OpCode::LayerNorm, "last-row-of-norm",
                       "last(layer_norm(x)) = layer_norm(last(x))",
                       {P::any("x"), P::any("g"), P::any("b")}));
  rules.push_back(sink(OpCode::RmsNorm, "last-row-of-rms-norm",
                       "last(rms_norm(x)) = rms_norm(last(x))", {P::any("x"), P::any("g")}));
  rules.push_back(
      sink(OpCode::Cast, "last-row-of-cast", "last(cast(x)) = cast(last(x))", {P::any("x")}));
  for (OpCode code : {OpCode::AffineQuantize, OpCode::AffineDequantize})
    rules.push_back(sink(code, "last-row-of-affine", "last(quantised(x)) = quantised(last(x))",
                         {P::any("x"), P::any("scale"), P::any("zero")}));
  return rules;
}

/// @prefill from @forward: positions from past, no masks, the head on the last tokens, the greedy
/// choice.
static llvm::Error makePrefill(Module &m, Function &forward, unsigned logitsIndex) {
  auto owned = forward.clone("prefill");
  Function &f = *owned;
  m.functions.push_back(std::move(owned));
  Value *ids = f.argument("ids"), *past = f.argument("past");
  llvm::SmallVector<Op *> gathers;
  for (auto &op : f.ops()) {
    if (op->is(OpCode::CachedAttention) && op->operand(3))
      op->setOperand(3, nullptr);
    // Token tables are indexed by ids, position tables by anything else.
    if (op->is(OpCode::Gather) && constantOp(op->operand(0)) && isFloat(op->result()->type.dtype) &&
        copiedArgument(op->operand(1)) != ids &&
        !(op->operand(1)->def() && op->operand(1)->def()->is(OpCode::Positions)))
      gathers.push_back(op.get());
  }
  for (Op *g : gathers)
    if (llvm::Error e = usePositions(f, g, ids, past))
      return e;
  Value *length = f.addArgument(Type{DType::I32, {past->type.shape[0]}}, "length");
  Value *logits = f.returned()[logitsIndex], *kv = f.returned().back();
  Builder b(f, f.terminator());
  auto last = b.value(OpCode::GatherLast, {logits, length});
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
  auto n = applyRules(f, lastRowRules());
  return n ? llvm::Error::success() : n.takeError();
}

/// @decode from @prefill: one token per sequence.
static llvm::Error makeDecode(Module &m, Function &prefill, const Dim &seq) {
  auto owned = prefill.clone("decode");
  Function &f = *owned;
  m.functions.push_back(std::move(owned));
  if (auto symbol = seq.asSymbol())
    f.substitute(*symbol, Dim(1));
  for (auto &op : f.ops())
    if (op->is(OpCode::GatherLast)) {
      Builder b(f, op.get());
      const Shape &s = op->result()->type.shape;
      auto row = b.value(OpCode::Reshape, {op->operand(0)}, {{"shape", Dims(s.begin(), s.end())}});
      if (!row)
        return row.takeError();
      op->result()->replaceAllUsesWith(*row);
    }
  f.eraseDeadOps();
  dropArguments(f, {"ids", "kv", "past"});
  return f.inferTypes();
}

/// Exporters call the symbols what they like; from here on they are batch, seq and past.
static void nameSymbols(Function &f, const Interface &io) {
  auto rename = [&](const Dim &d, llvm::StringRef name) {
    if (auto symbol = d.asSymbol(); symbol && *symbol != name) {
      f.substitute(name, Dim::symbol((name + "_").str())); // out of the way
      f.substitute(*symbol, Dim::symbol(name));
    }
  };
  rename(io.ids->type.shape[0], "batch");
  rename(io.ids->type.shape[1], "seq");
  if (Value *past = io.attentions[0]->operand(3))
    rename(past->type.shape[2], "past");
}

static llvm::Error makeFunctions(PassContext &ctx, Function &f, Interface &io) {
  Op *first = io.attentions[0];
  int64_t heads = first->intAttr("num_heads"), width = *first->operand(0)->type.shape[2].constant();
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
    BackwardSlice s = backwardSlice(g->operand(1), [](Value *) { return false; });
    if (s.leaves.empty() && isPastPlusIota(f, io, g->operand(1)))
      computed.push_back(g);
  }

  f.setName("forward");
  if (llvm::Error e = nameArguments(f, io))
    return e;
  Type state{ctx.options().precision,
             {Dim(int64_t(io.attentions.size())), Dim(2), Dim::symbol("slots"), Dim(heads),
              Dim(context), Dim(width / heads)}};
  Value *kv = f.addArgument(state, "kv"), *past = f.addArgument(Type{DType::I32, {batch}}, "past");
  for (Op *g : computed)
    if (llvm::Error e = usePositions(f, g, io.ids, past))
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
    names.push_back(p.role == "logits" ? "logits" : p.name);
  }
  setReturned(f, kept, names);
  auto updated = cacheAttentions(f, kv, past);
  if (!updated)
    return updated.takeError();
  kept.assign(f.returned().begin(), f.returned().end());
  kept.push_back(*updated);
  names.push_back("kv");
  setReturned(f, kept, names);
  dropArguments(f, {"ids", "key_mask", "position_ids", "kv", "past"});
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (isFloat(f.argument(i)->type.dtype) && f.argument(i)->name != "kv")
      return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                     "input '" + f.argument(i)->name +
                                         "' is used by more than the attention's past");
  if (llvm::Error e = f.inferTypes())
    return e;

  if (!logits) {
    ctx.note("the graph has no head over the vocabulary: only @forward is made, it cannot generate "
             "text");
    return llvm::Error::success();
  }
  if (!seq.asSymbol()) {
    ctx.note("the graph's ids have a fixed length: only @forward is made, it cannot generate text");
    return llvm::Error::success();
  }
  if (llvm::Error e = makePrefill(ctx.module(), f, *logits))
    return e;
  return makeDecode(ctx.module(), *ctx.module().function("prefill"), seq);
}

llvm::Error kvTransform(PassContext &ctx) {
  Module &m = ctx.module();
  if (m.functions.size() != 1 || m.function("forward"))
    return llvm::Error::success(); // done before
  Function &f = *m.functions.front();
  if (auto n = applyRules(f, tableRules()); !n)
    return n.takeError();
  Interface io;
  findEmbeddings(f, io);
  for (auto &op : f.ops())
    if (op->is(OpCode::Attention)) {
      io.attentions.push_back(op.get());
      if (!io.keyMask)
        io.keyMask = keyMaskOf(*op);
    }
  // A mask that no attention reads is known by its name: it has no use, or stayed in a graph of
  // separate ops, where numbers might be added to the scores.
  if (!io.keyMask)
    for (unsigned i = 0; i < f.numArguments(); ++i)
      if (Value *a = f.argument(i);
          llvm::StringRef(a->name).contains("mask") && a->type.rank() == 2 &&
          (a->uses().empty() || (io.attentions.empty() && !isFloat(a->type.dtype))))
        io.keyMask = a;
  describePorts(f, io);
  setExportedPorts(m, io.inputs, io.outputs);
  if (ctx.options().level == 0) {
    ctx.note("the graph runs as it was exported, without a KV state: every step runs all of it")
        .of("kv");
    return keepGraph(f, io);
  }
  if (!io.ids && io.attentions.empty()) {
    ctx.note("the graph is no language model: it runs as it is, without a KV state").of("kv");
    return keepGraph(f, io);
  }
  if (auto why = obstacle(f, io, ctx.options().maxContext)) {
    auto nodes = why->op ? llvm::ArrayRef(why->op->locations) : llvm::ArrayRef<llvm::StringRef>();
    ctx.missed("kv: the graph gets no KV state, since " + why->reason +
                   "; every step runs the whole graph",
               nodes)
        .of("kv")
        .stoppedBy(*why)
        .bytes = bytesOfRepetition(f);
    return keepGraph(f, io);
  }
  return makeFunctions(ctx, f, io);
}

} // namespace gpt2c
