#include "AttentionCases.h"

#include "StateBytes.h"

#include "ir/ops/Quantize.h"
#include "runtime/device/SharedPrefixes.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gpt2c::kernels {

size_t kvIndex(const AttentionConfig &c, int batchMax, int context, int part, int b, int h, int j) {
  constexpr size_t layer = 1;
  return ((((layer * 2 + part) * batchMax + b) * stateHeads(c) + h) * context + j) * c.headDim;
}

namespace {
std::string labelOf(const AttentionInstance &instance, const AttentionSizes &s) {
  const AttentionConfig &c = instance.c;
  std::string label =
      "/" + typeName(c.x) +
      (c.kv == Scalar::I8       ? " int8 state"
       : c.kv == Scalar::F8E4M3 ? " fp8 state"
                                : "") +
      " heads " + std::to_string(c.heads) + (c.kvHeads ? " of " + std::to_string(c.kvHeads) : "") +
      (c.append ? " append" : "") + (c.causal ? " causal" : "") +
      (c.pageTokens ? " pages " + std::to_string(c.pageTokens) : "") +
      (c.window ? " window " + std::to_string(c.window) : "") + (c.softCap > 0 ? " soft cap" : "") +
      (c.alibi ? " alibi" : "") + (c.mask ? " mask" : "") + (s.hideRow ? " hidden row" : "") +
      (s.wide ? " wide" : "") + (c.headNorm ? " norm" : "") +
      (c.ropePairs ? " rope " + std::to_string(c.ropePairs) : "") +
      (c.ropeInterleaved ? " interleaved" : "") + (instance.cluster ? " cluster" : "") +
      (!c.quantise          ? ""
       : c.to == Scalar::I8 ? " quantised"
                            : " quantised to fp8") +
      (c.given == Given::None           ? ""
       : c.given == Given::ScaleAndZero ? " given with zero"
                                        : " given") +
      (c.last ? " last" : "") + "/" + instance.config + "/batch " + std::to_string(s.batch) +
      " seq " + std::to_string(s.seq) + " context " + std::to_string(s.context) + " past";
  for (int p : s.past)
    label += " " + std::to_string(p);
  if (s.sets)
    label += " sets " + std::to_string(s.sets) + " of pages " + std::to_string(s.sharedPages);
  return label;
}

/// The operands of a case and its reference.
struct AttentionCase {
  static constexpr int layers = 2, layer = 1;
  const AttentionInstance &instance;
  const AttentionSizes &s;
  const AttentionConfig &c = instance.c;
  const int batchMax = s.batch + 1, width = c.heads * c.headDim;
  const int row = width + 2 * stateHeads(c) * c.headDim;
  const int queries = c.last ? 1 : s.seq; ///< of each sequence that are computed
  const std::vector<int> past = pastOf(s);
  const int columns = c.pageTokens ? (s.context + c.pageTokens - 1) / c.pageTokens : 0;
  const int pages = columns * s.batch + s.sets * s.sharedPages + 1;
  const int context = c.pageTokens ? columns * c.pageTokens : s.context; ///< there is room for
  const int maxTotal = *std::max_element(past.begin(), past.end()) + s.seq;
  const float scale = 1 / std::sqrt((float)c.headDim), gainEpsilon = 3;
  std::vector<int> length, mask, tables;
  const int places = maxTotal - 1; ///< of the tables of angles: the last position shares a row
  Tensor qkv, kv, out, outScale, pastTensor, lengthTensor, maskTensor, tablesTensor, partial,
      counters;
  rt::SharedPrefixes prefixes;
  Tensor prefixesTensor, tiles, prefixParts;
  Tensor cosines, sines, gains;
  std::vector<double> rows;  ///< qkv, turned
  std::vector<double> state; ///< after the append
  StateBytes bytes;          ///< the same, where its rows have scales
  std::vector<double> want, bound;

