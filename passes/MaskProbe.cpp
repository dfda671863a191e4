#include "ir/ops/Common.h"
#include "passes/AttentionProbe.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static bool isProduct(const Op *op) { return op->is(OpCode::MatMul) || op->is(OpCode::Linear); }

Op *scoreProduct(Value *probabilities) {
  if (probabilities->def() && isProduct(probabilities->def()))
    return nullptr;
  BackwardSlice s = backwardSlice(probabilities, [](Value *v) { return isProduct(v->def()); });
  Op *product = nullptr;
  for (Value *leaf : s.leaves) {
    if (!leaf->def())
      continue;
    if (product && product != leaf->def())
      return nullptr;
    product = leaf->def();
  }
  return product && product->is(OpCode::MatMul) ? product : nullptr;
}

//===-- runs --------------------------------------------------------------------------------===//

namespace {

/// What a run binds besides the scores, and what came of it.
struct Trial {
  Tensor scores, probabilities;
  std::optional<Tensor> mask; // [batch, key]
  std::optional<Tensor> bias; // broadcasts to the scores; bool or double
  int64_t offset = 0;         // keys before the first query: key - query count
};

/// The sub-graph that is run: from `scores`, and `bias` where there is one, to `probabilities`.
struct Subject {
  const Function &f;
  Value *scores, *probabilities;
  Value *keyMask = nullptr, *bias = nullptr;

  bool isBool() const { return bias && bias->type.dtype == DType::Bool; }
};

} // namespace

/// Attention masks to try: all ones, left padding, right padding, holes. Key 0 stays visible in the
/// last two.
static Tensor maskOfKind(unsigned kind, llvm::ArrayRef<int64_t> shape, DType dtype) {
  Tensor m(DType::I64, shape);
  int64_t batch = shape[0], keys = shape[1];
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < keys; ++j) {
      int64_t pad = (b + 1) % std::max<int64_t>(keys, 1);
      bool visible = kind == 0   ? true
                     : kind == 1 ? j >= pad
                     : kind == 2 ? j < keys - pad || j == 0
                                 : j == 0 || (j * 7 + b * 3) % 3 != 0;
      m.data<int64_t>()[b * keys + j] = visible;
    }
  return m.cast(dtype);
}

/// A bias of nothing, or a random one.
static Tensor biasOf(const Subject &s, llvm::ArrayRef<int64_t> shape, bool random) {
  Tensor t = randomTensor(shape, 29, random ? 2.0 : 0.0);
  if (!s.isBool())
    return t;
  Tensor visible(DType::Bool, shape);
  for (int64_t i = 0; i < t.count(); ++i)
    visible.data<bool>()[i] = !random || t.data<double>()[i] > -0.8;
  return visible;
}

/// Fills in the probabilities; none when the sub-graph cannot be run so.
static bool run(const Subject &s, Trial &t, const SymbolMap &symbols, Obstacle &why) {
  Executor::Bindings bound{{s.scores, t.scores}};
  if (t.mask)
    bound[s.keyMask] = *t.mask;
  if (t.bias)
    bound[s.bias] = *t.bias;
  auto p = probe(s.f, s.probabilities, bound, symbols, &why.reason);
  if (!p)
    return false;
  if (p->shape() != t.scores.shape()) {
    why = "the probabilities do not have the shape of the scores";
    return false;
  }
  t.probabilities = *p;
  return true;
}

/// Of a shape that broadcasts to scores.
static void keepOneHead(llvm::SmallVectorImpl<int64_t> &shape) {
  if (shape.size() >= 3)
    shape[shape.size() - 3] = 1;
}

/// Graphs of fixed sizes with more scores than this are tried with one head.
constexpr int64_t mostElements = 1 << 22;

