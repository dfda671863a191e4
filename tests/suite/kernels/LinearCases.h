// What tests of products share: adding cases of one kernel in one configuration, with a case for
// each shape.
#pragma once

#include "LinearProblem.h"

#include "templates/linear/int8/LinearInt8.h"
#include "templates/linear/int8_stationary/LinearInt8Stationary.h"
#include "templates/linear/int8_tma/LinearInt8Tma.h"
#include "templates/linear/mma/LinearMma.h"
#include "templates/linear/quantised_rows/LinearQuantisedRows.h"
#include "templates/linear/rowdot/LinearRowDot.h"
#include "templates/linear/rows/LinearRows.h"
#include "templates/linear/simt/LinearSimt.h"
#include "templates/linear/stream/LinearStream.h"
#include "templates/linear/stream_ring/LinearStreamRing.h"
#include "templates/linear/stream_tma/LinearStreamTma.h"
#include "templates/linear/tf32/LinearTf32.h"
#include "templates/linear/tf32_wgmma/LinearTf32Wgmma.h"
#include "templates/linear/tma/LinearTma.h"
#include "templates/linear/tma_int8_weights/LinearTmaInt8Weights.h"
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"
#include "templates/linear/wgmma/LinearWgmma.h"

namespace gpt2c::kernels {

/// The kernel that a configuration is of.
inline KernelSource tmaKernel(llvm::StringRef name, const LinearTmaConfig &c, const Epilogue &e) {
  return c.w == Scalar::I8 ? linearTmaInt8Weights(name, c, e)
         : c.persistent    ? linearTmaPersistent(name, c, e)
                           : linearTma(name, c, e);
}
inline KernelSource tf32Kernel(llvm::StringRef name, const LinearTf32Config &c, const Epilogue &e) {
  return c.wgmma ? linearTf32Wgmma(name, c, e) : linearTf32(name, c, e);
}
inline KernelSource int8TmaKernel(llvm::StringRef name, const LinearInt8TmaConfig &c,
                                  const Epilogue &e) {
  return c.stationary ? linearInt8Stationary(name, c, e) : linearInt8Tma(name, c, e);
}

template <typename Config>
using MakeTiled = KernelSource (*)(llvm::StringRef, const Config &, const Epilogue &);

/// What ends a product with int8 weights of one scale a column.
inline Epilogue scaledBias(Scalar t) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}};
}
inline Epilogue scaledBias(Scalar t, EpilogueStage::Kind activation) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}, {activation}};
}

void mma(Suite &suite, const char *label, LinearMmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes);
void wgmma(Suite &suite, const char *label, LinearWgmmaConfig c, const Epilogue &epilogue,
           const std::vector<Shape> &shapes);
/// With c.normParts, 2, x lies far from zero and is normed; with c.statistics those of y are read.
void tma(Suite &suite, const char *label, LinearTmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes);
void simt(Suite &suite, const char *label, LinearSimtConfig c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes);
void tf32(Suite &suite, const std::string &group, const char *label, LinearTf32Config c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes);
void tf32(Suite &suite, const char *label, LinearTf32Config c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes);
/// The product, and the greedy choice that linear_stream and argmax_parts make of it.
void stream(Suite &suite, const char *label, LinearStreamConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes);
void stream(Suite &suite, const char *label, LinearStreamRingConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes);
/// `offset` is added to x.
void rows(Suite &suite, const std::string &group, const char *label, LinearRowsConfig c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes, double offset = 0,
          bool gainAndShift = true);
/// The product, and the greedy choice that it leaves for argmax_parts. Without `logits` only that.
void streamTma(Suite &suite, const std::string &label, LinearStreamTmaConfig c,
               const Epilogue &epilogue, const std::vector<Shape> &shapes, bool logits = true);

/// Mean and sum of squared deviations of parts of `width` columns, [parts, rows, 2].
std::vector<double> statisticsOf(const std::vector<double> &rows, int m, int n, int width);
/// The rows a fused norm hands to the product, as the kernel rounds them.
std::vector<double> normalised(const Tensor &x, const std::vector<double> &gain,
                               const std::vector<double> &shift, int m, int k, FusedNorm norm,
                               double epsilon);

/// Kernels that compute all rows in a block, after a norm when the config asks for one.
template <typename Config>
void fewRows(Suite &suite, const std::string &group, MakeTiled<Config> make, const char *label,
             Config c, std::array<Scalar, 2> types, int columns, const Epilogue &epilogue,
             const std::vector<Shape> &shapes, int wGroup = 0) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, types[0], types[1], c.y, epilogue);
      std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
      std::vector<double> weights = p.w.values;
      Tensor wScale;
      if (wGroup > 0) {
        wScale = randomScales(run, (size_t)s.n * (s.k / wGroup));
        for (size_t i = 0; i < weights.size(); ++i)
          weights[i] *= wScale.values[i / wGroup];
        arguments.push_back(&wScale);
        p.compute(p.x.values, weights, epilogue, c.y);
      }
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != FusedNorm::None) {
        const bool hasShift = c.norm == FusedNorm::Layer;
        arguments.insert(arguments.end(), {Argument(&gain), Argument(&shift), Argument(1e-5f)});
        if (!hasShift)
          arguments[arguments.size() - 2] = nullptr;
        p.computeNormalised(normalised(p.x, gain.values,
                                       hasShift ? shift.values : std::vector<double>(), s.m, s.k,
                                       c.norm, (float)1e-5f),
                            epilogue, types[0], c.y);
      }
      p.appendOperands(arguments);
      check(run, id, p, {blocks(s.n, columns), 1, 1}, arguments, c.y);
    });
}

} // namespace gpt2c::kernels
