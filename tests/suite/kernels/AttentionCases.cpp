// kv_append and cached_attention: decode, prefill on tensor cores in fp16 and by 3xTF32, prefill on
// the plain units.
#include "Suite.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/decode/AttentionDecode.h"
#include "templates/attention/decode_mma/AttentionDecodeMma.h"
#include "templates/attention/kv_append/KvAppend.h"
#include "templates/attention/prefill_mma/AttentionPrefillMma.h"
#include "templates/attention/prefill_simt/AttentionPrefillSimt.h"
#include "templates/attention/prefill_tf32/AttentionPrefillTf32.h"
#include "templates/attention/prefill_wgmma/AttentionPrefillWgmma.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gpt2c::kernels {

namespace {
enum class Kind { Decode, DecodeMma, Mma, Simt, Wgmma, Tf32 };

std::string nameOf(Kind kind, const AttentionConfig &c) {
  return kind == Kind::Decode      ? nameOf(AttentionDecodeConfig{c})
         : kind == Kind::DecodeMma ? nameOf(AttentionDecodeMmaConfig{c})
         : kind == Kind::Mma       ? nameOf(AttentionPrefillMmaConfig{c})
         : kind == Kind::Wgmma     ? nameOf(AttentionPrefillWgmmaConfig{c})
         : kind == Kind::Tf32      ? nameOf(AttentionPrefillTf32Config{c})
                                   : nameOf(AttentionPrefillSimtConfig{c});
}

struct Sizes {
  int batch, seq, context;
  std::vector<int> past; ///< one per sequence, or empty: no pointer is passed
  bool hideRow = false;  ///< the mask hides every key of the first sequence
  bool wide = false;     ///< scores lie far apart
};

int stateHeads(const AttentionConfig &c) { return c.kvHeads ? c.kvHeads : c.heads; }

/// `h` is a head of the state.
size_t kvIndex(const AttentionConfig &c, int batchMax, int context, int layer, int part, int b,
               int h, int j) {
  return (((((size_t)layer * 2 + part) * batchMax + b) * stateHeads(c) + h) * context + j) *
         c.headDim;
}

void attention(Suite &suite, Kind kind, AttentionConfig c, const std::vector<Sizes> &sizes) {
  const char *kinds[] = {"decode",       "decode_mma",    "prefill_mma",
                         "prefill_simt", "prefill_wgmma", "prefill_tf32"};
  // A group is a module, and modules are compiled in parallel.
  std::string group =
      std::string("attention_") + kinds[(int)kind] + " head_dim " + std::to_string(c.headDim);
  int id = suite.kernel(group, [&](llvm::StringRef name) {
    return kind == Kind::Decode      ? attentionDecode(name, c)
           : kind == Kind::DecodeMma ? attentionDecodeMma(name, c)
           : kind == Kind::Mma       ? attentionPrefillMma(name, c)
           : kind == Kind::Wgmma     ? attentionPrefillWgmma(name, c)
           : kind == Kind::Tf32      ? attentionPrefillTf32(name, c)
                                     : attentionPrefillSimt(name, c);
  });
  for (const Sizes &s : sizes) {
    std::string label =
        group + (c.x == Scalar::F16 ? "/f16" : "/f32") + " heads " + std::to_string(c.heads) +
        (c.kvHeads ? " of " + std::to_string(c.kvHeads) : "") + (c.append ? " append" : "") +
        (c.causal ? " causal" : "") + (c.mask ? " mask" : "") + (s.hideRow ? " hidden row" : "") +
        (s.wide ? " wide" : "") + (c.cluster ? " cluster" : "") + (c.quantise ? " quantised" : "") +
        (c.given == Given::None    ? ""
         : c.given == Given::Scale ? " given"
                                   : " given with zero") +
        (c.last ? " last" : "") + "/" + nameOf(kind, c) + "/batch " + std::to_string(s.batch) +
        " seq " + std::to_string(s.seq) + " context " + std::to_string(s.context) + " past";
    for (int p : s.past)
      label += " " + std::to_string(p);
    auto body = [=](Run &run) {
      const int layers = 2, layer = 1, batchMax = s.batch + 1, width = c.heads * c.headDim;
      const int row = width + 2 * stateHeads(c) * c.headDim, group = c.heads / stateHeads(c);
      std::vector<int> past = s.past.empty() ? std::vector<int>(s.batch, 0) : s.past;
      const int maxTotal = *std::max_element(past.begin(), past.end()) + s.seq;
      const int queries = c.last ? 1 : s.seq;
      std::vector<int> length(s.batch);
      for (int b = 0; b < s.batch; ++b)
        length[b] = s.seq - b * 5 % s.seq;
      Tensor qkv = run.input(run.normal((size_t)s.batch * s.seq * row, s.wide ? 3.0 : 1.0), c.x);
      Tensor kv = run.input(
          run.normal((size_t)layers * 2 * batchMax * stateHeads(c) * s.context * c.headDim), c.kv);
      Tensor out = run.output((size_t)s.batch * queries * width, c.quantise ? Scalar::I8 : c.x);
      Tensor outScale = run.output((size_t)s.batch * s.seq * c.heads, Scalar::F32);
      Tensor pastTensor = run.integerInput(past), lengthTensor = run.integerInput(length);
      std::vector<int> mask = run.integers((size_t)s.batch * maxTotal, 0, 3);
      if (s.hideRow)
        std::fill(mask.begin(), mask.begin() + maxTotal, 0);
      Tensor maskTensor = run.integerInput(mask);
      Tensor partial =
          run.output((size_t)s.batch * s.seq * c.heads * c.splits * (c.headDim + 2), Scalar::F32);
      Tensor counters = run.zeroed((size_t)s.batch * s.seq * c.heads * 4);
      const float scale = 1 / std::sqrt((float)c.headDim);

      // The state after the append.
      std::vector<double> state = kv.values;
      const bool appended = c.append;
      for (int b = 0; appended && b < s.batch; ++b)
        for (int t = 0; t < s.seq && past[b] + t < s.context; ++t)
          for (int part = 0; part < 2; ++part)
            for (int h = 0; h < c.heads; ++h)
              for (int d = 0; d < c.headDim; ++d)
                state[kvIndex(c, batchMax, s.context, layer, part, b, h, past[b] + t) + d] =
                    rounded(qkv.values[((size_t)b * s.seq + t) * row + (part + 1) * width +
                                       h * c.headDim + d],
                            c.kv);

      std::vector<double> want(out.values.size()), bound(want.size());
      for (int b = 0; b < s.batch; ++b)
        for (int q = 0; q < queries; ++q)
          for (int h = 0; h < c.heads; ++h) {
            const int t = c.last ? length[b] - 1 : q;
            int keys = c.causal ? past[b] + t + 1 : past[b] + s.seq;
            if (!c.append)
              keys = std::min(keys, s.context);
            auto element = [&](int part, int j, int d) {
              if (c.append && j >= past[b])
                return qkv.values[((size_t)b * s.seq + j - past[b]) * row + (part + 1) * width +
                                  h * c.headDim + d];
              return state[kvIndex(c, batchMax, s.context, layer, part, b, h / group, j) + d];
            };
            std::vector<double> weight(keys, -INFINITY);
            double top = -INFINITY, sum = 0;
            for (int j = 0; j < keys; ++j) {
              if (c.mask && mask[(size_t)b * maxTotal + j] == 0)
                continue;
              weight[j] = 0;
              for (int d = 0; d < c.headDim; ++d)
                weight[j] += qkv.values[((size_t)b * s.seq + t) * row + h * c.headDim + d] *
                             element(0, j, d);
              weight[j] *= scale;
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
              // On tensor cores the probabilities are rounded to fp16.
              bound[at] =
                  magnitude * (kind == Kind::Mma || kind == Kind::Wgmma ? 6e-4 : 4e-6) + 1e-7;
            }
          }

      std::vector<Argument> arguments = {&qkv};
      if (kind == Kind::Wgmma)
        arguments = {MapOf{&qkv, s.seq, 3 * width, 64, uint64_t(s.batch)},
                     MapOf{&kv, s.context, 64, 64, uint64_t(layers * 2 * batchMax * c.heads)}};
      arguments.insert(arguments.end(), {&kv, &out});
      if (c.quantise && c.given == Given::None)
        arguments.push_back(&outScale);
      arguments.push_back(s.past.empty() ? Argument(nullptr) : Argument(&pastTensor));
      arguments.push_back(c.mask ? Argument(&maskTensor) : Argument(nullptr));
      const bool decode = kind == Kind::Decode || kind == Kind::DecodeMma;
      if (c.last)
        arguments.push_back(&lengthTensor);
      if (decode) {
        arguments.push_back(c.splits > 1 ? Argument(&partial) : Argument(nullptr));
        arguments.push_back(c.splits > 1 ? Argument(&counters) : Argument(nullptr));
      }
      for (Argument a :
           std::initializer_list<Argument>{layer, batchMax, s.context, s.seq, maxTotal, scale})
        arguments.push_back(a);
      if (kind == Kind::Wgmma)
        arguments.push_back(s.seq % 2); // backwards
      appendGiven(c.given, arguments);
      std::array<unsigned, 3> grid = {(unsigned)c.splits, (unsigned)c.heads,
                                      (unsigned)(s.batch * queries)};
      if (!decode) {
        unsigned tile = kind == Kind::Simt ? 16 * c.tq : 16 * c.warps;
        grid = {(s.seq + tile - 1) / tile, (unsigned)c.heads, (unsigned)(s.batch * c.splits)};
        if (kind == Kind::Wgmma) {
          const unsigned tiles = unsigned(s.seq + 63) / 64;
          // Some blocks have two tiles of queries then, others one.
          grid = {(unsigned)c.heads, (unsigned)s.batch,
                  hasAttentionPairs(c) ? std::min(tiles, (tiles + 1) / 2 + tiles / 5) : tiles};
        }
      }
      run.launch(id, grid, arguments);
      if (c.given != Given::None) {
        for (size_t i = 0; i < want.size(); ++i) {
          want[i] = givenValue(c.given, want[i]);
          bound[i] = bound[i] * givenInverse + 0.501;
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
            scaleBound[g] = std::max(scaleBound[g], bound[at] / 127);
            want[at] /= scales[g];
            bound[at] = bound[at] / scales[g] + 0.501;
          }
          wantScales[g] = largest == 0 ? 1 : largest / 127;
        }
        run.expectNear(outScale, wantScales, 1e-6, scaleBound);
        run.expectNear(out, want, 0, bound);
      } else {
        run.expectNear(out, want, c.x == Scalar::F16 ? 1.02 / 2048 : 2e-6, bound);
      }
      run.expectNear(kv, state, 0, {});
      std::vector<double> first = run.read(out);
      run.launch(id, grid, arguments);
      run.expect(run.read(out) == first, "a second launch gave other bits");
    };
    suite.test({label, double(s.batch) * s.seq * s.context * c.heads * c.headDim}, body,
               kind == Kind::Wgmma);
  }
}

