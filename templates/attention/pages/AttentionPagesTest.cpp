// attention_pages against float64: prompts and single steps of several sequences
// over shuffled pages.
#include "templates/attention/pages/AttentionPages.h"

#include "runtime/device/SharedPrefixes.h"
#include "templates/attention/kv_append/KvAppend.h"
#include "templates/attention/prefix/AttentionPrefix.h"
#include "tests/suite/kernels/StateBytes.h"
#include "tests/suite/kernels/Suite.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt2c::kernels {

namespace attention_pages_test {

/// A sequence: tokens in the state, new ones, and how many of those are a piece.
struct Part {
  int past, count, piece;
};

/// The pages of a layer (the second of two) and the rows of a call.
struct Call {
  PagedConfig c;
  std::vector<Part> parts;
  int rows = 0, tokens = 0, columns = 0, pages = 0;
  std::vector<int> pieces, tables, last;

  /// Sequences of one token begin with the same pages, full ones up to so many.
  static constexpr int sharedPages = 6;

  /// Behind the sequences' rows there are `nobodys`.
  Call(const PagedConfig &c, std::vector<Part> given, int nobodys = 0)
      : c(c), parts(std::move(given)) {
    for (const Part &p : parts)
      columns = std::max(columns, (p.past + p.count + c.pageTokens - 1) / c.pageTokens);
    const int ofAll = columns * int(parts.size());
    pages = ofAll + (c.prefixes ? sharedPages : 0) + 1;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part &p = parts[i];
      for (int t = 0; t < p.count; t += p.piece)
        pieces.insert(pieces.end(), {rows + t, std::min(p.piece, p.count - t), p.past + t, int(i)});
      rows += p.count;
      last.push_back(rows - 1);
      const int shared =
          c.prefixes && p.count == 1 ? std::min(p.past / c.pageTokens, sharedPages) : 0;
      for (int at = 0; at < columns; ++at) // 101 has no factor in common with the few there are
        tables.push_back((at < shared ? ofAll + at : int(i) * columns + at) * 101 % (pages - 1));
    }
    pieces.insert(pieces.end(), {0, 0, 0, 0}); // is nothing
    tokens = rows;
    rows += nobodys;
  }
  rt::SharedPrefixes prefixes(int members) const {
    std::vector<int> positions;
    for (const Part &p : parts)
      positions.push_back(p.count == 1 ? p.past : 0);
    return rt::sharedPrefixes(positions, tables, columns,
                              {.pageTokens = c.pageTokens,
                               .members = members,
                               .tiles = 64,
                               .blocks = 8,
                               .pageBytes = 1 << 30});
  }
  int pieceCount() const { return int(pieces.size()) / 4; }
  int width() const { return c.heads * c.headDim; }
  int row() const { return (c.heads + 2 * c.kvHeads) * c.headDim; }
  size_t state() const { return size_t(pages) * 2 * 2 * c.kvHeads * c.pageTokens * c.headDim; }
  /// The first element of key (0) or value (1) `position` of a sequence.
  size_t at(size_t sequence, int part, int head, int position) const {
    const size_t page = tables[sequence * columns + position / c.pageTokens];
    return ((((page * 2 + 1) * 2 + part) * c.kvHeads + head) * c.pageTokens +
            position % c.pageTokens) *
           c.headDim;
  }
  /// What pages hold where no token has been is no number.
  std::vector<double> withoutNews(std::vector<double> kv) const {
    for (size_t i = 0; i < parts.size(); ++i)
      for (int part = 0; part < 2; ++part)
        for (int h = 0; h < c.kvHeads; ++h)
          for (int t = parts[i].past; t < columns * c.pageTokens; ++t)
            std::fill_n(kv.begin() + ptrdiff_t(at(i, part, h, t)), c.headDim, NAN);
    return kv;
  }
  std::vector<double> appended(std::vector<double> kv, const std::vector<double> &qkv) const {
    int first = 0;
    for (size_t i = 0; i < parts.size(); first += parts[i++].count)
      for (int t = 0; t < parts[i].count; ++t)
        for (int part = 0; part < 2; ++part)
          for (int h = 0; h < c.kvHeads; ++h)
            for (int d = 0; d < c.headDim; ++d)
              kv[at(i, part, h, parts[i].past + t) + d] =
                  qkv[size_t(first + t) * row() + width() + (part * c.kvHeads + h) * c.headDim + d];
    return kv;
  }
  /// Of all rows, and the sums of magnitudes that errors are relative to.
  void attend(const std::vector<double> &kv, const std::vector<double> &qkv, double scale,
              std::vector<double> &want, std::vector<double> &magnitude) const {
    int first = 0;
    for (size_t i = 0; i < parts.size(); first += parts[i++].count)
      for (int t = 0; t < parts[i].count; ++t)
        for (int h = 0; h < c.heads; ++h) {
          const int head = h / (c.heads / c.kvHeads), keys = parts[i].past + t + 1;
          const double *q = qkv.data() + size_t(first + t) * row() + h * c.headDim;
          const int hidden = c.window > 0 ? std::max(0, keys - c.window) : 0;
          std::vector<double> p(keys, -INFINITY);
          for (int j = hidden; j < keys; ++j) {
            p[j] = 0;
            for (int d = 0; d < c.headDim; ++d)
              p[j] += scale * q[d] * kv[at(i, 0, head, j) + d];
          }
          const double top = *std::ranges::max_element(p);
          for (double &v : p)
            v = std::exp(v - top);
          const double sum = std::accumulate(p.begin(), p.end(), 0.0);
          for (int d = 0; d < c.headDim; ++d) {
            double y = 0, size = 0;
            for (int j = 0; j < keys; ++j) {
              const double v = kv[at(i, 1, head, j) + d];
              y += p[j] / sum * v;
              size += p[j] / sum * std::abs(v);
            }
            want[size_t(first + t) * width() + h * c.headDim + d] = y;
            magnitude[size_t(first + t) * width() + h * c.headDim + d] = size;
          }
        }
  }
};

