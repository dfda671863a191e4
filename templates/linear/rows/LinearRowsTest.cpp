// linear_rows against Y = epilogue(norm(X) W^T) in float64.
#include "templates/linear/rows/LinearRows.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace {

/// The norm of a case: `offset` is added to x.
struct Norm {
  double offset = 0;
  bool gainAndShift = true;
};

/// What the kernel is told of a norm that it folds into its epilogue.
struct FoldedNorm {
  Tensor gain, rowSums, shiftSums;
};

/// After they are rounded, ((x gain) W^T - mean c) / deviation + s: moves p.x, and p.want becomes
/// that of the norm. Rows are multiplied by a gain that has been rounded to fp16.
FoldedNorm foldNorm(Run &run, Problem &p, const std::vector<double> &weights,
                    const LinearRowsConfig &config, const Epilogue &epilogue, Norm of) {
  const size_t m = p.shape.m, n = p.shape.n, k = p.shape.k;
  std::vector<double> moved = p.x.values;
  for (double &v : moved)
    v += of.offset;
  p.x = run.input(moved, Scalar::F16);
  const bool gainAndShift = of.gainAndShift;
  const bool layer = config.norm == FusedNorm::Layer;
  FoldedNorm folded;
  const Tensor &gain = folded.gain = run.input(run.normal(k), config.p);
  std::vector<double> shift = run.normal(k), c(n), s(n);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) {
      c[j] += weights[j * k + i] * (gainAndShift ? gain.values[i] : 1);
      s[j] += weights[j * k + i] * (gainAndShift && layer ? shift[i] : 0);
    }
  folded.rowSums = run.input(c, Scalar::F32);
  folded.shiftSums = run.input(s, Scalar::F32);
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
    w[j * (k + 2) + k] = folded.rowSums.values[j];
    w[j * (k + 2) + k + 1] = folded.shiftSums.values[j];
  }
  p.shape.k += 2;
  p.compute(x, w, epilogue, config.y);
  p.shape.k -= 2;
  // The square of a large mean is subtracted from that of x.
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      p.bound[i * n + j] *= 1 + far[i] * far[i];
  return folded;
}

void rows(Suite &suite, const std::string &group, const std::string &label,
          const LinearRowsConfig &c, const Epilogue &epilogue, const std::vector<Shape> &shapes,
          Norm norm = {}) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return linearRows(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        caseOf(group, label, s),
        [=](Run &run) {
          run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          Arguments arguments = p.arguments();
          std::vector<double> weights = p.w.values;
          Tensor wScale;
          if (c.wGroup > 0) {
            wScale = randomScales(run, (size_t)s.n * (s.k / c.wGroup));
            for (size_t i = 0; i < weights.size(); ++i)
              weights[i] = rounded(weights[i] * wScale.values[i / c.wGroup], Scalar::F16);
            arguments.set("wScale", &wScale);
          }
          FoldedNorm folded;
          if (c.norm == FusedNorm::None) {
            p.compute(p.x.values, weights, epilogue, c.y);
          } else {
            folded = foldNorm(run, p, weights, c, epilogue, norm);
            const bool shift = norm.gainAndShift && c.norm == FusedNorm::Layer;
            arguments.set("gain", norm.gainAndShift ? Argument(&folded.gain) : Argument(nullptr));
            arguments.set("rowSums", &folded.rowSums).set("epsilon", 1e-5F);
            arguments.set("shiftSums", shift ? Argument(&folded.shiftSums) : Argument(nullptr));
          }
          check(run, id, p, gridFor(c, s), arguments, c.y);
        },
        c.splits > 1);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int m : {8, 16, 32, 64}) {
    const std::string group = "linear_rows " + std::to_string(m);
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
      rows(suite, group, "f16 bias+residual splits " + std::to_string(splits), c,
           biasResidual(f16, f16), c.pairs ? shapes(3072) : odd(3072));
      rows(suite, group, "f16 bias+last rows splits " + std::to_string(splits), c,
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
        rows(suite, group, "f16 norm alone, offset " + std::to_string(int(offset)), c, bias(f16),
             shapes(k), {offset, false});
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
    for (int wGroup : {32, 128}) {
      LinearRowsConfig c = config(768);
      c.w = Scalar::I8;
      c.wGroup = wGroup;
      c.warps = 6;
      rows(suite, group, "i8 w in groups of " + std::to_string(wGroup), c, bias(f16), odd(768));
      c.norm = FusedNorm::Layer;
      rows(suite, group, "i8 w in groups of " + std::to_string(wGroup) + " norm", c, bias(f16),
           odd(768));
    }
  }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearRowsConfig &c) {
  rows(suite, of.group("linear_rows"), of.label, c, of.epilogue(), {{of.rows, 302, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_rows", addCandidate);
} // namespace

} // namespace gpt2c::kernels
