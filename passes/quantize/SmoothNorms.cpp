// smooth-norms: columns with outliers move from normalised activations into the weights that read
// them. With y = layer_norm(x, g, b), for every product W that reads y,
//   y W^T = (y / s) (W s)^T
// where y / s = layer_norm(x, g / s, b / s) costs nothing.
//
// Of w8a8-smooth, where y will be int8, s_j = max|y_j|^a / max|W_j|^(1 - a). The strength a is
// given, or searched for each norm: the one with the least squared error of the int8 products over
// sampled rows, each relative to the row's products, so that the few rows whose products are
// hundreds of times larger (a text's first token) do not choose for all. It is taken where it is a
// tenth less than the error without.
//
// Where W alone will be int8, columns that meet large activations have weights that are small
// beside the others of their row, whose scale they share. Of every scheme s_j = sqrt(m_j)^a then,
// with m_j = g_j^2 + b_j^2 about the mean square of y_j, a = 1/2 or 1: the one with the least
//   sum over n, j of  m_j (w_nj - s q_nj)^2
// if that is less than half of what it is without. It needs no calibration.
//
// In four bits (w4a16) a is 0.1, 0.2, .. 1, m_j the mean square of y_j in the calibration, and any
// a that takes a fiftieth off the error of 512 rows is taken, where weights are rounded with error
// feedback if that leaves less, too: Lin et al., AWQ, MLSys 2024, section 3.2.
//
// Source: Xiao et al., SmoothQuant, ICML 2023, equations 3 and 4.
#include "ir/ops/Blas.h"
#include "ir/ops/Quantize.h"
#include "passes/Rewrite.h"
#include "passes/quantize/ErrorFeedback.h"
#include "passes/quantize/Quantization.h"
#include "passes/quantize/WeightGroups.h"
#include "passes/quantize/WeightScales.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

namespace {

using Factors = std::vector<float>; // s

std::vector<float> columnMax(const std::vector<float> &w, int64_t k) {
  std::vector<float> out(k);
  for (size_t i = 0; i < w.size(); ++i)
    out[i % k] = std::max(out[i % k], std::fabs(w[i]));
  return out;
}

constexpr double mostFactor = 1e4; // keeps gains and weights far from the limits of half precision

Factors smoothing(llvm::ArrayRef<float> xMax, llvm::ArrayRef<float> wMax, double strength) {
  Factors s(xMax.size(), 1);
  for (size_t j = 0; j < s.size(); ++j)
    if (xMax[j] > 0 && wMax[j] > 0)
      s[j] = static_cast<float>(
          std::clamp(std::pow(xMax[j], strength) / std::pow(wMax[j], 1 - strength), 1 / mostFactor,
                     mostFactor));
  return s;
}

/// sqrt(m_j)^a, relative to its geometric mean, so that weights keep their size.
Factors byMoments(llvm::ArrayRef<float> moments, double strength) {
  double sum = 0;
  int64_t counted = 0;
  for (float m : moments)
    if (m > 0) {
      sum += std::log(double(m));
      ++counted;
    }
  const double mean = counted ? std::exp(sum / double(counted)) : 1;
  Factors s(moments.size(), 1);
  for (size_t j = 0; j < s.size(); ++j)
    if (moments[j] > 0)
      s[j] = static_cast<float>(std::clamp(std::pow(double(moments[j]) / mean, strength / 2),
                                           1 / mostFactor, mostFactor));
  return s;
}

/// What int8 makes of rows of k elements, each multiplied by its column's factor, or its inverse.
std::vector<float> afterInt8(const std::vector<float> &x, int64_t k, const Factors &s,
                             bool inverse) {
  std::vector<float> scaled(x.size()), scales(x.size() / k);
  for (size_t i = 0; i < x.size(); ++i)
    scaled[i] = inverse ? x[i] / s[i % k] : x[i] * s[i % k];
  std::vector<int8_t> q(x.size());
  quantiseRows(scaled.data(), int64_t(scales.size()), k, 0, q.data(), scales.data());
  for (size_t i = 0; i < x.size(); ++i)
    scaled[i] = float(q[i]) * scales[i / k];
  return scaled;
}

std::vector<float> productOf(const std::vector<float> &x, const std::vector<float> &w, int64_t k) {
  int64_t m = int64_t(x.size()) / k, n = int64_t(w.size()) / k;
  std::vector<float> y(m * n);
  matrixProduct<float>({x.data(), k}, {w.data(), k, true}, {y.data(), n}, m, n, k, false);
  return y;
}

/// The sum over rows of n elements of |y - exact|^2 / |exact|^2.
double relativeError(const std::vector<float> &y, const std::vector<float> &exact, int64_t n) {
  double all = 0;
  for (size_t row = 0; row < y.size(); row += n) {
    double error = 0, size = 0;
    for (size_t i = row; i < row + n; ++i) {
      error += std::pow(double(y[i]) - exact[i], 2);
      size += std::pow(double(exact[i]), 2);
    }
    all += size > 0 ? error / size : 0;
  }
  return all;
}

constexpr double leastGain = 0.9;      // of an error that a search has to leave
constexpr double leastInt4Gain = 0.98; // where scales are those of groups, and errors large

class Smoother {
public:
  explicit Smoother(PassContext &ctx) : ctx_(ctx), options_(ctx.options().quantize) {}

