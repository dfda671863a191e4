// Templates of ir/Eval.h; included from there.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// Calls f with a value of the C++ type of a computing dtype: float or double.
template <typename F> llvm::Error dispatchFloat(EvalContext &c, DType t, F f) {
  switch (t) {
  case DType::F32:
    return f(float{});
  case DType::F64:
    return f(double{});
  default:
    return c.error("no evaluation for " + dtypeName(t));
  }
}

/// The same for float, double, int32_t, int64_t, int8_t and uint8_t (which is Bool, too).
template <typename F> llvm::Error dispatch(EvalContext &c, DType t, F f) {
  switch (t) {
  case DType::I32:
    return f(int32_t{});
  case DType::I64:
    return f(int64_t{});
  case DType::I8:
    return f(int8_t{});
  case DType::U8:
  case DType::Bool:
    return f(uint8_t{});
  default:
    return dispatchFloat(c, t, f);
  }
}

/// y[i] = f(x[i]) with result element type R.
template <typename R, typename T, typename F> llvm::Error evalMap(EvalContext &c, F f) {
  Tensor &out = c.allocate(c.input(0).shape());
  const T *x = c.input(0).data<T>();
  R *y = out.data<R>();
  for (int64_t i = 0, n = out.count(); i < n; ++i)
    y[i] = static_cast<R>(f(x[i]));
  return llvm::Error::success();
}

template <typename F> llvm::Error evalUnary(EvalContext &c, F f) {
  return dispatchFloat(c, c.input(0).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    return evalMap<T, T>(c, f);
  });
}

/// As evalUnary, for integers and Bool as well.
template <typename F> llvm::Error evalUnaryAny(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    return evalMap<T, T>(c, f);
  });
}

/// A test of floating-point elements: result Bool.
template <typename F> llvm::Error evalTest(EvalContext &c, F f) {
  return dispatchFloat(c, c.input(0).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    return evalMap<uint8_t, T>(c, f);
  });
}

/// Runs of consecutive result elements over which every operand either advances by one or stands
/// still. Calls f(first result element, length, first element of each operand, step 0 or 1 of each
/// operand).
void forEachBroadcastRun(
    llvm::ArrayRef<int64_t> out, llvm::ArrayRef<llvm::ArrayRef<int64_t>> ins,
    llvm::function_ref<void(int64_t, int64_t, llvm::ArrayRef<int64_t>, llvm::ArrayRef<int64_t>)> f);

/// Result element type R computed from operands of type T.
template <typename R, typename T, typename F> llvm::Error evalBroadcastPair(EvalContext &c, F f) {
  const Tensor &a = c.input(0), &b = c.input(1);
  auto shape = broadcastShapes(a.shape(), b.shape());
  if (!shape)
    return c.error("shapes do not broadcast");
  if (a.dtype() != b.dtype())
    return c.error("operands differ in element type");
  Tensor &out = c.allocate(*shape);
  R *result = out.data<R>();
  auto run = [&](int64_t first, int64_t n, llvm::ArrayRef<int64_t> at,
                 llvm::ArrayRef<int64_t> step) {
    const T *x = a.data<T>() + at[0], *y = b.data<T>() + at[1];
    R *z = result + first;
    if (step[0] && step[1])
      for (int64_t i = 0; i < n; ++i)
        z[i] = static_cast<R>(f(x[i], y[i]));
    else if (step[0])
      for (int64_t i = 0; i < n; ++i)
        z[i] = static_cast<R>(f(x[i], y[0]));
    else
      for (int64_t i = 0; i < n; ++i)
        z[i] = static_cast<R>(f(x[0], y[i * step[1]]));
  };
  forEachBroadcastRun(*shape, {a.shape(), b.shape()}, run);
  return llvm::Error::success();
}

template <typename F> llvm::Error evalBinary(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    return evalBroadcastPair<T, T>(c, f);
  });
}

template <typename F> llvm::Error evalPredicate(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    return evalBroadcastPair<uint8_t, T>(c, f);
  });
}

} // namespace gpt2c