/// Small sizes under every kind of mask. The first run has no bias and shows every key to the last
/// query; the one that `biased` receives shows every key, too. Empty with a reason in `why`.
static std::vector<Trial> smallRuns(const Subject &s, size_t &biased, Obstacle &why) {
  std::vector<Trial> runs;
  for (unsigned trial = 0; trial < 4; ++trial) {
    SymbolMap symbols = probeSymbols(s.f, trial);
    auto shape = concreteShape(s.scores->type, symbols);
    if (!shape)
      continue;
    const bool oneHead = product(*shape) > mostElements;
    if (oneHead)
      (*shape)[1] = 1;
    // A graph of fixed size: one run without a bias, one with it.
    if (trial > 1 && llvm::equal(*shape, runs.front().scores.shape()))
      break;
    for (unsigned kind = 0; kind < (s.keyMask ? 4u : 1u); ++kind) {
      Trial t;
      t.scores = randomTensor(*shape, 17 + trial, 3.0);
      t.offset = (*shape)[3] - (*shape)[2];
      if (s.keyMask) {
        auto maskShape = concreteShape(s.keyMask->type, symbols);
        if (!maskShape || (*maskShape)[1] != (*shape)[3]) {
          why = "the attention mask " + s.keyMask->type.str() +
                " does not have one entry per key of " + s.scores->type.str();
          return {};
        }
        t.mask = maskOfKind(kind, *maskShape, s.keyMask->type.dtype);
      }
      if (s.bias) {
        auto biasShape = concreteShape(s.bias->type, symbols);
        if (!biasShape) {
          why = "the shape of " + s.bias->type.str() + " is not known";
          return {};
        }
        if (oneHead)
          keepOneHead(*biasShape);
        t.bias = biasOf(s, *biasShape, !runs.empty());
        if (kind == 0 && !runs.empty() && biased == 0)
          biased = runs.size();
      }
      if (!run(s, t, symbols, why))
        return {};
      runs.push_back(std::move(t));
    }
  }
  if (runs.empty())
    why = "the shape of the scores is not known: " + s.scores->type.str();
  return runs;
}

//===-- sizes that tell -----------------------------------------------------------------------===//

/// Most keys that are tried with as many queries, and with few.
constexpr int64_t longestSquare = 8192, longestRow = 1 << 17;