void append(Suite &suite, KvAppendConfig c) {
  int id = suite.kernel("kv_append", [&](llvm::StringRef name) { return kvAppend(name, c); });
  suite.test(
      "kv_append/head_dim " + std::to_string(c.headDim) +
          (c.kvHeads ? " shared by " + std::to_string(c.heads) : "") +
          (c.x == Scalar::F16 ? " f16" : " f32") + (c.kv == Scalar::F16 ? " f16" : " f32"),
      [=](Run &run) {
        const int batch = 3, seq = 5, context = 11, batchMax = 4, layer = 1;
        const AttentionConfig shape{.headDim = c.headDim, .heads = c.heads, .kvHeads = c.kvHeads};
        const int kept = stateHeads(shape), row = (c.heads + 2 * kept) * c.headDim;
        std::vector<int> past = {0, 4, 9}; // the last one runs past the context
        Tensor qkv = run.input(run.normal((size_t)batch * seq * row), c.x);
        Tensor kv =
            run.input(run.normal((size_t)2 * 2 * batchMax * kept * context * c.headDim), c.kv);
        Tensor pastTensor = run.integerInput(past);
        std::vector<double> want = kv.values;
        for (int b = 0; b < batch; ++b)
          for (int t = 0; t < seq && past[b] + t < context; ++t)
            for (int part = 0; part < 2; ++part)
              for (int h = 0; h < kept; ++h)
                for (int d = 0; d < c.headDim; ++d)
                  want[kvIndex(shape, batchMax, context, layer, part, b, h, past[b] + t) + d] =
                      rounded(qkv.values[(size_t)(b * seq + t) * row +
                                         (c.heads + part * kept + h) * c.headDim + d],
                              c.kv);
        run.launch(id, {batch * seq, 1, 1},
                   {&qkv, &kv, &pastTensor, layer, batchMax, context, seq});
        run.expectNear(kv, want, 0, {});
      });
}

