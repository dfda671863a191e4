#include "passes/AttentionProbe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

constexpr unsigned trials = 4;

static bool isProduct(const Op *op) { return op->is(OpCode::MatMul) || op->is(OpCode::Linear); }

//===-- layout of heads
//-------------------------------------------------------------------------===//

/// Copies, and products with one-element constants.
static bool isCopy(const Op *op) {
  if (op->is(OpCode::Constant) || op->is(OpCode::DimValues) || op->info().has(DataMovement))
    return true;
  if (op->is(OpCode::Cast))
    return isFloat(op->result()->type.dtype) && isFloat(op->operand(0)->type.dtype);
  if (op->is(OpCode::Mul))
    return scalarConstant(op->operand(0)) || scalarConstant(op->operand(1));
  return op->is(OpCode::Div) && scalarConstant(op->operand(1));
}

/// The numbered element of `v` (1, 2, ... in row-major order of its [b, t, width] or past source),
/// with the factor.
struct Numbering {
  const Tensor &elements; // [b, h, t, d] or, transposed, [b, h, d, t]
  bool transposed;
  double at(int64_t b, int64_t h, int64_t t, int64_t d) const {
    auto s = elements.shape();
    int64_t i = transposed ? ((b * s[1] + h) * s[2] + d) * s[3] + t
                           : ((b * s[1] + h) * s[2] + t) * s[3] + d;
    return elements.data<double>()[i];
  }
};

static bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * (std::abs(a) + std::abs(b));
}

static bool checkCurrent(const Numbering &n, llvm::ArrayRef<int64_t> source, int64_t past,
                         HeadLayout &l, bool first) {
  int64_t batch = source[0], seq = source[1], width = source[2];
  if (first) {
    // Neighbours along head_dim, or where there is one only along heads or tokens, differ by the
    // factor times the distance in the source; the first element then tells the offset.
    double step = l.headDim > 1 ? n.at(0, 0, past, 1) - n.at(0, 0, past, 0)
                  : l.heads > 1 ? n.at(0, 1, past, 0) - n.at(0, 0, past, 0)
                  : seq > 1     ? (n.at(0, 0, past + 1, 0) - n.at(0, 0, past, 0)) / double(width)
                                : 1;
    if (!(std::abs(step) > 0))
      return false;
    double offset = n.at(0, 0, past, 0) / step - 1;
    l.factor = step;
    l.offset = std::llround(offset);
    if (l.offset < 0 || l.offset + l.heads * l.headDim > width)
      return false;
  }
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < l.heads; ++h)
      for (int64_t t = 0; t < seq; ++t)
        for (int64_t d = 0; d < l.headDim; ++d) {
          double number = double((b * seq + t) * width + l.offset + h * l.headDim + d + 1);
          if (!near(n.at(b, h, past + t, d), l.factor * number))
            return false;
        }
  return true;
}

static bool checkPast(const Numbering &n, llvm::ArrayRef<int64_t> shape, double base,
                      HeadLayout &l) {
  bool stacked = shape.size() == 5;
  int64_t skip = stacked ? 1 : 0;
  if (shape.size() != (stacked ? 5u : 4u) || (stacked && shape[0] != 2) ||
      shape[skip + 1] != l.heads || shape[skip + 3] != l.headDim)
    return false;
  int64_t batch = shape[skip], past = shape[skip + 2];
  int64_t part = batch * l.heads * past * l.headDim;
  auto matches = [&](int64_t which) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < l.heads; ++h)
        for (int64_t t = 0; t < past; ++t)
          for (int64_t d = 0; d < l.headDim; ++d) {
            double number =
                base + double(which * part + ((b * l.heads + h) * past + t) * l.headDim + d + 1);
            if (!near(n.at(b, h, t, d), l.factor * number))
              return false;
          }
    return true;
  };
  if (!stacked) {
    l.pastPart = -1;
    return matches(0);
  }
  for (int64_t which : {0, 1})
    if (matches(which)) {
      l.pastPart = which;
      return true;
    }
  return false;
}