/// Numbers of keys at which constants of the sub-graph come to bear, largest first: a window of 256
/// keys is a causal mask to shorter sequences. `counts` tells integers from numbers that scores are
/// filled with, such as -10000.
static llvm::SmallVector<int64_t> tellingLengths(const BackwardSlice &slice, bool counts) {
  llvm::SmallVector<int64_t> lengths;
  auto add = [&](double number) {
    if (number > 8 && number <= double(1 << 20) && number == std::floor(number))
      lengths.push_back(int64_t(number));
  };
  for (Op *op : slice.ops) {
    if (auto c = op->is(OpCode::Constant) ? scalarConstant(op->result()) : std::nullopt) {
      if (!counts || !isFloat(op->result()->type.dtype))
        add(std::abs(*c) + 2);
    } else if (op->is(OpCode::Constant) && op->constant.rank() >= 2)
      add(double(op->constant.dim(-1)));
    for (const NamedAttr &a : op->givenAttrs())
      if (const Dims *dims = std::get_if<Dims>(&a.value))
        for (const Dim &d : *dims)
          if (d.isConstant())
            add(std::abs(double(*d.constant())) + 2);
  }
  llvm::sort(lengths, std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// Two queries at the end of many keys where the graph has a past, else as many queries as keys:
/// symbols for that, none where keys do not follow from symbols.
static std::optional<SymbolMap> longSymbols(const Subject &s, int64_t keys) {
  SymbolMap symbols = probeSymbols(s.f, 2);
  const Dim &queries = s.scores->type.shape[2], &total = s.scores->type.shape[3];
  auto query = queries.asSymbol();
  if (!query)
    return std::nullopt;
  Dim past = total - queries;
  if (auto before = past.asSymbol(); before && *before != *query && keys <= longestRow) {
    symbols[*query] = 2;
    symbols[*before] = keys - 2;
    return symbols;
  }
  symbols[*query] = 0;
  auto rest = total.evaluate(symbols);
  if (!rest || keys > longestSquare)
    return std::nullopt;
  symbols[*query] = keys - *rest;
  return symbols;
}

/// One head of one sequence with `keys` keys, a mask of ones and no bias.
static std::optional<Trial> longRun(const Subject &s, int64_t keys) {
  auto symbols = longSymbols(s, keys);
  auto shape = symbols ? concreteShape(s.scores->type, *symbols) : std::nullopt;
  if (!shape || (*shape)[2] < 1 || (*shape)[3] != keys)
    return std::nullopt;
  (*shape)[1] = 1;
  Trial t;
  t.scores = randomTensor(*shape, 23, 3.0);
  t.offset = keys - (*shape)[2];
  if (s.keyMask)
    t.mask = maskOfKind(0, {(*shape)[0], keys}, s.keyMask->type.dtype);
  if (s.bias) {
    auto biasShape = concreteShape(s.bias->type, *symbols);
    if (!biasShape)
      return std::nullopt;
    keepOneHead(*biasShape);
    t.bias = biasOf(s, *biasShape, false);
  }
  Obstacle why;
  return run(s, t, *symbols, why) ? std::optional(std::move(t)) : std::nullopt;
}

//===-- comparison ----------------------------------------------------------------------------===//

/// Strides of a tensor that broadcasts to scores of rank 4.
static std::array<int64_t, 4> stridesOf(const Tensor &t) {
  std::array<int64_t, 4> strides = {};
  int64_t stride = 1;
  for (unsigned i = 0; i < t.rank(); ++i) {
    int64_t axis = int64_t(t.rank()) - 1 - i;
    strides[3 - i] = t.dim(axis) == 1 ? 0 : stride;
    stride *= t.dim(axis);
  }
  return strides;
}

/// The formula under `m` against what the graph computed: the largest difference over rows that see
/// at least one key, and where it is.
static double compare(const Trial &t, const MaskedSoftmax &m, std::string &where) {
  auto s = t.scores.shape();
  int64_t batch = s[0], heads = s[1], queries = s[2], keys = s[3];
  bool selects = t.bias && t.bias->dtype() == DType::Bool;
  auto strides = t.bias ? stridesOf(*t.bias) : std::array<int64_t, 4>{};
  double worst = 0;
  std::vector<double> expected(keys); // -inf hides
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < queries; ++q) {
        const double *x = t.scores.data<double>() + ((b * heads + h) * queries + q) * keys;
        const double *p = t.probabilities.data<double>() + ((b * heads + h) * queries + q) * keys;
        double highest = -INFINITY, sum = 0;
        for (int64_t k = 0; k < keys; ++k) {
          int64_t at = b * strides[0] + h * strides[1] + q * strides[2] + k * strides[3];
          bool hidden = (m.causal && k > q + t.offset) ||
                        (t.mask && !t.mask->asInt(b * keys + k)) ||
                        (selects && !t.bias->data<bool>()[at]);
          double added = t.bias && !selects ? m.biasScale * t.bias->data<double>()[at] : 0;
          expected[k] = hidden ? -INFINITY : m.scale * x[k] + added;
          highest = std::max(highest, expected[k]);
        }
        if (std::isinf(highest))
          continue;
        for (double &e : expected)
          sum += e = std::exp(e - highest);
        for (int64_t k = 0; k < keys; ++k) {
          double d = std::abs(p[k] - expected[k] / sum);
          if (std::isnan(d) || d > worst) {
            worst = std::isnan(d) ? INFINITY : d;
            where = "query " + std::to_string(q) + ", key " + std::to_string(k) + " of " +
                    std::to_string(keys);
          }
        }
      }
  return worst;
}

/// log p[0] - log p[1] of the last query, which under a softmax is what their scores differ by;
/// none when it does not see both. `scores` and `added` receive the differences of those.
static std::optional<double> lastQuery(const Trial &t, double &scores, double &added) {
  int64_t keys = t.scores.dim(3), queries = t.scores.dim(2), row = (queries - 1) * keys;
  const double *x = t.scores.data<double>() + row, *p = t.probabilities.data<double>() + row;
  if (keys < 2 || !(p[0] > 0) || !(p[1] > 0))
    return std::nullopt;
  scores = x[0] - x[1];
  added = 0;
  if (t.bias && t.bias->dtype() != DType::Bool) {
    auto strides = stridesOf(*t.bias);
    const double *bias = t.bias->data<double>() + (queries - 1) * strides[2];
    added = bias[0] - bias[strides[3]];
  }
  return std::log(p[0]) - std::log(p[1]);
}

static std::optional<MaskedSoftmax> classify(const Subject &s, const BackwardSlice &slice,
                                             Obstacle &why) {
  MaskedSoftmax result;
  result.keyMask = s.keyMask;
  result.bias = s.bias;
  size_t biased = 0;
  std::vector<Trial> runs = smallRuns(s, biased, why);
  if (runs.empty())
    return std::nullopt;
  for (int64_t keys : tellingLengths(slice, false))
    if (auto t = longRun(s, keys)) {
      runs.push_back(std::move(*t));
      break;
    }
  int64_t longest = runs.back().scores.dim(3);
  for (int64_t keys : tellingLengths(slice, true))
    if (keys > std::max(longest, longestSquare)) {
      why = "the number " + std::to_string(keys - 2) +
            " in its mask could be a window that shows only to sequences longer than can be tried";
      return std::nullopt;
    }

  double scores = 0, added = 0;
  auto difference = lastQuery(runs.front(), scores, added);
  if (!difference) {
    why = "the last query does not see the first keys";
    return std::nullopt;
  }
  result.scale = *difference / scores;
  if (s.bias && !s.isBool()) {
    difference = lastQuery(runs[biased], scores, added);
    result.biasScale = difference ? (*difference - result.scale * scores) / added : NAN;
    if (!std::isfinite(result.biasScale) || std::abs(result.biasScale) < 1e-12) {
      why = "what is added to the scores does not matter to them";
      return std::nullopt;
    }
  }

  std::string reasons[2];
  for (bool causal : {true, false}) {
    result.causal = causal;
    double worst = 0;
    std::string where;
    for (const Trial &run : runs) {
      std::string place;
      double d = compare(run, result, place);
      if (d > worst) {
        worst = d;
        where = place;
      }
    }
    if (worst <= 1e-6)
      return result;
    reasons[causal] = "differs by " + std::to_string(worst) + " at " + where;
  }
  why = "it is not softmax(" + std::to_string(result.scale) + " * scores) under a causal mask (" +
        reasons[1] + ") nor without a mask (" + reasons[0] + ")";
  return std::nullopt;
}

//===-- additive masks ------------------------------------------------------------------------===//

/// Values that do not depend on the scores and are added to what does, or select among it.
static llvm::SmallVector<Value *> biasCandidates(const BackwardSlice &slice, Value *scores) {
  llvm::DenseMap<const Value *, bool> known;
  auto depends = [&](auto &self, Value *v) -> bool {
    if (v == scores)
      return true;
    if (!v || !v->def() || !slice.contains(v->def()))
      return false;
    auto [it, isNew] = known.try_emplace(v, false);
    if (!isNew)
      return it->second;
    bool any = llvm::any_of(v->def()->operands(), [&](Value *o) { return o && self(self, o); });
    return known[v] = any;
  };
  llvm::SmallVector<Value *> candidates;
  for (Op *op : slice.ops) {
    if (!op->is(OpCode::Add) && !op->is(OpCode::Sub) && !op->is(OpCode::Where))
      continue;
    if (!depends(depends, op->result()))
      continue;
    for (Value *v : op->operands()) {
      bool selects = op->is(OpCode::Where);
      bool fits = v->type.rank() <= 4 && (selects ? v == op->operand(0) : isFloat(v->type.dtype));
      if (fits && !depends(depends, v) && !scalarConstant(v) && !llvm::is_contained(candidates, v))
        candidates.push_back(v);
    }
  }
  return candidates;
}

/// The sub-graph's attention mask; false with a reason in `why` when it reads anything else.
static bool findKeyMask(Subject &s, const BackwardSlice &slice, Obstacle &why) {
  for (Value *leaf : slice.leaves) {
    if (leaf == s.scores || leaf == s.bias)
      continue;
    if (leaf->type.rank() != 2 || s.keyMask) {
      why = "between scores and probabilities the graph also reads argument " + leaf->name + " " +
            leaf->type.str() + ", which is not an attention mask [batch, keys]";
      return false;
    }
    s.keyMask = leaf;
  }
  return true;
}

/// The op to which it is due that no mask explains the probabilities: a softmax over another axis,
/// a cast that rounds, a factor for each head, or else what combines the scores with a mask.
static void blameMask(const BackwardSlice &slice, Value *scores, Obstacle &why) {
  auto fromScores = [&](Value *v) {
    return v == scores ||
           (v && backwardSlice(v, [&](Value *u) { return u == scores; }).hasLeaf(scores));
  };
  auto blame = [&](const Op *op, const char *attribute) {
    why.op = op;
    why.attribute = attribute;
  };
  for (const Op *op : slice.ops) {
    if (!llvm::any_of(op->operands(), fromScores))
      continue;
    bool combines = op->numOperands() > 1 && llvm::any_of(op->operands(), [&](Value *v) {
                      return v && elementCount(v->type.shape) != Dim(1) && !fromScores(v);
                    });
    DType from = op->operand(0)->type.dtype, to = op->result()->type.dtype;
    if (op->is(OpCode::Softmax) && op->intAttr("axis") != -1 &&
        op->intAttr("axis") != int64_t(op->result()->type.rank()) - 1)
      return blame(op, "axis");
    if (op->is(OpCode::Cast) && isFloat(from) && (!isFloat(to) || byteSize(to) < byteSize(from)))
      return blame(op, "to");
    if (combines && (op->is(OpCode::Mul) || op->is(OpCode::Div)))
      return blame(op, "scale");
    if (combines && !why.op)
      blame(op, "mask");
  }
}

std::optional<MaskedSoftmax> probeMaskedSoftmax(const Function &f, Value *scores,
                                                Value *probabilities, Obstacle &why) {
  if (scores->type.rank() != 4 || probabilities->type.rank() != 4) {
    why = "scores have rank " + std::to_string(scores->type.rank()) + " instead of 4";
    return std::nullopt;
  }
  BackwardSlice slice = backwardSlice(probabilities, [&](Value *v) { return v == scores; });
  Subject plain{f, scores, probabilities};
  if (findKeyMask(plain, slice, why))
    if (auto found = classify(plain, slice, why))
      return found;
  for (Value *bias : biasCandidates(slice, scores)) {
    Subject s{f, scores, probabilities, nullptr, bias};
    Obstacle ignored;
    BackwardSlice rest =
        backwardSlice(probabilities, [&](Value *v) { return v == scores || v == bias; });
    if (findKeyMask(s, rest, ignored))
      if (auto found = classify(s, rest, ignored))
        return found;
  }
  blameMask(slice, scores, why);
  return std::nullopt;
}

llvm::Expected<Value *> keyMaskOperand(Builder &b, const MaskedSoftmax &mask) {
  if (!mask.keyMask)
    return nullptr;
  DType dtype = mask.keyMask->type.dtype;
  if (dtype == DType::I32 || dtype == DType::I64 || dtype == DType::Bool)
    return mask.keyMask;
  return b.value(OpCode::Cast, {mask.keyMask}, {{"to", DType::Bool}});
}

llvm::Expected<Value *> scoreBias(Builder &b, const MaskedSoftmax &mask, DType dtype) {
  llvm::Expected<Value *> bias = mask.bias;
  auto scalar = [&](double v) { return b.constant(Tensor::scalar(v).cast(dtype)); };
  if (mask.bias->type.dtype == DType::Bool)
    bias = b.value(OpCode::Where, {mask.bias, scalar(0), scalar(-INFINITY)});
  else if (mask.bias->type.dtype != dtype)
    bias = b.value(OpCode::Cast, {mask.bias}, {{"to", dtype}});
  if (bias && std::abs(mask.biasScale - 1) > 1e-6)
    bias = b.value(OpCode::Mul, {*bias, scalar(mask.biasScale)});
  if (!bias || (*bias)->type.rank() == 4)
    return bias;
  Dims shape(4 - (*bias)->type.rank(), Dim(1));
  shape.insert(shape.end(), (*bias)->type.shape.begin(), (*bias)->type.shape.end());
  return b.value(OpCode::Reshape, {*bias}, {{"shape", shape}});
}

} // namespace gpt2c
