#include "passes/KvInterface.h"

#include "ir/ops/Common.h"
#include "passes/AttentionProbe.h"
#include "passes/TokenWise.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

Value *copiedArgument(Value *v) {
  while (v->def() && (v->def()->is(OpCode::Cast) || v->def()->is(OpCode::Reshape)))
    v = v->def()->operand(0);
  return v->def() ? nullptr : v;
}

Value *keyMaskOf(const Op &attention) {
  Value *mask = attention.operand(5);
  if (mask && mask->def() && mask->def()->is(OpCode::Cast))
    mask = mask->def()->operand(0);
  return mask && !mask->def() ? mask : nullptr;
}

static void findEmbeddings(Function &f, KvInterface &io) {
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

/// Whether `past`, an operand of an attention, is what `l` takes its first tokens from.
static bool isPastOf(const HeadLayout &l, Value *past) {
  int64_t part = -1;
  for (; past && past->def(); past = past->def()->operand(0)) {
    const Op &op = *past->def();
    if (op.is(OpCode::Slice))
      part = op.dimsAttr("starts")[0].constant().value_or(-1);
    else if (!op.is(OpCode::Reshape))
      return false;
  }
  return past == l.pastSource && part == l.pastPart;
}

/// Which part of which layer's KV state a result of the graph is.
static bool classifyPresent(Function &f, KvInterface &io, unsigned index, ExportedPort &port) {
  Value *v = f.returned()[index];
  auto sameHeads = [&](const HeadLayout &l, const Op &attention, unsigned operand) {
    Value *x = attention.operand(operand);
    Value *source = x->def() && x->def()->is(OpCode::Slice) ? x->def()->operand(0) : x;
    int64_t offset = source == x ? 0 : *x->def()->dimsAttr("starts")[0].constant();
    return l.source == source && l.offset == offset && l.factor == 1 &&
           isPastOf(l, attention.operand(operand + 2));
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

static void describePorts(Function &f, KvInterface &io) {
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    ExportedPort p{a->name, "plain", -1, "", a->type.dtype};
    if (a == io.ids)
      p.role = "ids";
    else if (a == io.keyMask)
      p.role = "key_mask";
    else if (a == io.positionIds)
      p.role = "position_ids";
    bool shared = false; // by two parts of the state, which it cannot be
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
        ExportedPort earlier = p;
        p.role = "past";
        p.layer = layer;
        p.part = stacked ? "both" : operand == 3 ? "key" : "value";
        shared |= earlier.role == "past" && (earlier.layer != p.layer || earlier.part != p.part);
      }
    if (shared)
      p.role = "plain";
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

bool isPastPlusIota(Function &f, const KvInterface &io, Value *index) {
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

std::optional<Obstacle> kvObstacle(Function &f, const KvInterface &io, int64_t maxContext) {
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
    if (bool(a->operand(3)) != bool(io.attentions[0]->operand(3)))
      return Obstacle{a->describe() + " differs from other layers in having a past", a, "past"};
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

KvInterface findKvInterface(Function &f) {
  KvInterface io;
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
  return io;
}

} // namespace gpt2c