  llvm::Error run(Function &f) {
    llvm::SmallVector<Op *> norms;
    for (auto &op : f.ops())
      if (op->is(OpCode::LayerNorm) || op->is(OpCode::RmsNorm))
        norms.push_back(op.get());
    for (Op *norm : norms)
      if (llvm::Error e = rewrite(f, norm))
        return e;
    f.eraseDeadOps();
    return llvm::Error::success();
  }

  /// Statistics of int4's inputs become those of the columns as they are now.
  void scaleStatistics() {
    if (scaled_.empty() || !options_.calibration)
      return;
    auto now = std::make_shared<Calibration>(*options_.calibration);
    for (const auto &[layer, s] : scaled_)
      if (auto it = now->layers.find(layer.str());
          it != now->layers.end() && it->second.channelSquares.size() == s.size()) {
        for (auto [squares, factor] : llvm::zip_equal(it->second.channelSquares, s))
          squares = double(float(squares)) / (double(factor) * factor); // as a file has them
        it->second.divisors = s;
      }
    ctx_.options().quantize.calibration = std::move(now);
  }

private:
  /// The products that read the norm, when nothing else does and all get the same treatment, which
  /// makes int8 of their weights.
  std::pair<llvm::SmallVector<Op *>, Treatment> readers(Op *norm) {
    std::pair<llvm::SmallVector<Op *>, Treatment> out{{}, Treatment::Keep};
    for (const Use &u : norm->result()->uses()) {
      if (!isQuantisable(*u.op) || u.operand != ops::Linear::X)
        return {};
      Treatment treatment = treatmentOf(*u.op, options_).first;
      if (treatment == Treatment::Keep || (!out.first.empty() && treatment != out.second))
        return {};
      out.first.push_back(u.op);
      out.second = treatment;
    }
    return out;
  }

  /// Whether the weights of the products are theirs alone: no table of tokens.
  static bool ownWeights(llvm::ArrayRef<Op *> linears) {
    return llvm::all_of(linears, [&](Op *linear) {
      return llvm::all_of(linear->operand(ops::Linear::W)->uses(), [&](const Use &u) {
        return llvm::is_contained(linears, u.op) && u.operand == ops::Linear::W;
      });
    });
  }

  /// Whether the weights of all are integers of one scheme: beside large weights small ones keep
  /// their digits in fp8.
  bool areSmoothed(llvm::ArrayRef<Op *> linears) const {
    const QuantizeScheme scheme = schemeOf(*linears.front(), options_);
    return !isFp8(scheme) && llvm::all_of(linears, [&](const Op *linear) {
      return schemeOf(*linear, options_) == scheme;
    });
  }