std::optional<HeadLayout> probeHeads(const Function &f, Value *v, bool transposed,
                                     std::string &why) {
  if (v->type.rank() != 4) {
    why = "it has rank " + std::to_string(v->type.rank()) + " instead of 4";
    return std::nullopt;
  }
  auto heads = v->type.shape[1].constant(), headDim = v->type.shape[transposed ? 2 : 3].constant();
  if (!heads || !headDim) {
    why = "the number of heads or the head size is not constant: " + v->type.str();
    return std::nullopt;
  }
  if (v->def() && !isCopy(v->def())) {
    why = "it is no copy but " + v->def()->describe();
    return std::nullopt;
  }
  BackwardSlice slice = backwardSlice(v, [](Value *u) { return !isCopy(u->def()); });
  HeadLayout l;
  l.heads = *heads;
  l.headDim = *headDim;
  for (Value *leaf : slice.leaves) {
    if (!leaf->def() && isFloat(leaf->type.dtype) && leaf->type.rank() >= 4 && !l.pastSource)
      l.pastSource = leaf;
    else if (leaf->type.rank() == 3 && !l.source)
      l.source = leaf;
    else {
      why = "besides copies it depends on " +
            (leaf->def() ? leaf->def()->describe() : "argument " + leaf->name);
      return std::nullopt;
    }
  }
  if (!l.source) {
    why = "it is not copied from one [batch, tokens, width] tensor";
    return std::nullopt;
  }
  for (unsigned trial = 0; trial < trials; ++trial) {
    SymbolMap symbols = probeSymbols(f, trial);
    auto sourceShape = concreteShape(l.source->type, symbols);
    if (!sourceShape)
      continue;
    Executor::Bindings bound{{l.source, iotaTensor(*sourceShape)}};
    int64_t past = 0;
    double base = 1e9;
    llvm::SmallVector<int64_t, 4> pastShape;
    if (l.pastSource) {
      auto shape = concreteShape(l.pastSource->type, symbols);
      if (!shape)
        continue;
      pastShape = *shape;
      past = pastShape[pastShape.size() - 2];
      Tensor t = iotaTensor(pastShape);
      for (int64_t i = 0; i < t.count(); ++i)
        t.data<double>()[i] += base;
      bound[l.pastSource] = t;
    }
    auto elements = probe(f, v, bound, symbols, &why);
    if (!elements)
      return std::nullopt;
    int64_t tokens = elements->dim(transposed ? 3 : 2);
    if (elements->dim(0) != (*sourceShape)[0] || tokens != past + (*sourceShape)[1]) {
      why = "its number of sequences or tokens is not that of its source";
      return std::nullopt;
    }
    Numbering n{*elements, transposed};
    if (!checkCurrent(n, *sourceShape, past, l, trial == 0) ||
        (l.pastSource && !checkPast(n, pastShape, base, l))) {
      why = "its elements are not laid out by heads";
      return std::nullopt;
    }
  }
  return l;
}

//===-- masks
//-------------------------------------------------------------------------------------===//

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

struct Trial {
  Tensor scores, probabilities;
  std::optional<Tensor> mask; // [batch, key]
  int64_t offset = 0;         // keys before the first query: key - query count
};

/// softmax(scale * scores) over visible keys against what the graph computed; the largest
/// difference over rows that see at least one key, and where it is.
static double compare(const Trial &t, double scale, bool causal, std::string &where) {
  auto s = t.scores.shape();
  int64_t batch = s[0], heads = s[1], queries = s[2], keys = s[3];
  double worst = 0;
  auto visible = [&](int64_t b, int64_t q, int64_t k) {
    return (!causal || k <= q + t.offset) && (!t.mask || t.mask->asInt(b * keys + k) != 0);
  };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < queries; ++q) {
        const double *x = t.scores.data<double>() + ((b * heads + h) * queries + q) * keys;
        const double *p = t.probabilities.data<double>() + ((b * heads + h) * queries + q) * keys;
        double highest = -INFINITY, sum = 0;
        for (int64_t k = 0; k < keys; ++k)
          if (visible(b, q, k))
            highest = std::max(highest, scale * x[k]);
        if (std::isinf(highest))
          continue;
        for (int64_t k = 0; k < keys; ++k)
          if (visible(b, q, k))
            sum += std::exp(scale * x[k] - highest);
        for (int64_t k = 0; k < keys; ++k) {
          double expected = visible(b, q, k) ? std::exp(scale * x[k] - highest) / sum : 0;
          double d = std::abs(p[k] - expected);
          if (std::isnan(d) || d > worst) {
            worst = std::isnan(d) ? INFINITY : d;
            where = "query " + std::to_string(q) + ", key " + std::to_string(k) + " of " +
                    std::to_string(keys);
          }
        }
      }
  return worst;
}

