// linear: kernels for few rows, against Y = epilogue(X W^T) in float64.
#include "LinearCases.h"

#include "templates/tokens/Tokens.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace gpt2c::kernels {

std::vector<double> normalised(const Tensor &x, const std::vector<double> &gain,
                               const std::vector<double> &shift, int m, int k, FusedNorm norm,
                               double epsilon) {
  std::vector<double> rows(x.values);
  for (int i = 0; i < m; ++i) {
    double *row = &rows[(size_t)i * k];
    double mean = 0, square = 0;
    if (norm == FusedNorm::Layer) {
      for (int j = 0; j < k; ++j)
        mean += row[j];
      mean /= k;
    }
    for (int j = 0; j < k; ++j)
      square += (row[j] - mean) * (row[j] - mean);
    double scale = 1 / std::sqrt(square / k + epsilon);
    for (int j = 0; j < k; ++j)
      row[j] = rounded((row[j] - mean) * scale * gain[j] + (shift.empty() ? 0 : shift[j]), x.type);
  }
  return rows;
}

/// `next` is the place of the largest of the logits that the kernel wrote, row by row.
static void expectChoice(Run &run, Problem &p, Shape s, Tensor &next) {
  std::vector<double> y = run.read(p.y);
  std::vector<int> want;
  for (int i = 0; i < s.m; ++i)
    want.push_back(int(std::max_element(&y[(size_t)i * s.n], &y[(size_t)(i + 1) * s.n]) -
                       &y[(size_t)i * s.n]));
  run.expectEqual(run.readIntegers(next), want, "next");
}

template <typename Config>
static void streamed(Suite &suite, const std::string &group, MakeTiled<Config> make,
                     const char *label, Config c, const Epilogue &epilogue,
                     const std::vector<Shape> &shapes) {
  int parts = suite.kernel(group, [&](llvm::StringRef name) { return argmaxParts(name); });
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
      std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != FusedNorm::None) {
        arguments.insert(arguments.end(), {Argument(&gain), Argument(&shift), Argument(1e-5f)});
        p.computeNormalised(normalised(p.x, gain.values, shift.values, s.m, s.k, c.norm, 1e-5f),
                            epilogue, Scalar::F16, c.y);
      }
      const unsigned blockCount = 5;
      Tensor best = run.zeroed(8 * s.m * blockCount),
             next = run.integerInput(std::vector<int>(s.m, -1));
      if (c.best)
        arguments.push_back(&best);
      p.appendOperands(arguments);
      check(run, id, p, {blockCount, 1, 1}, arguments, c.y);
      if (!c.best)
        return;
      run.launch(parts, {(unsigned)s.m, 1, 1}, {&best, &next, (int)blockCount});
      expectChoice(run, p, s, next);
    });
}

void stream(Suite &suite, const char *label, LinearStreamConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes) {
  streamed(suite, "linear_stream", linearStream, label, c, epilogue, shapes);
}
void stream(Suite &suite, const char *label, LinearStreamRingConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes) {
  streamed(suite, "linear_stream_ring", linearStreamRing, label, c, epilogue, shapes);
}