  llvm::Error rewrite(Function &f, Op *norm) {
    const Op *gain = constantOp(norm->operand(ops::LayerNorm::Scale));
    const Op *bias = norm->operand(ops::LayerNorm::Bias)
                         ? constantOp(norm->operand(ops::LayerNorm::Bias))
                         : nullptr;
    Dim k = norm->result()->type.shape.back();
    bool vectors = gain && gain->constant.valid() && gain->result()->type.shape == Shape{k} &&
                   (!norm->operand(ops::LayerNorm::Bias) ||
                    (bias && bias->constant.valid() && bias->result()->type.shape == Shape{k}));
    auto [linears, treatment] = readers(norm);
    if (!vectors || linears.empty())
      return llvm::Error::success();
    const bool full = treatment == Treatment::Full;
    if (full ? options_.scheme != QuantizeScheme::W8A8Smooth
             : !ownWeights(linears) || !areSmoothed(linears))
      return llvm::Error::success();
    auto factors = full ? factorsOf(linears) : weightFactorsOf(linears);
    if (!factors)
      return factors.takeError();
    if (llvm::all_of(**factors, [](float s) { return s == 1; }))
      return llvm::Error::success();
    const Factors &s = **factors;
    Factors inverse(s.size());
    llvm::transform(s, inverse.begin(), [](float v) { return 1 / v; });

    Builder b(f, norm);
    b.setLocations(norm->locations);
    llvm::SmallVector<Value *, 3> operands{norm->operand(ops::LayerNorm::X),
                                           b.constant(scaled(gain->constant, inverse))};
    if (bias)
      operands.push_back(b.constant(scaled(bias->constant, inverse)));
    auto y = b.value(norm->code(), operands, norm->givenAttrs());
    if (!y)
      return y.takeError();
    (*y)->name = norm->result()->name;
    for (Op *linear : linears) {
      Builder at(f, linear);
      at.setLocations(constantOp(linear->operand(ops::Linear::W))->locations);
      Value *w = at.constant(scaled(constantOp(linear->operand(ops::Linear::W))->constant, s));
      w->name = linear->operand(ops::Linear::W)->name;
      linear->setOperand(ops::Linear::X, *y);
      linear->setOperand(ops::Linear::W, w);
      if (schemeOf(*linear, options_) == QuantizeScheme::W4A16)
        scaled_.try_emplace(layerName(*linear), s);
    }
    return llvm::Error::success();
  }

  /// Each column of rows, or each element of a vector, times its factor.
  static Tensor times(const Tensor &t, const Factors &s) {
    std::vector<float> v = floatElements(t);
    for (size_t i = 0; i < v.size(); ++i)
      v[i] *= s[i % s.size()];
    return Tensor::of<float>(v, t.shape());
  }
  Tensor scaled(const Tensor &t, const Factors &s) {
    return pool_.share(times(t, s).cast(t.dtype()));
  }

  /// Functions share norms and weights, and so their factors.
  llvm::Expected<const Factors *> factorsOf(llvm::ArrayRef<Op *> linears) {
    auto [it, isNew] = factors_.try_emplace(layerName(*linears.front()));
    if (!isNew)
      return &it->second;
    auto stats = statsOf(*linears.front(), options_);
    if (!stats)
      return stats.takeError();
    int64_t k = (*stats)->channels;
    std::vector<float> w;
    for (Op *linear : linears)
      llvm::append_range(w, floatElements(constantOp(linear->operand(ops::Linear::W))->constant));
    it->second = options_.smoothStrength
                     ? smoothing((*stats)->channelMax, columnMax(w, k), *options_.smoothStrength)
                     : searched(**stats, w, layerName(*linears.front()), linears.front());
    return &it->second;
  }

  /// Rows of a weight that a search looks at, evenly spread over it, in f32.
  static Tensor someRows(const Tensor &w) {
    constexpr int64_t most = 512;
    const int64_t n = w.dim(0), k = w.dim(1), count = std::min(n, most);
    Tensor out(DType::F32, {count, k});
    for (int64_t i = 0; i < count; ++i) {
      std::vector<double> row(static_cast<size_t>(k));
      w.load(i * n / count * k, row);
      std::copy(row.begin(), row.end(), out.data<float>() + i * k);
    }
    return out;
  }

  /// Whether scaled columns of these rows of weights leave less where they are rounded with error
  /// feedback: what that leaves follows other columns than those that meet most. True without it.
  bool paysWithFeedback(llvm::ArrayRef<Op *> linears, llvm::ArrayRef<Tensor> rows,
                        const Factors &s) const {
    double with = 0, without = 0;
    for (auto [linear, w] : llvm::zip_equal(linears, rows)) {
      const ActivationStats *stats =
          options_.calibration ? options_.calibration->find(layerName(*linear)) : nullptr;
      const WeightStorage storage = storageOf(*linear, options_);
      if (!stats || !stats->products || storage.type != DType::I4)
        continue;
      with += errorWithFeedback(times(w, s), storage.group, *stats->products, s);
      without += errorWithFeedback(w, storage.group, *stats->products);
    }
    return without == 0 || with < without;
  }