std::string typeOf(const PagedConfig &c) { // fp16, where no name is said
  const char *rows = c.x == Scalar::F16 ? "" : c.x == Scalar::BF16 ? " bf16" : " fp32";
  return std::string(rows) + (c.kv() == Scalar::I8       ? " int8 state"
                              : c.kv() == Scalar::F8E4M3 ? " fp8 state"
                                                         : "");
}

/// The kernel that appends to a state of bytes; none: attention does.
std::optional<int> appendKernel(Suite &suite, const PagedConfig &c) {
  if (!c.bytes)
    return std::nullopt;
  return suite.kernel("attention_pages", [&](llvm::StringRef name) {
    return kvAppendPages(name, {.x = c.x,
                                .kv = *c.bytes,
                                .headDim = c.headDim,
                                .heads = c.heads,
                                .kvHeads = c.kvHeads,
                                .pageTokens = c.pageTokens});
  });
}
void launchAppend(Run &run, int kernel, const Call &call, const Tensor &qkv, const Tensor &kv,
                  const Tensor &pieces, const Tensor &tables) {
  const Grid grid = {rt::constantExpr(call.c.pieceTokens()), rt::constantExpr(call.pieceCount()),
                     rt::constantExpr(1)};
  run.launch(kernel, grid,
             {{"qkv", &qkv},
              {"kv", &kv},
              {"pieces", &pieces},
              {"tables", &tables},
              {"layer", 1},
              {"layers", 2},
              {"tableStride", call.columns}});
}

/// The state of a call on the device, and as it is behind it.
struct State {
  Tensor kv;
  std::vector<double> after; ///< what keys and values are
  StateBytes bytes;

  State(Run &run, const Call &call, std::vector<double> before, const std::vector<double> &qkv) {
    const PagedConfig &c = call.c;
    if (!c.bytes) {
      kv = run.input(std::move(before), c.x);
      after = call.appended(kv.values, qkv);
      return;
    }
    bytes = StateBytes(*c.bytes, c.pageTokens, c.headDim, before);
    kv = run.integerInput(bytes.words());
    after = call.appended(std::move(before), qkv);
    for (size_t i = 0; i < call.parts.size(); ++i)
      for (int t = 0; t < call.parts[i].count; ++t)
        for (int part = 0; part < 2; ++part)
          for (int h = 0; h < c.kvHeads; ++h) {
            const size_t at = call.at(i, part, h, call.parts[i].past + t);
            bytes.set(at / c.headDim, &after[at]);
          }
  }
  void expect(Run &run) const {
    if (bytes.count() == 0)
      run.expectNear(kv, after, 0, {});
    else if (!run.isDry())
      run.expectEqual(run.readIntegers(kv), bytes.words(), "the state");
  }
};