/// The arguments of a norm that a kernel folds into its epilogue, after they are rounded:
/// ((x gain) W^T - mean c) / deviation + s; p.x is moved by `offset` and p.want is that of the
/// norm. Rows are multiplied by a gain that has been rounded to fp16.
static std::vector<Argument> takenOut(Run &run, Problem &p, const std::vector<double> &weights,
                                      FusedNorm norm, Scalar gainType, const Epilogue &epilogue,
                                      Scalar y, double offset, bool gainAndShift,
                                      std::vector<Tensor> &kept) {
  const size_t m = p.shape.m, n = p.shape.n, k = p.shape.k;
  std::vector<double> moved = p.x.values;
  for (double &v : moved)
    v += offset;
  p.x = run.input(moved, Scalar::F16);
  const bool layer = norm == FusedNorm::Layer;
  kept.reserve(3);
  const Tensor &gain = kept.emplace_back(run.input(run.normal(k), gainType));
  std::vector<double> shift = run.normal(k), c(n), s(n);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) {
      c[j] += weights[j * k + i] * (gainAndShift ? gain.values[i] : 1);
      s[j] += weights[j * k + i] * (gainAndShift && layer ? shift[i] : 0);
    }
  const Tensor &sums = kept.emplace_back(run.input(c, Scalar::F32));
  const Tensor &shifts = kept.emplace_back(run.input(s, Scalar::F32));
  // [x gain / deviation, -mean / deviation, 1] [W, c, s]^T
  std::vector<double> x(m * (k + 2)), w(n * (k + 2)), far(m);
  for (size_t i = 0; i < m; ++i) {
    const double *row = &p.x.values[i * k];
    double mean = 0, square = 0;
    for (size_t j = 0; layer && j < k; ++j)
      mean += row[j] / (double)k;
    for (size_t j = 0; j < k; ++j)
      square += (row[j] - mean) * (row[j] - mean) / (double)k;
    const double deviation = std::sqrt(square + 1e-5);
    far[i] = std::fabs(mean) / deviation;
    double *to = &x[i * (k + 2)];
    for (size_t j = 0; j < k; ++j)
      to[j] = (gainAndShift ? rounded(row[j] * rounded(gain.values[j], Scalar::F16), Scalar::F16)
                            : row[j]) /
              deviation;
    to[k] = -mean / deviation;
    to[k + 1] = 1;
  }
  for (size_t j = 0; j < n; ++j) {
    std::copy_n(&weights[j * k], k, &w[j * (k + 2)]);
    w[j * (k + 2) + k] = sums.values[j];
    w[j * (k + 2) + k + 1] = shifts.values[j];
  }
  p.shape.k += 2;
  p.compute(x, w, epilogue, y);
  p.shape.k -= 2;
  // The square of a large mean is subtracted from that of x.
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      p.bound[i * n + j] *= 1 + far[i] * far[i];
  return {gainAndShift ? Argument(&gain) : Argument(nullptr), &sums,
          gainAndShift && layer ? Argument(&shifts) : Argument(nullptr), 1e-5f};
}

void rows(Suite &suite, const std::string &group, const char *label, LinearRowsConfig c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes, double offset,
          bool gainAndShift) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return linearRows(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        {group + "/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          std::vector<double> weights = p.w.values;
          Tensor wScale;
          if (c.wGroup > 0) {
            wScale = randomScales(run, (size_t)s.n * (s.k / c.wGroup));
            for (size_t i = 0; i < weights.size(); ++i)
              weights[i] = rounded(weights[i] * wScale.values[i / c.wGroup], Scalar::F16);
          }
          std::vector<Tensor> kept;
          std::vector<Argument> ofNorm;
          if (c.norm == FusedNorm::None)
            p.compute(p.x.values, weights, epilogue, c.y);
          else
            ofNorm =
                takenOut(run, p, weights, c.norm, c.p, epilogue, c.y, offset, gainAndShift, kept);
          std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
          if (c.wGroup > 0)
            arguments.push_back(&wScale);
          arguments.insert(arguments.end(), ofNorm.begin(), ofNorm.end());
          p.appendOperands(arguments);
          check(run, id, p, {(unsigned)c.splits, blocks(s.n, rowsColumns(c)), 1}, arguments, c.y);
        },
        c.splits > 1);
}