  /// The same where the weights alone will be int8.
  llvm::Expected<const Factors *> weightFactorsOf(llvm::ArrayRef<Op *> linears) {
    auto [it, isNew] = factors_.try_emplace(layerName(*linears.front()));
    if (!isNew)
      return &it->second;
    const std::vector<float> moments = inputMoments(*linears.front(), options_);
    it->second.assign(moments.size(), 1);
    const bool isInt4 = schemeOf(*linears.front(), options_) == QuantizeScheme::W4A16;
    std::vector<Tensor> rows;
    for (Op *linear : linears) {
      const Tensor &w = constantOp(linear->operand(ops::Linear::W))->constant;
      rows.push_back(isInt4 ? someRows(w) : w);
    }
    auto errorWith = [&](const Factors &s) {
      std::vector<float> met(moments);
      for (auto [m, factor] : llvm::zip_equal(met, s))
        m /= factor * factor;
      double error = 0;
      for (auto [linear, w] : llvm::zip_equal(linears, rows)) {
        const WeightStorage storage = storageOf(*linear, options_);
        error += weightError(times(w, s), storage.group, met, storage.type);
      }
      return error;
    };
    const double plain = errorWith(it->second), enough = plain * (isInt4 ? leastInt4Gain : 0.5);
    double least = enough;
    for (int tenths = 1; tenths <= 10; ++tenths) {
      if (!isInt4 && tenths % 5 != 0)
        continue;
      Factors s = byMoments(moments, tenths / 10.0);
      double error = errorWith(s);
      if (!(error < least))
        continue;
      least = error;
      it->second = std::move(s);
    }
    if (isInt4 && least < enough && !paysWithFeedback(linears, rows, it->second)) {
      it->second.assign(moments.size(), 1);
      return &it->second;
    }
    if (least < enough)
      ctx_.note(llvm::formatv("{0}: columns scaled for {1} weights, squared error {2:f2} of that "
                              "without",
                              layerName(*linears.front()), isInt4 ? "int4" : "int8", least / plain),
                linears.front()->locations);
    return &it->second;
  }

  Factors searched(const ActivationStats &stats, const std::vector<float> &w,
                   const std::string &name, const Op *linear) {
    int64_t k = stats.channels;
    std::vector<float> wMax = columnMax(w, k), exact = productOf(stats.sample, w, k);
    Factors best(k, 1);
    double least = 0, plain = 0, strength = -1; // none
    for (int tenths = -1; tenths < 10; ++tenths) {
      Factors s = tenths < 0 ? Factors(k, 1) : smoothing(stats.channelMax, wMax, tenths / 10.0);
      std::vector<float> y =
          productOf(afterInt8(stats.sample, k, s, true), afterInt8(w, k, s, false), k);
      const double error = relativeError(y, exact, int64_t(w.size()) / k);
      if (tenths < 0) {
        plain = error;
        least = error * leastGain;
      }
      if (error < least) {
        least = error;
        best = std::move(s);
        strength = tenths / 10.0;
      }
    }
    if (strength >= 0)
      ctx_.note(llvm::formatv("{0}: strength {1:f1}, squared error {2:f2} of that without", name,
                              strength, least / plain),
                linear->locations);
    return best;
  }

  PassContext &ctx_;
  const QuantizeOptions &options_;
  llvm::StringMap<Factors> factors_, scaled_; // by layer; those that were taken
  ConstantPool pool_;
};

} // namespace

llvm::Error smoothNorms(PassContext &ctx) {
  // One scale for a whole weight is the textbook form, which is left as it is.
  if (ctx.options().quantize.scheme == QuantizeScheme::None ||
      ctx.options().quantize.scheme == QuantizeScheme::W8A8Tensor ||
      isFp8(ctx.options().quantize.scheme))
    return llvm::Error::success();
  settleWeightGroup(ctx);
  Smoother smoother(ctx);
  for (auto &f : ctx.module().functions)
    if (llvm::Error e = smoother.run(*f))
      return e;
  smoother.scaleStatistics();
  return llvm::Error::success();
}

} // namespace gpt2c
