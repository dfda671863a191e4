#include "passes/proof/KvInterface.h"

#include "ir/FunctionNames.h"
#include "ir/ops/Common.h"
#include "passes/proof/PositionProof.h"
#include "passes/proof/TokenWise.h"
#include "passes/proof/bounds/Probabilities.h"
#include "passes/proof/masks/AttentionProbe.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

bool isStoodFor(const Module &m, const Function &f) {
  const Function *generation = m.function(functions::generation);
  return generation && generation != &f;
}

Value *copiedArgument(Value *v) {
  while (Op *op = v->def()) {
    bool copies =
        op->is(OpCode::Reshape) ||
        (op->is(OpCode::Cast) && (v->type.dtype == DType::I32 || v->type.dtype == DType::I64));
    if (!copies)
      return nullptr;
    v = op->operand(0);
  }
  return v;
}

Value *keyMaskOf(const Op &attention) {
  Value *mask = attention.operand(ops::Attention::KeyMask);
  if (mask && mask->def() && mask->def()->is(OpCode::Cast))
    mask = mask->def()->operand(0);
  return mask && !mask->def() ? mask : nullptr;
}

std::vector<int64_t> stateLayers(llvm::ArrayRef<Op *> attentions) {
  using enum ops::Attention::Operand;
  std::vector<int64_t> layers;
  int64_t next = 0;
  for (const Op *a : attentions) {
    auto *same = llvm::find_if(attentions.take_front(layers.size()), [&](const Op *earlier) {
      return llvm::all_of(std::array{K, V, PastK, PastV},
                          [&](unsigned i) { return a->operand(i) == earlier->operand(i); });
    });
    const size_t found = same - attentions.begin();
    layers.push_back(found < layers.size() ? layers[found] : next++);
  }
  return layers;
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
  const std::vector<int64_t> layers = stateLayers(io.attentions);
  auto sameHeads = [&](const HeadLayout &l, const Op &attention, unsigned operand) {
    const bool keys = operand == ops::Attention::K;
    Value *x = attention.operand(operand);
    Value *source = x->def() && x->def()->is(OpCode::Slice) ? x->def()->operand(ops::Slice::X) : x;
    int64_t offset = source == x ? 0 : *x->def()->dimsAttr("starts")[0].constant();
    if (l.source->type.rank() == 4 && source->def() && source->def()->is(OpCode::Reshape))
      source = source->def()->operand(0); // heads as columns
    return l.source == source && l.offset == offset && l.factor == 1 && l.group == 1 &&
           isPastOf(l, attention.operand(keys ? ops::Attention::PastK : ops::Attention::PastV));
  };
  Obstacle why;
  if (v->type.rank() == 4) {
    auto l = probeHeads(f, v, false, why);
    for (auto [layer, attention] : llvm::zip_equal(layers, io.attentions))
      for (unsigned operand : {ops::Attention::K, ops::Attention::V})
        if (l && sameHeads(*l, *attention, operand)) {
          port.role = "present";
          port.layer = layer;
          port.part = operand == ops::Attention::K ? "key" : "value";
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
    for (auto [i, attention] : llvm::zip_equal(layers, io.attentions))
      if (l && (layer < 0 || layer == int(i)) &&
          sameHeads(*l, *attention, part ? ops::Attention::V : ops::Attention::K)) {
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
  const std::vector<int64_t> layers = stateLayers(io.attentions);
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    ExportedPort p{a->name, "plain", -1, "", "", a->type.dtype};
    if (a == io.ids)
      p.role = "ids";
    else if (a == io.keyMask)
      p.role = "key_mask";
    else if (a == io.positionIds)
      p.role = "position_ids";
    else if (a == io.tokenTypes)
      p.port = "token_type_ids";
    bool shared = false; // by two parts of the state, which it cannot be
    for (auto [layer, attention] : llvm::zip_equal(layers, io.attentions))
      for (unsigned operand : {ops::Attention::PastK, ops::Attention::PastV}) {
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
        p.part = stacked ? "both" : operand == ops::Attention::PastK ? "key" : "value";
        shared |= earlier.role == "past" && (earlier.layer != p.layer || earlier.part != p.part);
      }
    if (shared)
      p = {a->name, "plain", -1, "", "", a->type.dtype};
    io.inputs.push_back(std::move(p));
  }
  for (unsigned i = 0; i < f.returned().size(); ++i) {
    Value *v = f.returned()[i];
    ExportedPort p{i < f.resultNames.size() ? f.resultNames[i] : "output" + std::to_string(i),
                   "plain",
                   -1,
                   "",
                   "",
                   v->type.dtype};
    if (int(i) == io.logits)
      p.role = "logits";
    else
      classifyPresent(f, io, i, p);
    io.outputs.push_back(std::move(p));
  }
}

/// An input of a fixed size that the graph returns with some places written.
static const Value *writtenCache(Function &f) {
  for (const Value *v : f.returned()) {
    const Value *from = v;
    bool writes = false;
    while (const Op *op = from->def()) {
      writes |= op->is(OpCode::ScatterND);
      if (!writes && !op->is(OpCode::Reshape) && !op->is(OpCode::Transpose))
        break;
      if (op->numOperands() == 0 || !op->operand(0))
        break;
      from = op->operand(0);
    }
    const bool isCache = writes && !from->def() && from->type == v->type &&
                         isFloat(v->type.dtype) && v->type.rank() >= 3;
    if (isCache)
      return from;
  }
  return nullptr;
}

std::optional<Obstacle> kvObstacle(Function &f, KvInterface &io, int64_t maxContext) {
  using enum ops::Attention::Operand;
  if (const Value *cache = writtenCache(f))
    return Obstacle{"the input '" + cache->name +
                    "' is a static cache, which is written at places that the caller gives (an "
                    "export with past keys and values that grow, or with token ids alone, has a "
                    "KV state)"};
  for (auto &op : f.ops())
    if ((op->is(OpCode::Softmax) && op.get() != io.softmax) || op->is(OpCode::MaskedSoftmax))
      return Obstacle{"an attention was not recognised: " + op->describe(), op.get()};
  if (io.attentions.empty())
    return Obstacle{"it has no attention"};
  if (!io.ids)
    return Obstacle{io.idsDoubt.empty() ? "no argument of token ids was found" : io.idsDoubt};
  for (Op *a : io.attentions) {
    if (a->operand(Bias))
      return Obstacle{a->describe() +
                          " adds a bias to its scores, which the KV state's attention does not",
                      a, "bias"};
    if (!a->boolAttr("causal"))
      return Obstacle{a->describe() + " is not causal, so later tokens would change earlier ones",
                      a, "causal"};
    if (a->operand(Q)->type.shape[2] != io.attentions[0]->operand(Q)->type.shape[2] ||
        a->operand(K)->type.shape[2] != io.attentions[0]->operand(K)->type.shape[2] ||
        a->intAttr("num_heads") != io.attentions[0]->intAttr("num_heads"))
      return Obstacle{a->describe() +
                          " differs from other layers in the number or size of its heads",
                      a, "num_heads"};
    if (bool(a->operand(PastK)) != bool(io.attentions[0]->operand(PastK)))
      return Obstacle{a->describe() + " differs from other layers in having a past", a, "past"};
    if (a->operand(KeyMask) && keyMaskOf(*a) == io.ids)
      return Obstacle{a->describe() + " hides keys by their token ids, which the KV state's " +
                          "attention does not",
                      a, "key_mask"};
    if (a->operand(KeyMask) && keyMaskOf(*a) != io.keyMask)
      return Obstacle{a->describe() + " has a mask of its own", a, "key_mask"};
  }
  for (auto [i, p] : llvm::enumerate(io.inputs))
    if (p.role == "plain" && p.port.empty() && !f.argument(i)->uses().empty())
      return Obstacle{"the meaning of input '" + p.name + "' is not known (gpt2c --set-input=" +
                      p.name + "=1 sets one of fixed size for good)"};
  if (auto tokens = io.ids->type.shape[1].asSymbol()) {
    constexpr int64_t any = DimRange().hi;
    const int64_t most = std::min(f.bounds().of(*tokens).hi, io.positions ? io.positions : any);
    io.positions = most == any ? 0 : most; // no longer text runs, whatever positions there are
  }
  if (auto length = io.ids->type.shape[1].constant(); length && !io.positions && !maxContext)
    return Obstacle{"its ids have a fixed length of " + std::to_string(*length) +
                    " (an export with an open length, by dynamic axes or shapes, has none)"};
  if (!io.positions && !maxContext)
    return Obstacle{"it has no table of positions that bounds its context; --max-context does"};
  for (Op *g : io.positionGathers) {
    std::string why;
    auto inFront = rowsInFront(f, io, g, why);
    if (!inFront)
      return Obstacle{
          g->describe() +
              " reads positions that are neither an input nor past + 0, 1, 2, ...: " + why,
          g, "indices"};
    if (!*inFront)
      continue;
    io.rowsInFront[g] = *inFront;
    const int64_t rows = *g->operand(ops::Gather::X)->type.shape[0].constant() - *inFront;
    io.positions = std::min(io.positions, rows);
  }
  llvm::SmallVector<Op *> embeddings(io.tokenGathers);
  embeddings.append(io.positionGathers);
  embeddings.append(io.typeGathers);
  Dim batch = io.ids->type.shape[0], tokens = io.ids->type.shape[1];
  for (Op *a : io.attentions)
    for (unsigned i : {Q, K, V})
      if (auto mixing = tokenMixing(a->operand(i), embeddings, batch, tokens))
        return mixing;
  for (auto [i, p] : llvm::enumerate(io.outputs)) {
    Value *v = f.returned()[i];
    if (p.role == "present")
      continue;
    // What is behind the last token's row was looked at with the logits.
    bool last = p.role == "logits" && io.lastToken;
    if (auto mixing = tokenMixing(last ? io.lastToken->operand(0) : v, embeddings, batch, tokens))
      return mixing;
  }
  return std::nullopt;
}

void addLogits(Function &f, KvInterface &io) {
  if (io.logits < 0)
    return;
  auto given = probabilitiesOf(f.returned()[io.logits]);
  if (!given)
    return;
  io.outputs[io.logits].role = given->logarithms ? "log_probabilities" : "probabilities";
  io.softmax = given->softmax;
  llvm::SmallVector<Value *> returned(f.returned());
  io.logits = int(returned.size());
  returned.push_back(given->logits);
  f.resultNames.resize(returned.size());
  f.resultNames.back() = "logits";
  f.terminator()->setOperands(returned);
  io.outputs.push_back({"logits", "logits", -1, "", "", given->logits->type.dtype});
  io.addsLogits = true;
}

KvInterface findKvInterface(Function &f) {
  KvInterface io;
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
  findIndexInputs(f, io);
  if (io.keyMask == io.ids) // keys that token ids hide: kvObstacle says so
    io.keyMask = nullptr;
  findLogits(f, io);
  describePorts(f, io);
  return io;
}

} // namespace gpt2c