void streamTma(Suite &suite, const std::string &label, LinearStreamTmaConfig c,
               const Epilogue &epilogue, const std::vector<Shape> &shapes, bool logits) {
  const bool int8 = c.w == Scalar::I8;
  const std::string group =
      llvm::formatv("linear_stream_tma {0} {1}x{2}", int8 ? "i8" : "f16", c.bm, c.bn).str();
  int parts = suite.kernel(group, [&](llvm::StringRef name) { return argmaxParts(name); });
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    int id = suite.kernel(group,
                          [&](llvm::StringRef name) { return linearStreamTma(name, c, epilogue); });
    suite.test(
        {llvm::formatv("{0}/{1}/{2}", group, label, text(s)).str(), work(s)},
        [=](Run &run) {
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          const int columns = (int)blocks(s.n, c.bn);
          // Fewer blocks than tiles, so that they go round.
          const unsigned blockCount = std::max(1u, blocks(s.m, c.bm) * columns / 3);
          Tensor best = run.zeroed(8 * s.m * columns),
                 next = run.integerInput(std::vector<int>(s.m, -1));
          auto arguments = [&](bool stored) {
            std::vector<Argument> list = {MapOf{&p.x, s.m, s.k, c.bm},
                                          MapOf{&p.w, s.n, int8 ? s.k / 2 : s.k, c.bn},
                                          stored ? Argument(&p.y) : Argument(nullptr), s.m};
            if (c.best)
              list.push_back(&best);
            p.appendOperands(list);
            return list;
          };
          check(run, id, p, {blockCount, 1, 1}, arguments(true), c.y);
          if (!c.best)
            return;
          if (!logits) {
            best = run.zeroed(8 * s.m * columns);
            run.launch(id, {blockCount, 1, 1}, arguments(false));
          }
          run.launch(parts, {(unsigned)s.m, 1, 1}, {&best, &next, columns});
          expectChoice(run, p, s, next);
        },
        true);
  }
}

static void rowDot(Suite &suite, const char *label, LinearRowDotConfig c, const Epilogue &epilogue,
                   const std::vector<Shape> &shapes) {
  fewRows(suite, "linear_rowdot", linearRowDot, label, c, {c.x, c.w}, rowDotColumns(c), epilogue,
          shapes);
}
static void quantisedRows(Suite &suite, const char *label, LinearQuantisedRowsConfig c,
                          const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  fewRows(suite, "linear_quantised_rows", linearQuantisedRows, label, c, {Scalar::F16, Scalar::I8},
          quantisedRowsColumns(c), epilogue, shapes, c.wGroup);
}

void addRowDotCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int rows : {1, 2, 4, 8}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      std::vector<Shape> list = {{rows, 768, k}, {rows, 1021, k}, {rows, 1, k}};
      if (rows > 1)
        list.push_back({rows - 1, 65, k});
      return list;
    };
    rowDot(suite, (tag + " f16 bias").c_str(), {f16, f16, f16, f32, rows, 2, 1, 8, 768}, bias(f16),
           shapes(768));
    rowDot(suite, (tag + " f16 ksplit bias+residual").c_str(),
           {f16, f16, f16, f32, rows, 2, 4, 8, 3072}, biasResidual(f16, f16), shapes(3072));
    rowDot(suite, (tag + " f16 norm bias+gelu").c_str(),
           {f16, f16, f16, f16, rows, 2, 1, 8, 768, FusedNorm::Layer},
           biasGelu(f16, EpilogueStage::GeluTanh), shapes(768));
    rowDot(suite, (tag + " f32 norm plain").c_str(),
           {f32, f32, f32, f32, rows, 1, 2, 4, 768, FusedNorm::Layer}, plain, shapes(768));
    rowDot(suite, (tag + " f32 bias+residual").c_str(), {f32, f32, f32, f32, rows, 4, 1, 4, 3072},
           biasResidual(f32, f32), shapes(3072));
    rowDot(suite, (tag + " f32 bias+last rows").c_str(), {f32, f32, f32, f32, rows, 4, 1, 4, 3072},
           biasLastRows(f32), shapes(3072));
    for (int k : {1, 13, 40, 770, 1604})
      rowDot(suite, (tag + " f16 rms").c_str(),
             {f16, f16, f32, f32, rows, 3, 1, 4, k, FusedNorm::Rms}, plain, shapes(k));
    rowDot(suite, (tag + " f16 x i8 w norm").c_str(),
           {f16, Scalar::I8, f16, f32, rows, 2, 1, 8, 768, FusedNorm::Layer},
           scaledBias(f16, EpilogueStage::GeluTanh), shapes(768));
    for (int k : {13, 770, 1600})
      rowDot(suite, (tag + " f32 x i8 w").c_str(), {f32, Scalar::I8, f32, f32, rows, 1, 2, 4, k},
             scaledBias(f32), shapes(k));
    for (int k : {5, 102, 1600})
      rowDot(suite, (tag + " f32 x f16 w").c_str(), {f32, f16, f32, f32, rows, 1, 1, 4, k},
             everything(f32), shapes(k));
  }
  for (int m : {8, 16, 32, 64}) {
    const std::string tag = "rows " + std::to_string(m), group = "linear_rows " + std::to_string(m);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}};
    };
    auto odd = [&](int k) { return std::vector<Shape>{{m, 1021, k}, {1, 1, k}, {m - 1, 65, k}}; };
    auto config = [&](int k) {
      LinearRowsConfig c;
      c.rows = m;
      c.k = k;
      return c;
    };
    for (int k : {8, 40, 768, 776, 3072}) {
      LinearRowsConfig c = config(k);
      rows(suite, group, "f16 bias", c, bias(f16), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      c.warps = k == 3072 ? 16 / c.groups : 4;
      rows(suite, group, "f16 2 groups bias+residual", c, biasResidual(f16, f16), shapes(k));
      c.y = f32;
      rows(suite, group, "f32 all", c, everything(f16), shapes(k));
    }
    for (int splits : {2, 4, 8}) {
      LinearRowsConfig c = config(3072);
      c.splits = splits;
      c.groups = splits == 4 && m <= 32 ? 2 : 1;
      c.pairs = splits != 2;
      rows(suite, group, ("f16 bias+residual splits " + std::to_string(splits)).c_str(), c,
           biasResidual(f16, f16), c.pairs ? shapes(3072) : odd(3072));
      rows(suite, group, ("f16 bias+last rows splits " + std::to_string(splits)).c_str(), c,
           biasLastRows(f16), c.pairs ? shapes(3072) : odd(3072));
    }
    for (int k : {104, 768}) {
      LinearRowsConfig c = config(k);
      c.p = k == 768 ? f16 : f32;
      c.norm = FusedNorm::Layer;
      rows(suite, group, "f16 norm bias+gelu", c, biasGelu(f16, EpilogueStage::GeluTanh), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      for (double offset : {0.0, 30.0})
        rows(suite, group, ("f16 norm alone, offset " + std::to_string(int(offset))).c_str(), c,
             bias(f16), shapes(k), offset, false);
      c.norm = FusedNorm::Rms;
      c.y = f32;
      rows(suite, group, "f32 rms", c, plain, shapes(k));
      c.w = Scalar::I8;
      c.norm = FusedNorm::Layer;
      c.y = f16;
      rows(suite, group, "i8 w norm bias+gelu", c, scaledBias(f16, EpilogueStage::GeluTanh),
           shapes(k));
    }
    for (int k : {16, 768, 1600}) {
      LinearRowsConfig c = config(k);
      c.w = Scalar::I8;
      rows(suite, group, "i8 w bias", c, scaledBias(f16), odd(k));
    }
    for (int k : {64, 768, 1600}) {
      LinearStreamConfig c;
      c.rows = m;
      c.k = k;
      c.best = k != 64;
      c.warps = k == 768 ? 12 : 8;
      stream(suite, (tag + " f32").c_str(), c, plain, {{m, 1021, k}, {1, 1, k}, {m - 1, 2500, k}});
      c.p = f16;
      c.norm = FusedNorm::Layer;
      stream(suite, (tag + " f32 norm").c_str(), c, plain, {{m, 1021, k}});
      c.w = Scalar::I8;
      c.y = f16;
      stream(suite, (tag + " i8 w norm f16").c_str(), c, scaledBias(f16), {{m, 1021, k}});
    }
    for (int k : {64, 768, 1600}) {
      if (m != 8)
        break;
      for (int some : {1, 2, 4}) {
        const std::string label = std::to_string(some) + " rows";
        LinearStreamRingConfig c;
        c.rows = some;
        c.k = k;
        c.columns = some == 2 || k == 1600 ? 2 : 4;
        c.slots = k == 64 ? 3 : streamSlots(c);
        c.best = k != 64;
        stream(suite, (label + " f32").c_str(), c, plain, {{some, 1021, k}, {1, 1, k}});
        c.p = f16;
        c.norm = FusedNorm::Layer;
        stream(suite, (label + " f32 norm").c_str(), c, plain, {{(some + 1) / 2, 2500, k}});
        c.w = Scalar::I8;
        c.y = f16;
        stream(suite, (label + " i8 w norm f16").c_str(), c, scaledBias(f16), {{some, 1021, k}});
      }
    }
    for (int wGroup : {32, 128}) {
      LinearRowsConfig c = config(768);
      c.w = Scalar::I8;
      c.wGroup = wGroup;
      c.warps = 6;
      rows(suite, group, ("i8 w in groups of " + std::to_string(wGroup)).c_str(), c, bias(f16),
           odd(768));
      c.norm = FusedNorm::Layer;
      rows(suite, group, ("i8 w in groups of " + std::to_string(wGroup) + " norm").c_str(), c,
           bias(f16), odd(768));
    }
  }
  for (int bm : {64, 128})
    for (int bn : {96, 128, 192}) {
      const std::vector<Shape> shapes = {{bm, 1021, 768},
                                         {1, 1, 64},
                                         {bm - 3, 2500, 776},
                                         {2 * bm, 1022, 128},
                                         {bm + 5, 400, 1600}};
      LinearStreamTmaConfig c{.bm = bm, .bn = bn, .stages = 4, .best = true};
      streamTma(suite, "f32", c, plain, shapes);
      streamTma(suite, "f32 choice alone", c, plain, {{bm, 1021, 768}}, false);
      c.stages = 3;
      c.rawStages = 2;
      c.w = Scalar::I8;
      c.y = f16;
      streamTma(suite, "i8 w f16", c, scaledBias(f16),
                {{bm, 1021, 768}, {bm + 5, 500, 1616}, {1, 1, 64}});
      c.best = false;
      streamTma(suite, "i8 w", c, scaledBias(f16), {{2 * bm, 1022, 192}});
    }
  for (int rows : {8, 16, 32, 64}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{rows, 768, k}, {rows, 1021, k}, {1, 1, k}, {rows - 1, 65, k}};
    };
    for (int k : {16, 80, 768, 1600})
      quantisedRows(suite, (tag + " i8 w bias").c_str(),
                    {.rows = rows, .kSplit = 4, .warps = 4, .k = k}, scaledBias(f16), shapes(k));
    quantisedRows(suite, (tag + " i8 w bias+residual").c_str(),
                  {.rows = rows, .kSplit = 8, .warps = 8, .k = 3072},
                  {{EpilogueStage::ScaleColumn},
                   {EpilogueStage::AddBias, f16},
                   {EpilogueStage::AddMatrix, f16}},
                  shapes(3072));
    for (int group : {64, 128})
      quantisedRows(suite, (tag + " i8 w in groups of " + std::to_string(group)).c_str(),
                    {.rows = rows, .kSplit = 3, .warps = 6, .k = 768, .wGroup = group}, bias(f16),
                    shapes(768));
    if (rows <= 16)
      for (int k : {768, 112})
        quantisedRows(
            suite, (tag + " i8 w norm bias+gelu").c_str(),
            {.p = f16, .rows = rows, .kSplit = 6, .warps = 6, .k = k, .norm = FusedNorm::Layer},
            scaledBias(f16, EpilogueStage::GeluTanh), shapes(k));
  }
}

} // namespace gpt2c::kernels