/// Keys that sequences of one token share, computed before attention.
struct Prefix {
  rt::SharedPrefixes found;
  Tensor sequences, tiles, last, parts;

  Prefix(Run &run, const Call &call) {
    if (!call.c.prefixes)
      return;
    found = call.prefixes(prefixOf(call.c, 4).members());
    run.expect(found.count > 0, "there are no prefixes");
    sequences = run.integerInput(found.sequences);
    tiles = run.integerInput(found.tiles);
    last = run.integerInput(call.last);
    parts = run.output(
        call.parts.size() * call.c.heads * rt::mostPrefixParts * (call.c.headDim + 8), Scalar::F32);
  }
  void launch(Run &run, int kernel, const Call &call, const Tensor &qkv, const Tensor &kv,
              const Tensor &tables, double scale) const {
    run.launch(kernel, blocks(call.c.kvHeads, found.count, 1),
               {{"qkv", &qkv},
                {"kv", &kv},
                {"rows", &last},
                {"tables", &tables},
                {"tiles", &tiles},
                {"prefixParts", &parts},
                {"layer", 1},
                {"layers", 2},
                {"tableStride", call.columns},
                {"scale", float(scale)}});
  }
};

template <typename Config>
void addCase(Suite &suite, const Config &c, const std::string &what,
             const std::vector<Part> &parts) {
  constexpr bool wide = std::is_same_v<Config, AttentionPagesWideConfig>,
                 wgmma = wide || std::is_same_v<Config, AttentionPagesWgmmaConfig>,
                 ordered = std::is_same_v<Config, AttentionPagesOrderedConfig>;
  const char *group = wide    ? "attention_pages_wide"
                      : wgmma ? "attention_pages_wgmma"
                              : "attention_pages";
  int attention =
      suite.kernel(group, [&](llvm::StringRef name) { return attentionPages(name, c); });
  const std::optional<int> append = appendKernel(suite, c);
  const int prefix = c.prefixes ? suite.kernel("attention_pages",
                                               [&](llvm::StringRef name) {
                                                 return attentionPrefix(name, prefixOf(c, 4));
                                               })
                                : -1;
  const std::string sizes =
      "head_dim " + std::to_string(c.headDim) + " heads " + std::to_string(c.kvHeads) + " of " +
      std::to_string(c.heads) + " splits " + std::to_string(c.splits) + " " + what +
      (wide           ? " wide"
       : wgmma        ? " wgmma"
       : c.groups > 1 ? " groups"
                      : "") +
      (ordered ? " ordered" : "") + (c.prefixes ? " prefixes" : "") + typeOf(c);
  suite.test("attention_pages/" + sizes, [=](Run &run) {
    const Call call(c, parts, 7);
    std::vector<double> rows = run.normal(size_t(call.rows) * call.row());
    std::fill(rows.begin() + ptrdiff_t(call.tokens) * call.row(), rows.end(), NAN);
    Tensor qkv = run.input(std::move(rows), c.x);
    State state(run, call, call.withoutNews(run.normal(call.state())), qkv.values);
    Tensor &kv = state.kv;
    Tensor out = run.output(size_t(call.rows) * call.width(), c.x);
    Tensor pieces = run.integerInput(call.pieces), tables = run.integerInput(call.tables);
    const int blocks = call.pieceCount() * c.heads;
    Tensor partial = run.zeroed(size_t(blocks) * c.splits * 16 * (c.headDim + 2) * 4),
           counters = run.zeroed(size_t(blocks) * 4);
    const double scale = 1 / std::sqrt(double(c.headDim));
    const Prefix shared(run, call);
    std::vector<double> want(size_t(call.rows) * call.width()), magnitude(want.size());
    if (!run.isDry())
      call.attend(state.after, qkv.values, scale, want, magnitude);
    std::fill(want.begin() + ptrdiff_t(call.tokens) * call.width(), want.end(), NAN);
    // In fp16 and bf16 probabilities are rounded, and what bytes stand for; in fp32 operands of
    // products are, twice.
    const double rounding = c.x == Scalar::F16 ? 6e-4 : c.x == Scalar::BF16 ? 8 * 6e-4 : 4e-6;
    for (double &m : magnitude)
      m *= c.bytes ? 3 * rounding : rounding;
    Arguments arguments = {{"qkv", &qkv},           {"kv", &kv},
                           {"out", &out},           {"pieces", &pieces},
                           {"tables", &tables},     {"partial", &partial},
                           {"counters", &counters}, {"layer", 1},
                           {"layers", 2},           {"tableStride", call.columns},
                           {"scale", float(scale)}};
    if (wgmma) {
      arguments.set("qkvMap", MapOf{&qkv, call.rows, call.row(), 64, 1});
      arguments.set("kvMap",
                    MapOf{&kv, 64, c.headDim, 64, uint64_t(call.pages) * 2 * 2 * c.kvHeads});
    }
    arguments.offer("prefixes", &shared.sequences).offer("prefixParts", &shared.parts);
    for (int turn = 0; turn < 2; ++turn) { // counters are zero again
      if (c.prefixes)
        shared.launch(run, prefix, call, qkv, kv, tables, scale);
      if (append)
        launchAppend(run, *append, call, qkv, kv, pieces, tables);
      run.launch(attention, gridOf(c, rt::constantExpr(call.pieceCount())), arguments);
      state.expect(run);
      run.expectNear(out, want, roundingOf(c.x, 1e-6), magnitude);
    }
  });
}