/// Numbers of keys at which constants of the sub-graph come to bear, largest first: a window of 256
/// keys is a causal mask to shorter sequences.
static llvm::SmallVector<int64_t> tellingLengths(const BackwardSlice &slice) {
  constexpr int64_t longest = 2048;
  llvm::SmallVector<int64_t> lengths;
  auto add = [&](double number) {
    if (number > 8 && number <= longest && number == std::floor(number))
      lengths.push_back(int64_t(number));
  };
  for (Op *op : slice.ops) {
    if (auto c = op->is(OpCode::Constant) ? scalarConstant(op->result()) : std::nullopt)
      add(std::abs(*c) + 2);
    else if (op->is(OpCode::Constant) && op->constant.rank() >= 2)
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

/// One head of one sequence with `keys` keys and a mask of ones; none where the sub-graph cannot be
/// run so.
static std::optional<Trial> longTrial(const Function &f, Value *scores, Value *probabilities,
                                      Value *keyMask, int64_t keys) {
  SymbolMap symbols = probeSymbols(f, 2);
  auto symbol = scores->type.shape[2].asSymbol();
  if (!symbol)
    return std::nullopt;
  symbols[*symbol] = 0;
  auto past = scores->type.shape[3].evaluate(symbols);
  symbols[*symbol] = keys - past.value_or(keys);
  auto shape = concreteShape(scores->type, symbols);
  if (!past || !shape || (*shape)[2] < 1 || (*shape)[3] != keys)
    return std::nullopt;
  (*shape)[1] = 1;
  Trial t;
  t.scores = randomTensor(*shape, 23, 3.0);
  t.offset = keys - (*shape)[2];
  Executor::Bindings bound{{scores, t.scores}};
  if (keyMask) {
    t.mask = maskOfKind(0, {(*shape)[0], keys}, keyMask->type.dtype);
    bound[keyMask] = *t.mask;
  }
  auto p = probe(f, probabilities, bound, symbols);
  if (!p || p->shape() != t.scores.shape())
    return std::nullopt;
  t.probabilities = *p;
  return t;
}

std::optional<MaskedSoftmax> probeMaskedSoftmax(const Function &f, Value *scores,
                                                Value *probabilities, std::string &why) {
  if (scores->type.rank() != 4 || probabilities->type.rank() != 4) {
    why = "scores have rank " + std::to_string(scores->type.rank()) + " instead of 4";
    return std::nullopt;
  }
  BackwardSlice slice = backwardSlice(probabilities, [&](Value *v) { return v == scores; });
  MaskedSoftmax result;
  for (Value *leaf : slice.leaves) {
    if (leaf == scores)
      continue;
    if (leaf->type.rank() != 2 || result.keyMask) {
      why = "between scores and probabilities the graph also reads argument " + leaf->name + " " +
            leaf->type.str() + ", which is not an attention mask [batch, keys]";
      return std::nullopt;
    }
    result.keyMask = leaf;
  }

  std::vector<Trial> runs;
  for (unsigned trial = 0; trial < trials; ++trial) {
    SymbolMap symbols = probeSymbols(f, trial);
    auto shape = concreteShape(scores->type, symbols);
    if (!shape)
      continue;
    for (unsigned kind = 0; kind < (result.keyMask ? 4u : 1u); ++kind) {
      Trial t;
      t.scores = randomTensor(*shape, 17 + trial, 3.0);
      Executor::Bindings bound{{scores, t.scores}};
      t.offset = (*shape)[3] - (*shape)[2];
      if (result.keyMask) {
        auto maskShape = concreteShape(result.keyMask->type, symbols);
        if (!maskShape || (*maskShape)[1] != (*shape)[3]) {
          why = "the attention mask " + result.keyMask->type.str() +
                " does not have one entry per key of " + scores->type.str();
          return std::nullopt;
        }
        t.mask = maskOfKind(kind, *maskShape, result.keyMask->type.dtype);
        bound[result.keyMask] = *t.mask;
      }
      auto p = probe(f, probabilities, bound, symbols, &why);
      if (!p)
        return std::nullopt;
      if (p->shape() != t.scores.shape()) {
        why = "the probabilities do not have the shape of the scores";
        return std::nullopt;
      }
      t.probabilities = *p;
      runs.push_back(std::move(t));
    }
  }
  if (runs.empty()) {
    why = "the shape of the scores is not known: " + scores->type.str();
    return std::nullopt;
  }

  for (int64_t keys : tellingLengths(slice))
    if (auto t = longTrial(f, scores, probabilities, result.keyMask, keys)) {
      runs.push_back(std::move(*t));
      break;
    }

  // The last query of the first run sees every key under all kinds of mask: log p is scale * score
  // + constant there.
  const Trial &t = runs.front();
  int64_t keys = t.scores.dim(3), queries = t.scores.dim(2);
  const double *x = t.scores.data<double>() + (queries - 1) * keys;
  const double *p = t.probabilities.data<double>() + (queries - 1) * keys;
  if (keys < 2 || !(p[0] > 0) || !(p[1] > 0)) {
    why = "the last query does not see the first keys";
    return std::nullopt;
  }
  result.scale = (std::log(p[0]) - std::log(p[1])) / (x[0] - x[1]);

  std::string reasons[2];
  for (bool causal : {true, false}) {
    double worst = 0;
    std::string where;
    for (const Trial &run : runs) {
      std::string place;
      double d = compare(run, result.scale, causal, place);
      if (d > worst) {
        worst = d;
        where = place;
      }
    }
    if (worst <= 1e-6) {
      result.causal = causal;
      return result;
    }
    reasons[causal] = "differs by " + std::to_string(worst) + " at " + where;
  }
  why = "it is not softmax(" + std::to_string(result.scale) + " * scores) under a causal mask (" +
        reasons[1] + ") nor without a mask (" + reasons[0] + ")";
  return std::nullopt;
}

} // namespace gpt2c