  AttentionCase(Run &run, const AttentionInstance &instance, const AttentionSizes &s);
  Arguments arguments() const;
  /// Of attention_prefix.
  Arguments prefixArguments() const;
  void compute();
  void expectResult(Run &run);

private:
  static std::vector<int> pastOf(const AttentionSizes &s) {
    std::vector<int> past = s.past.empty() ? std::vector<int>(s.batch, 0) : s.past;
    for (int &p : past)
      p = std::max(p, 0);
    return past;
  }
  /// Number `at` of a sequence's pages.
  int pageOf(int b, int at) const {
    const int own = b * columns + at, ofSets = s.batch * columns,
              full = past[b] / std::max(c.pageTokens, 1);
    const int shared = s.sets ? std::min(full, s.sharedPages - b / s.sets % 2) : 0;
    // 101 has no factor in common with the few there are.
    return isNobody(b)
               ? -1
               : (at < shared ? ofSets + b % s.sets * s.sharedPages + at : own) * 101 % (pages - 1);
  }
  void findPrefixes(Run &run);
  bool isNobody(int b) const { return !s.past.empty() && s.past[b] < 0; }
  /// The first element of key or value `j` of a sequence.
  size_t stateIndex(int part, int b, int h, int j) const {
    if (!c.pageTokens)
      return kvIndex(c, batchMax, s.context, part, b, h, j);
    const size_t page = tables[size_t(b) * columns + j / c.pageTokens];
    return ((((page * layers + layer) * 2 + part) * stateHeads(c) + h) * c.pageTokens +
            j % c.pageTokens) *
           c.headDim;
  }
  /// Element d of the key or value (`part` 0 or 1) of a new token.
  double fresh(int part, int b, int t, int h, int d) const {
    const int head = c.heads + part * stateHeads(c) + h;
    return rows[((size_t)b * s.seq + t) * row + head * c.headDim + d];
  }
  /// Heads that are normed become signs, or half of them and half five times that: their mean
  /// square and gainEpsilon are 4 or 16, and what is normed is exact.
  void makeNormsExact(Run &run, std::vector<double> &values) const;
  void normHeads();
  void turn();
  void append();
  bool isOfBytes() const { return isQuantised(c.kv); }
  /// New keys and values become what a state of bytes has of them, and are appended to it.
  void appendBytes();
  /// The value of query `q` of a head.
  void computeQuery(int b, int q, int h);
};

void AttentionCase::makeNormsExact(Run &run, std::vector<double> &values) const {
  const std::vector<int> kinds =
      run.integers((size_t)s.batch * s.seq * (c.heads + stateHeads(c)), 0, 1);
  size_t head = 0;
  for (size_t token = 0; token < (size_t)s.batch * s.seq; ++token)
    for (int h = 0; h < c.heads + stateHeads(c); ++h, ++head)
      for (int d = 0; d < c.headDim; ++d) {
        double &v = values[token * row + h * c.headDim + d];
        v = std::copysign(kinds[head] && d % 2 ? 5 : 1, v);
      }
}

AttentionCase::AttentionCase(Run &run, const AttentionInstance &of, const AttentionSizes &sizes)
    : instance(of), s(sizes), length(s.batch) {
  for (int b = 0; b < s.batch; ++b)
    length[b] = s.seq - b * 5 % s.seq;
  std::vector<double> values = run.normal((size_t)s.batch * s.seq * row, s.wide ? 3.0 : 1.0);
  if (c.headNorm)
    makeNormsExact(run, values);
  qkv = run.input(std::move(values), c.x);
  const int tokens = c.pageTokens ? pages * c.pageTokens : batchMax * s.context; // of the state
  std::vector<double> held = run.normal((size_t)layers * 2 * tokens * stateHeads(c) * c.headDim);
  if (isOfBytes()) {
    bytes = StateBytes(c.kv, c.pageTokens ? c.pageTokens : s.context, c.headDim, held);
    kv = run.integerInput(bytes.words());
    kv.values = std::move(held);
  } else {
    kv = run.input(std::move(held), c.kv);
  }
  for (int b = 0; b < s.batch; ++b)
    for (int at = 0; at < columns; ++at)
      tables.push_back(pageOf(b, at));
  tablesTensor = run.integerInput(tables);
  out = run.output((size_t)s.batch * queries * width, valueType(c));
  outScale = run.output((size_t)s.batch * s.seq * c.heads, Scalar::F32);
  pastTensor = run.integerInput(past);
  lengthTensor = run.integerInput(length);
  mask = run.integers((size_t)s.batch * maxTotal, 0, 3);
  if (s.hideRow)
    std::fill(mask.begin(), mask.begin() + maxTotal, 0);
  maskTensor = run.integerInput(mask);
  partial = run.output((size_t)s.batch * s.seq * c.heads * instance.splits * (c.headDim + 2),
                       Scalar::F32);
  counters = run.zeroed((size_t)s.batch * s.seq * c.heads * 4);
  // Quarters: turned elements in half precision are exact before they are rounded.
  auto quarters = [&](size_t count, Scalar type) {
    const std::vector<int> q = run.integers(count, -4, 5);
    std::vector<double> values(q.begin(), q.end());
    for (double &v : values)
      v /= 4;
    return run.input(values, type);
  };
  const size_t angles = (size_t)std::max(places, 1) * std::max(c.ropePairs, 1);
  cosines = quarters(angles, c.ropeTable);
  sines = quarters(angles, c.ropeTable);
  if (c.headNorm)
    gains = quarters((size_t)(c.heads + stateHeads(c)) * c.headDim, Scalar::F32);
  if (c.prefixes)
    findPrefixes(run);
  rows = qkv.values;
  state = kv.values;
  want.resize(out.values.size());
  bound.resize(want.size());
}

void AttentionCase::findPrefixes(Run &run) {
  prefixes = rt::sharedPrefixes(past, tables, columns,
                                {.pageTokens = c.pageTokens,
                                 .members = instance.members,
                                 .tiles = 64,
                                 .blocks = 8,
                                 .pageBytes = 1 << 30});
  prefixesTensor = run.integerInput(prefixes.sequences);
  tiles = run.integerInput(prefixes.tiles);
  prefixParts =
      run.output((size_t)s.batch * c.heads * rt::mostPrefixParts * (c.headDim + 8), Scalar::F32);
}

Arguments AttentionCase::prefixArguments() const {
  Arguments list = {{"qkv", &qkv},
                    {"kv", &kv},
                    {"tables", &tablesTensor},
                    {"tiles", &tiles},
                    {"prefixParts", &prefixParts},
                    {"layer", layer},
                    {"layers", layers},
                    {"tableStride", columns},
                    {"scale", scale}};
  list.offer("past", &pastTensor);
  list.offer("cosines", &cosines).offer("sines", &sines).offer("places", std::max(places, 1));
  list.offer("gains", &gains).offer("gainEpsilon", gainEpsilon);
  return list;
}

Arguments AttentionCase::arguments() const {
  auto orNull = [](bool present, const Tensor &t) {
    return present ? Argument(&t) : Argument(nullptr);
  };
  Arguments list = {
      {"kv", &kv},      {"out", &out},        {"past", orNull(!s.past.empty(), pastTensor)},
      {"layer", layer}, {"context", context}, {"seq", s.seq},
      {"scale", scale}};
  if (c.pageTokens) {
    list.set("tables", &tablesTensor);
    list.set("layers", layers);
    list.set("tableStride", columns);
  } else {
    list.set("batchMax", batchMax);
    list.offer("keyMask", orNull(c.mask, maskTensor));
    list.offer("maskStride", maxTotal);
  }
  if (instance.maps) {
    const uint64_t matrices = uint64_t(layers) * 2 * batchMax * stateHeads(c);
    list.set("qkvMap", MapOf{&qkv, s.seq, row, 64, uint64_t(s.batch)});
    list.set("kvMap", MapOf{&kv, s.context, c.headDim, 64, matrices});
    list.offer("backwards", s.seq % 2);
  } else {
    list.set("qkv", &qkv);
  }
  if (c.quantise && c.given == Given::None)
    list.set("outScale", &outScale);
  if (c.last)
    list.set("length", &lengthTensor);
  if (c.ropePairs > 0) {
    list.set("cosines", &cosines);
    list.set("sines", &sines);
    list.set("places", std::max(places, 1));
  }
  if (c.headNorm) {
    list.set("gains", &gains);
    list.set("gainEpsilon", gainEpsilon);
  }
  list.offer("prefixes", &prefixesTensor).offer("prefixParts", &prefixParts);
  list.offer("partial", orNull(instance.splits > 1, partial));
  list.offer("counters", orNull(instance.splits > 1, counters));
  setGiven(c.given, list);
  return list;
}

void AttentionCase::normHeads() {
  for (size_t token = 0; token < (size_t)s.batch * s.seq; ++token)
    for (int h = 0; h < c.heads + stateHeads(c); ++h) {
      double *head = &rows[token * row + h * c.headDim], squares = 0;
      for (int d = 0; d < c.headDim; ++d)
        squares += head[d] * head[d];
      const double factor = 1 / std::sqrt(squares / c.headDim + gainEpsilon);
      for (int d = 0; d < c.headDim; ++d)
        head[d] *= factor * gains.values[h * c.headDim + d];
    }
}

void AttentionCase::turn() {
  if (c.headNorm)
    normHeads();
  for (int b = 0; b < s.batch; ++b)
    for (int t = 0; t < s.seq; ++t)
      for (int h = 0; h < c.heads + stateHeads(c); ++h)
        for (int k = 0; k < c.ropePairs; ++k) {
          const size_t at = ((size_t)b * s.seq + t) * row + h * c.headDim;
          const size_t i = at + (c.ropeInterleaved ? 2 * k : k),
                       j = at + (c.ropeInterleaved ? 2 * k + 1 : c.ropePairs + k);
          const size_t angle =
              (size_t)std::min(past[b] + t, std::max(places, 1) - 1) * c.ropePairs + k;
          const double cosine = cosines.values[angle], sine = sines.values[angle];
          const double x = rows[i], y = rows[j];
          rows[i] = x * cosine - y * sine;
          rows[j] = x * sine + y * cosine;
        }
  for (double &v : rows)
    v = rounded(v, c.x);
}

void AttentionCase::append() {
  for (int b = 0; b < s.batch; ++b)
    for (int t = 0; t < s.seq && past[b] + t < context && !isNobody(b); ++t)
      for (int part = 0; part < 2; ++part)
        for (int h = 0; h < stateHeads(c); ++h)
          for (int d = 0; d < c.headDim; ++d)
            state[stateIndex(part, b, h, past[b] + t) + d] = rounded(fresh(part, b, t, h, d), c.kv);
}

void AttentionCase::appendBytes() {
  for (int b = 0; b < s.batch; ++b)
    for (int t = 0; t < s.seq; ++t)
      for (int part = 0; part < 2; ++part)
        for (int h = 0; h < stateHeads(c); ++h) {
          const int head = c.heads + part * stateHeads(c) + h;
          double *from = &rows[((size_t)b * s.seq + t) * row + (size_t)head * c.headDim];
          if (past[b] + t >= context || isNobody(b)) {
            roundRow(c.kv, from, c.headDim);
            continue;
          }
          const size_t at = stateIndex(part, b, h, past[b] + t);
          bytes.set(at / c.headDim, from);
          std::copy_n(from, c.headDim, &state[at]);
        }
}

/// 2^(-8 (h + 1) / n) of n heads, where n is a power of 2; else of the first as many heads as the
/// power below n, and of the others every second one of twice as many.
static double slopeOf(int h, int heads) {
  const double below = std::exp2(std::floor(std::log2(double(heads))));
  return h < below ? std::pow(2, -8 * (h + 1) / below)
                   : std::pow(2, -8 * (2 * (h - below) + 1) / (2 * below));
}

void AttentionCase::computeQuery(int b, int q, int h) {
  const int t = c.last ? length[b] - 1 : q, group = c.heads / stateHeads(c);
  int keys = c.causal ? past[b] + t + 1 : past[b] + s.seq;
  if (!c.append)
    keys = std::min(keys, context);
  auto element = [&](int part, int j, int d) {
    if (c.append && j >= past[b])
      return fresh(part, b, j - past[b], h / group, d);
    return state[stateIndex(part, b, h / group, j) + d];
  };
  std::vector<double> weight(keys, -INFINITY);
  double top = -INFINITY, sum = 0;
  for (int j = 0; j < keys; ++j) {
    if (c.mask && mask[(size_t)b * maxTotal + j] == 0)
      continue;
    if (c.window && j <= past[b] + t - c.window)
      continue;
    weight[j] = 0;
    for (int d = 0; d < c.headDim; ++d)
      weight[j] += rows[((size_t)b * s.seq + t) * row + h * c.headDim + d] * element(0, j, d);
    weight[j] *= scale;
    if (c.softCap > 0)
      weight[j] = c.softCap * std::tanh(weight[j] / c.softCap);
    if (c.alibi)
      weight[j] += slopeOf(h, c.heads) * (j - past[b] - t);
    top = std::max(top, weight[j]);
  }
  for (double &w : weight)
    sum += w = w == -INFINITY ? 0 : std::exp(w - top);
  for (int d = 0; d < c.headDim; ++d) {
    double value = 0, magnitude = 0;
    for (int j = 0; j < keys; ++j)
      if (weight[j] > 0) {
        double p = weight[j] / sum * element(1, j, d);
        value += p;
        magnitude += std::fabs(p);
      }
    size_t at = (((size_t)b * queries + q) * c.heads + h) * c.headDim + d;
    want[at] = value;
    bound[at] = magnitude * instance.tolerance + 1e-7;
  }
}

void AttentionCase::compute() {
  turn();
  if (c.append && isOfBytes())
    appendBytes();
  else if (c.append)
    append();
  for (int b = 0; b < s.batch; ++b)
    for (int q = 0; q < queries; ++q)
      for (int h = 0; h < c.heads; ++h)
        computeQuery(b, q, h);
}

void AttentionCase::expectResult(Run &run) {
  if (c.given != Given::None) {
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = givenValue(c.given, want[i]);
      bound[i] = bound[i] * givenInverse + halfStep(c.to, want[i]);
    }
    run.expectNear(out, want, 0, bound);
  } else if (c.quantise) {
    std::vector<double> scales = run.read(outScale), wantScales(scales.size()),
                        scaleBound(scales.size());
    for (size_t g = 0; g < scales.size(); ++g) {
      double largest = 0;
      for (int d = 0; d < c.headDim; ++d) {
        const size_t at = g * c.headDim + d;
        largest = std::max(largest, std::fabs(want[at]));
        scaleBound[g] = std::max(scaleBound[g], bound[at] / stepsOf(c.to));
        want[at] /= scales[g];
        bound[at] = bound[at] / scales[g] + halfStep(c.to, want[at]);
      }
      wantScales[g] = largest == 0 ? 1 : largest / stepsOf(c.to);
    }
    run.expectNear(outScale, wantScales, 1e-6, scaleBound);
    run.expectNear(out, want, 0, bound);
  } else {
    run.expectNear(out, want, roundingOf(c.x, 2e-6), bound);
  }
  if (isOfBytes()) {
    if (!run.isDry())
      run.expectEqual(run.readIntegers(kv), bytes.words(), "the state");
    return;
  }
  // In fp32 what is turned has roundings of its own.
  const bool exact = c.ropePairs == 0 || c.x != Scalar::F32;
  run.expectNear(kv, state, exact ? 0 : 1e-6,
                 exact ? std::vector<double>() : std::vector<double>(state.size(), 1e-6));
}
} // namespace