/// In order, rows have the same bits however their sequence is cut and whatever else there is.
void addOrderedCase(Suite &suite, const AttentionPagesOrderedConfig &c) {
  const int attention = suite.kernel("attention_pages",
                                     [&](llvm::StringRef name) { return attentionPages(name, c); });
  const std::optional<int> append = appendKernel(suite, c);
  suite.test("attention_pages/bits head_dim " + std::to_string(c.headDim) + " window " +
                 std::to_string(c.window) + typeOf(c),
             [=](Run &run) {
               const Call whole(c, {{700, 130, 64}, {0, 90, 64}, {2100, 20, 64}});
               Tensor qkv = run.input(run.normal(size_t(whole.rows) * whole.row()), c.x);
               Tensor kv = State(run, whole, run.normal(whole.state()), qkv.values).kv;
               std::vector<double> bits;
               for (int cut : {64, 17, 16, 5, 1}) {
                 const Call call(c, {{700, 130, cut}, {0, 90, cut}, {2100, 20, cut}});
                 Tensor out = run.output(size_t(call.rows) * call.width(), c.x);
                 Tensor pieces = run.integerInput(call.pieces),
                        tables = run.integerInput(call.tables);
                 Tensor none = run.zeroed(4);
                 const Arguments arguments = {{"qkv", &qkv},       {"kv", &kv},
                                              {"out", &out},       {"pieces", &pieces},
                                              {"tables", &tables}, {"partial", &none},
                                              {"counters", &none}, {"layer", 1},
                                              {"layers", 2},       {"tableStride", call.columns},
                                              {"scale", 0.3f}};
                 if (append)
                   launchAppend(run, *append, call, qkv, kv, pieces, tables);
                 run.launch(attention, gridOf(c, rt::constantExpr(call.pieceCount())), arguments);
                 if (run.isDry())
                   continue;
                 if (bits.empty())
                   bits = run.read(out);
                 run.expectNear(out, bits, 0, {});
               }
             });
}

/// Pieces of a sequence but the last have 64 tokens. They begin at pages and elsewhere, behind
/// pages that are full or not, or behind none.
const std::vector<Part> wholePieces = {{0, 1, 64},   {63, 1, 64},   {0, 130, 64},  {500, 1, 64},
                                       {70, 16, 64}, {0, 17, 64},   {200, 70, 64}, {37, 300, 64},
                                       {64, 64, 64}, {128, 40, 64}, {10, 64, 64},  {0, 65, 64},
                                       {449, 63, 64}};

