// Templates of ir/Eval.h; included from there.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// Calls f with a value of the C++ type of a computing dtype: float, double, int32_t, int64_t, int8_t or uint8_t.
template <typename F> llvm::Error dispatch(EvalContext &c, DType t, F f) {
  switch (t) {
  case DType::F32:
    return f(float{});
  case DType::F64:
    return f(double{});
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
    return c.error("no evaluation for " + dtypeName(t));
  }
}

template <typename F> llvm::Error evalUnary(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) {
    using T = decltype(tag);
    Tensor &out = c.allocate(c.input(0).shape());
    const T *x = c.input(0).data<T>();
    T *y = out.data<T>();
    for (int64_t i = 0, n = out.count(); i < n; ++i)
      y[i] = static_cast<T>(f(x[i]));
    return llvm::Error::success();
  });
}

/// Result element type R computed from operands of type T.
template <typename R, typename T, typename F>
llvm::Error evalBroadcastPair(EvalContext &c, F f) {
  const Tensor &a = c.input(0), &b = c.input(1);
  auto shape = broadcastShapes(a.shape(), b.shape());
  if (!shape)
    return c.error("shapes do not broadcast");
  if (a.dtype() != b.dtype())
    return c.error("operands differ in element type");
  Tensor &out = c.allocate(*shape);
  const T *x = a.data<T>(), *y = b.data<T>();
  R *z = out.data<R>();
  int64_t n = out.count();
  if (a.count() == n && b.count() == n) {
    for (int64_t i = 0; i < n; ++i)
      z[i] = static_cast<R>(f(x[i], y[i]));
  } else if (a.count() == n && b.count() == 1) {
    for (int64_t i = 0; i < n; ++i)
      z[i] = static_cast<R>(f(x[i], y[0]));
  } else {
    forEachBroadcast(*shape, {a.shape(), b.shape()}, [&](int64_t o, llvm::ArrayRef<int64_t> i) {
      z[o] = static_cast<R>(f(x[i[0]], y[i[1]]));
    });
  }
  return llvm::Error::success();
}

template <typename F> llvm::Error evalBinary(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) {
    using T = decltype(tag);
    return evalBroadcastPair<T, T>(c, f);
  });
}

template <typename F> llvm::Error evalPredicate(EvalContext &c, F f) {
  return dispatch(c, c.input(0).dtype(), [&](auto tag) {
    using T = decltype(tag);
    return evalBroadcastPair<uint8_t, T>(c, f);
  });
}

} // namespace gpt2c