void attention(Suite &suite, const AttentionInstance &instance,
               const std::vector<AttentionSizes> &sizes) {
  const AttentionConfig &c = instance.c;
  // A group is a module, and modules are compiled in parallel.
  const std::string group =
      instance.name + " head_dim " + std::to_string(c.headDim) +
      (c.kvHeads ? " shared " + std::to_string(c.heads / c.kvHeads) + (c.ropePairs ? " rope" : "")
                 : "");
  const int id = suite.kernel(group, instance.make),
            prefix = c.prefixes ? suite.kernel(group, instance.makePrefix) : -1;
  for (const AttentionSizes &s : sizes)
    suite.test(
        {group + labelOf(instance, s), double(s.batch) * s.seq * s.context * c.heads * c.headDim},
        [=](Run &run) {
          AttentionCase p(run, instance, s);
          if (!run.isDry())
            p.compute();
          const Arguments arguments = p.arguments();
          const Grid grid = instance.grid(s, p.queries);
          auto launch = [&] {
            if (p.prefixes.count > 0)
              run.launch(prefix, blocks(stateHeads(c), p.prefixes.count, 1), p.prefixArguments());
            run.launch(id, grid, arguments);
          };
          run.expect(!c.prefixes || p.prefixes.count > 0 || s.sets == 0, "there are no prefixes");
          launch();
          p.expectResult(run);
          std::vector<double> first = run.read(p.out);
          launch();
          run.expect(run.read(p.out) == first, "a second launch gave other bits");
        },
        instance.maps);
}

std::vector<AttentionSizes> decodeSizes() {
  return {{1, 1, 8, {}},
          {1, 1, 600, {511}},
          {3, 1, 40, {0, 7, 39}},
          {2, 3, 50, {1, 30}},
          {2, 1, 70, {64, 3}, true}};
}
std::vector<AttentionSizes> ringSizes() {
  return {{3, 1, 300, {0, 17, 299}}, {2, 4, 700, {690, 333}}};
}
std::vector<AttentionSizes> pageSizes() {
  return {{1, 1, 64, {0}},
          {4, 1, 200, {63, -1, 64, 199}},
          {1, 1, 2400, {2303}},
          {2, 3, 130, {126, 61}}};
}
std::vector<AttentionSizes> prefillSizes() {
  return {{1, 1, 8, {}},
          {1, 65, 80, {}},
          {2, 130, 300, {100, 7}},
          {2, 40, 50, {0, 30}},
          {2, 33, 90, {17, 3}, true}};
}
std::vector<AttentionSizes> sharedSizes() { return {{1, 65, 80, {}}, {2, 130, 300, {100, 7}}}; }

} // namespace gpt2c::kernels