void addWideCases(Suite &suite) {
  for (Scalar x : {Scalar::F16, Scalar::BF16}) {
    for (int headDim : {64, 80, 96, 128, 208, 256})
      for (int kvHeads : {1, 2}) {
        AttentionPagesWideConfig c = {
            {.x = x, .headDim = headDim, .heads = 2, .kvHeads = kvHeads, .splits = kvHeads}};
        addCase(suite, c, "whole pieces", wholePieces);
        c.window = 100;
        if (kvHeads == 1)
          addCase(suite, c, "window", wholePieces);
      }
    const AttentionPagesWideConfig c = {{.x = x, .headDim = 128, .heads = 2, .kvHeads = 1}};
    addCase(suite, c, "long prompt", {{1000, 1000, 64}, {2000, 3, 64}, {0, 1024, 64}});
    addCase(suite, c, "fewer rows than a tile", {{896, 17, 64}});
  }
}

void addWgmmaCases(Suite &suite) {
  const std::vector<Part> &mixed = wholePieces;
  for (Scalar x : {Scalar::F16, Scalar::BF16}) {
    const AttentionPagesWgmmaConfig c = {
        {.x = x, .headDim = 64, .heads = 4, .kvHeads = 4, .groups = 2}};
    for (int splits : {1, 4}) {
      AttentionPagesWgmmaConfig shared = c;
      shared.splits = splits;
      addCase(suite, shared, "mixed", mixed);
    }
    for (int kvHeads : {1, 2, 3}) {
      AttentionPagesWgmmaConfig shared = c;
      shared.heads = 6;
      shared.kvHeads = kvHeads;
      addCase(suite, shared, "shared", mixed);
    }
    addCase(suite, c, "long prompt", {{1000, 1000, 64}, {2000, 3, 64}, {0, 1024, 64}});
    addCase(suite, c, "one prompt", {{0, 512, 64}});
    AttentionPagesWgmmaConfig four = c;
    four.groups = 4;
    addCase(suite, four, "four groups", mixed);
    addCase(suite, four, "fewer rows than a tile", {{896, 17, 64}});
  }
}

/// States of bytes.
void addByteCases(Suite &suite) {
  const std::vector<Part> mixed = {{0, 1, 64},   {63, 1, 64}, {0, 130, 64}, {500, 1, 64},
                                   {70, 16, 16}, {0, 17, 64}, {200, 70, 30}};
  for (Scalar bytes : {Scalar::I8, Scalar::F8E4M3}) {
    for (Scalar x : {Scalar::F16, Scalar::BF16, Scalar::F32})
      for (int headDim : {8, 64, 72, 128, 256}) {
        const PagedConfig c{.x = x,
                            .bytes = bytes,
                            .headDim = headDim,
                            .heads = 4,
                            .kvHeads = headDim == 128 ? 1 : 4,
                            .window = headDim == 72 ? 20 : 0};
        AttentionPagesConfig split{c};
        split.splits = headDim == 64 ? 4 : 1;
        addCase(suite, split, "mixed", mixed);
        addCase(suite, AttentionPagesOrderedConfig{c}, "mixed", mixed);
        if (headDim == 64)
          addOrderedCase(suite, {c});
      }
    addCase(suite,
            AttentionPagesConfig{
                {.bytes = bytes, .headDim = 64, .heads = 2, .kvHeads = 2, .groups = 2}},
            "mixed", mixed);
  }
}

/// Single tokens with a prefix, beside prompts.
void addPrefixCases(Suite &suite) {
  const std::vector<Part> mixed = {{450, 1, 64}, {0, 70, 64},  {389, 1, 64}, {63, 1, 64},
                                   {384, 1, 64}, {400, 2, 64}, {700, 1, 64}, {330, 1, 64}};
  for (Scalar x : {Scalar::F16, Scalar::BF16}) {
    for (int headDim : {16, 64, 72, 128, 256})
      for (int splits : {1, 4}) {
        AttentionPagesConfig c{{.x = x, .headDim = headDim, .heads = 6, .kvHeads = 2}};
        c.splits = splits;
        c.prefixes = true;
        c.groups = headDim == 16 ? 2 : 1;
        addCase(suite, c, "mixed", mixed);
      }
    AttentionPagesWgmmaConfig wgmma{{.x = x, .headDim = 64, .heads = 4, .kvHeads = 1}};
    wgmma.groups = 2;
    wgmma.prefixes = true;
    addCase(suite, wgmma, "mixed", mixed);
    for (int headDim : {80, 256}) {
      AttentionPagesWideConfig wide{{.x = x, .headDim = headDim, .heads = 2, .kvHeads = 2}};
      wide.prefixes = true;
      addCase(suite, wide, "mixed", mixed);
    }
  }
}

