#include "ir/ops/LayerNorm.h"

#include "ir/ops/Common.h"
#include "ir/ops/Workers.h"

#include <cmath>
#include <cstring>

namespace gpt2c {

AttrSpec rmsAttr() {
  return {"rms", AttrKind::Bool, Attr(false), "an rms_norm, which has no bias"};
}

static bool isRms(const Op &op) { return op.hasAttr("rms") && op.boolAttr("rms"); }

llvm::Error inferLayerNorm(InferContext &c, int64_t firstAxis, unsigned scaleAt) {
  using enum ops::LayerNorm::Operand;
  auto axis = c.axis(firstAxis, c.rank(X));
  if (!axis)
    return axis.takeError();
  if (isRms(c.op()) && c.has(scaleAt + 1))
    return c.error("an RMS norm has no bias");
  for (unsigned i = scaleAt; i < scaleAt + 2; ++i)
    if (c.has(i)) {
      auto d = c.broadcast(c.shape(X).drop_front(*axis), c.shape(i));
      if (!d)
        return d.takeError();
      if (d->size() != c.rank(X) - *axis)
        return c.error("scale and bias must not add axes");
    }
  return inferFloatUnary(c);
}

llvm::Expected<Tensor> evalLayerNorm(EvalContext &c, const Tensor &x, int64_t axis,
                                     unsigned scaleAt) {
  axis = axis < 0 ? axis + x.rank() : axis;
  llvm::ArrayRef<int64_t> normalised = x.shape().drop_front(axis);
  int64_t size = product(normalised);
  double epsilon = c.op().floatAttr("epsilon");
  const bool centred = !isRms(c.op());
  Tensor out(x.dtype(), x.shape());
  // scale and bias, broadcast to the normalised axes
  auto spread = [&](unsigned i, double absent) {
    Tensor t(x.dtype(), normalised);
    Tensor from = c.has(i) ? c.input(i) : Tensor::scalar(absent).cast(x.dtype());
    forEachBroadcast(normalised, {from.shape()}, [&](int64_t o, llvm::ArrayRef<int64_t> at) {
      std::memcpy(static_cast<char *>(t.raw()) + o * byteSize(t.dtype()),
                  static_cast<const char *>(from.raw()) + at[0] * byteSize(t.dtype()),
                  byteSize(t.dtype()));
    });
    return t;
  };
  auto spreadOnce = [&](unsigned i, double absent) {
    return c.has(i) && c.input(i).shape() == normalised ? c.input(i) : spread(i, absent);
  };
  Tensor scale = spreadOnce(scaleAt, 1), bias = spreadOnce(scaleAt + 1, 0);
  auto run = [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const T *g = scale.data<T>(), *b = bias.data<T>();
    const T *all = x.data<T>();
    T *results = out.data<T>();
    auto normalise = [&](int64_t row) {
      const T *from = all + row * size;
      T *to = results + row * size;
      double sum = 0, squares = 0;
      for (int64_t i = 0; centred && i < size; ++i)
        sum += from[i];
      double mean = sum / size;
      for (int64_t i = 0; i < size; ++i)
        squares += (from[i] - mean) * (from[i] - mean);
      T m = static_cast<T>(mean), r = static_cast<T>(1 / std::sqrt(squares / size + epsilon));
      for (int64_t i = 0; i < size; ++i)
        to[i] = (from[i] - m) * r * g[i] + b[i];
    };
    const int64_t rows = size ? x.count() / size : 0, parts = partsOf(double(x.count()) * 8, rows);
    forParts(parts, [&](int64_t part) {
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        normalise(row);
    });
    return llvm::Error::success();
  };
  if (llvm::Error e = dispatchFloat(c, x.dtype(), run))
    return e;
  return out;
}

static llvm::Error evalLayerNorm(EvalContext &c) {
  using enum ops::LayerNorm::Operand;
  auto y = evalLayerNorm(c, c.input(X), c.op().intAttr("axis"));
  if (!y)
    return y.takeError();
  c.output() = *y;
  return llvm::Error::success();
}

const OpInfo opLayerNorm = {
    .code = OpCode::LayerNorm,
    .mnemonic = "layer_norm",
    .summary =
        "y = (x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on",
    .operands = {{"x"}, {"scale"}, {"bias", OperandSpec::Optional}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(-1))}, {"epsilon", AttrKind::Float, Attr(1e-5)}},
    .infer = [](InferContext &c) { return inferLayerNorm(c, c.op().intAttr("axis")); },
    .eval = evalLayerNorm,
    .cost =
        [](const Op &op) {
          return Cost{Dim(8) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c