/// All that the tuner may take of a kernel, for sequences of that many queries.
template <typename Config>
void candidatesOf(Suite &suite, Kind kind, const AttentionKernel &kernel,
                  const AttentionConfig &model, int64_t queries, const std::vector<Sizes> &sizes) {
  std::set<std::string> done;
  for (int64_t sequences : {1, 8, 32, 128}) {
    AttentionProblem p{.config = model, .sequences = sequences, .queries = queries};
    p.target = Target::of({"sm_90a"});
    for (const AttentionCandidate &c : kernel.candidates(p))
      if (done.insert(c.name).second)
        attention(suite, kind, *c.get<Config>(), sizes);
  }
}
} // namespace

void addAttentionCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  auto config = [](Scalar x, Scalar kv, int headDim, int heads) {
    AttentionConfig c;
    c.x = x;
    c.kv = kv;
    c.headDim = headDim;
    c.heads = heads;
    return c;
  };
  const std::vector<Sizes> decodeSizes = {{1, 1, 8, {}},
                                          {1, 1, 600, {511}},
                                          {3, 1, 40, {0, 7, 39}},
                                          {2, 3, 50, {1, 30}},
                                          {2, 1, 70, {64, 3}, true}};
  for (int headDim : {1, 2, 3, 5, 8, 40, 64, 80, 128, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 3, 8}) {
        AttentionConfig c = config(t, t, headDim, 3);
        c.splits = splits;
        c.mask = splits == 3;
        c.append = splits != 8;
        c.causal = headDim != 40;
        attention(suite, Kind::Decode, c, decodeSizes);
      }
  for (int headDim : {3, 64, 80, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {2, 4, 8}) {
        AttentionConfig c = config(t, t, headDim, 3);
        c.splits = splits;
        c.cluster = true;
        c.warps = splits == 8 ? 8 : 4;
        c.mask = splits == 2;
        attention(suite, Kind::Decode, c, decodeSizes);
      }
  const std::vector<Sizes> lastSizes = {
      {1, 1, 8, {}}, {1, 130, 140, {}}, {3, 70, 600, {500, 0, 31}}, {2, 33, 90, {17, 3}, true}};
  for (int headDim : {3, 40, 64, 80, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 3, 8}) {
        AttentionConfig c = config(t, t, headDim, 3);
        c.last = true;
        c.splits = splits;
        c.cluster = splits == 8;
        c.mask = splits == 3;
        c.append = headDim != 80;
        attention(suite, Kind::Decode, c, lastSizes);
      }
  const std::vector<Sizes> ringSizes = {{3, 1, 300, {0, 17, 299}}, {2, 4, 700, {690, 333}}};
  for (int headDim : {8, 64, 80, 128, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 4}) {
        AttentionConfig c = config(t, t, headDim, 3);
        c.splits = splits;
        c.cluster = splits > 1;
        c.ring = headDim == 80 ? 3 : 4;
        c.mask = splits == 4;
        attention(suite, Kind::Decode, c, ringSizes);
      }
  for (Scalar t : {f16, f32}) {
    AttentionConfig model = config(t, t, 64, 3);
    model.bulk = true;
    candidatesOf<AttentionDecodeConfig>(suite, Kind::Decode, attentionDecodeKernel(), model, 1,
                                        decodeSizes);
  }
  std::vector<Sizes> mmaSizes = decodeSizes;
  mmaSizes.insert(mmaSizes.end(), ringSizes.begin(), ringSizes.end());
  for (int headDim : {16, 48, 64, 80, 96, 128})
    for (int splits : {1, 3, 4, 6}) {
      AttentionConfig c = config(f16, f16, headDim, 3);
      c.queries = 4;
      c.splits = splits;
      c.cluster = splits > 3;
      c.mask = splits == 4 || headDim == 48;
      c.causal = headDim != 96;
      attention(suite, Kind::DecodeMma, c, mmaSizes);
      if (headDim == 64)
        candidatesOf<AttentionDecodeMmaConfig>(suite, Kind::DecodeMma, attentionDecodeMmaKernel(),
                                               c, 4, mmaSizes);
    }
  // Six heads share those of the state.
  for (int shared : {1, 2, 3})
    for (int headDim : {16, 64, 80, 128})
      for (Scalar t : {f16, f32}) {
        AttentionConfig c = config(t, t, headDim, 6);
        c.kvHeads = shared;
        c.append = false;
        c.mask = shared == 3;
        for (bool last : {false, true})
          for (int splits : {1, 4}) {
            c.last = last;
            c.splits = splits;
            c.cluster = splits > 1;
            attention(suite, Kind::Decode, c, last ? lastSizes : decodeSizes);
          }
        c.last = c.cluster = false;
        c.splits = 1;
        c.tq = c.tk = headDim > 64 ? 2 : 4;
        const std::vector<Sizes> prompts = {{1, 65, 80, {}}, {2, 130, 300, {100, 7}}};
        attention(suite, Kind::Simt, c, prompts);
        if (t == f16)
          attention(suite, Kind::Mma, c, prompts);
      }
  AttentionConfig mixed = config(f32, f16, 64, 2);
  attention(suite, Kind::Decode, mixed, {{2, 1, 40, {5, 20}}});
  mixed.last = true;
  attention(suite, Kind::Decode, mixed, lastSizes);
  AttentionConfig wide = config(f32, f32, 1000, 1);
  attention(suite, Kind::Decode, wide, {{1, 1, 40, {30}}});

  const std::vector<Sizes> prefillSizes = {{1, 1, 8, {}},
                                           {1, 65, 80, {}},
                                           {2, 130, 300, {100, 7}},
                                           {2, 40, 50, {0, 30}},
                                           {2, 33, 90, {17, 3}, true}};
  std::vector<Sizes> wgmmaSizes = prefillSizes;
  wgmmaSizes.push_back({2, 300, 400, {90, 7}, false, true});
  for (int headDim : {16, 48, 64, 80, 128, 256})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionConfig c = config(f16, f16, headDim, 2);
      c.keys = headDim > 128 ? 32 : 64;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, Kind::Mma, c, prefillSizes);
      for (c.splits = 1; headDim == 64 && c.append && c.splits <= 4; c.splits *= 2)
        attention(suite, Kind::Wgmma, c, wgmmaSizes);
      if (headDim == 64 && c.append) {
        c.splits = 4;
        attention(suite, Kind::Wgmma, c, {{1, 450, 460, {}}, {2, 200, 330, {100, 7}}});
      }
      if (headDim % 32 != 0)
        continue;
      c.quantise = true;
      c.splits = 1;
      attention(suite, Kind::Mma, c, prefillSizes);
      for (c.splits = 1; headDim == 64 && c.append && c.splits <= 4; c.splits *= 2)
        attention(suite, Kind::Wgmma, c, prefillSizes);
    }
  // More keys and values than L2 holds.
  AttentionConfig many = config(f16, f16, 64, 12);
  many.causal = many.append = true;
  attention(suite, Kind::Wgmma, many, {{86, 65, 65, {}}, {172, 2, 2, {}}});
  for (int headDim : {1, 2, 3, 5, 8, 40, 64, 80, 128, 256})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionConfig c = config(variant == 1 ? f16 : f32, variant == 1 ? f16 : f32, headDim, 2);
      c.tq = c.tk = headDim > 64 ? 2 : 4;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, Kind::Simt, c, prefillSizes);
    }
  for (int headDim : {8, 40, 64, 80, 96, 128})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionConfig c = config(f32, f32, headDim, 2);
      c.warps = 1 << variant;
      c.keys = variant == 2 ? 32 : 64;
      c.splits = 1 << (variant + headDim / 8) % 3;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, Kind::Tf32, c, prefillSizes);
    }
  for (int headDim : {48, 64, 128}) {
    candidatesOf<AttentionPrefillTf32Config>(suite, Kind::Tf32, attentionPrefillTf32Kernel(),
                                             config(f32, f32, headDim, 2), 100, prefillSizes);
    candidatesOf<AttentionPrefillMmaConfig>(suite, Kind::Mma, attentionPrefillMmaKernel(),
                                            config(f16, f16, headDim, 2), 100, prefillSizes);
  }
  // Quantised by a scale that is given.
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](Kind kind, AttentionConfig c, const std::vector<Sizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kind, c, sizes);
    };
    for (int headDim : {3, 64}) {
      AttentionConfig c = config(headDim == 3 ? f32 : f16, headDim == 3 ? f32 : f16, headDim, 3);
      for (int splits : {1, 3, 8}) {
        c.splits = splits;
        c.cluster = splits == 8;
        byScale(Kind::Decode, c, decodeSizes);
        c.last = true;
        byScale(Kind::Decode, c, lastSizes);
        c.last = false;
      }
      byScale(Kind::Simt, config(c.x, c.kv, headDim, 2), prefillSizes);
    }
    AttentionConfig c = config(f16, f16, 64, 3);
    c.queries = 4;
    for (int splits : {1, 4}) {
      c.splits = splits;
      c.cluster = splits == 4;
      byScale(Kind::DecodeMma, c, mmaSizes);
    }
    for (int headDim : {48, 64})
      byScale(Kind::Mma, config(f16, f16, headDim, 2), prefillSizes);
    c = config(f16, f16, 64, 2);
    for (c.splits = 1; c.splits <= 4; c.splits *= 2)
      byScale(Kind::Wgmma, c, prefillSizes);
    byScale(Kind::Tf32, config(f32, f32, 40, 2), prefillSizes);
  }
  for (int headDim : {1, 3, 8, 64})
    for (Scalar t : {f16, f32})
      append(suite, {t, headDim == 8 ? f16 : t, headDim, 3, 64});
  append(suite, {f16, f16, 64, 6, 64, 2});
}

} // namespace gpt2c::kernels