void addCases(Suite &suite) {
  addPrefixCases(suite);
  addWgmmaCases(suite);
  addWideCases(suite);
  addByteCases(suite);
  const std::vector<Part> mixed = {{0, 1, 64},   {63, 1, 64}, {0, 130, 64}, {500, 1, 64},
                                   {70, 16, 16}, {0, 17, 64}, {200, 70, 30}};
  for (Scalar x : {Scalar::F16, Scalar::BF16, Scalar::F32}) {
    for (int headDim : {16, 48, 64, 72, 80, 128, 256})
      for (int splits : {1, 4})
        addCase(suite,
                AttentionPagesConfig{
                    {.x = x, .headDim = headDim, .heads = 4, .kvHeads = 4, .splits = splits}},
                "mixed", mixed);
    for (int kvHeads : {1, 2, 3})
      addCase(suite,
              AttentionPagesConfig{
                  {.x = x, .headDim = 64, .heads = 6, .kvHeads = kvHeads, .splits = 2}},
              "shared", mixed);
    for (int window : {1, 20, 100})
      addCase(suite,
              AttentionPagesConfig{
                  {.x = x, .headDim = 64, .heads = 2, .kvHeads = 1, .window = window, .splits = 2}},
              "window " + std::to_string(window), mixed);
    addCase(suite,
            AttentionPagesConfig{
                {.x = x, .headDim = 64, .heads = 2, .kvHeads = 2, .pageTokens = 128, .splits = 8}},
            "long steps", {{1023, 1, 64}, {2000, 3, 64}, {30, 1, 64}, {127, 1, 64}});
  }
  for (int headDim : {16, 64})
    for (int splits : {1, 4})
      addCase(suite,
              AttentionPagesConfig{
                  {.headDim = headDim, .heads = 4, .kvHeads = 2, .groups = 2, .splits = splits}},
              "mixed", mixed);
  for (int window : {1, 20, 100})
    addCase(suite,
            AttentionPagesConfig{
                {.headDim = 64, .heads = 2, .kvHeads = 1, .window = window, .groups = 2}},
            "window " + std::to_string(window), mixed);
  addCase(suite,
          AttentionPagesConfig{{.headDim = 64, .heads = 2, .kvHeads = 2, .groups = 2, .splits = 8}},
          "long prompt", {{1000, 1000, 64}, {2000, 3, 64}});
  addCase(suite, AttentionPagesConfig{{.x = Scalar::F32, .headDim = 24, .heads = 2, .kvHeads = 2}},
          "mixed", mixed);
  for (int headDim : {8, 144, 192})
    addCase(suite, AttentionPagesConfig{{.headDim = headDim, .heads = 2, .kvHeads = 2}}, "mixed",
            mixed);
  for (int headDim : {72, 192})
    addOrderedCase(suite, {{.headDim = headDim, .heads = 2, .kvHeads = 2}});
  for (Scalar x : {Scalar::F16, Scalar::BF16, Scalar::F32}) {
    for (int window : {0, 20, 100}) {
      const AttentionPagesOrderedConfig c = {
          {.x = x, .headDim = 64, .heads = 4, .kvHeads = 2, .window = window}};
      addCase(suite, c, window ? "window " + std::to_string(window) : "mixed", mixed);
      addOrderedCase(suite, c);
    }
    addCase(suite, AttentionPagesOrderedConfig{{.x = x, .headDim = 64, .heads = 2, .kvHeads = 1}},
            "tokens",
            {{0, 1, 64},
             {63, 1, 64},
             {127, 1, 64},
             {128, 1, 64},
             {511, 1, 64},
             {512, 1, 64},
             {1023, 1, 64},
             {1024, 1, 64},
             {2500, 1, 64}});
    for (int headDim : {16, 80, 128, 256}) {
      const AttentionPagesOrderedConfig c = {
          {.x = x, .headDim = headDim, .heads = 2, .kvHeads = 2}};
      addCase(suite, c, "long", {{1000, 100, 64}, {2000, 3, 64}, {700, 1, 64}, {127, 1, 64}});
      addOrderedCase(suite, c);
    }
  }
}

const Cases cases(addCases);
} // namespace attention_pages_test

} // namespace gpt2c::kernels
