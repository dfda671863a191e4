// Scalar activation functions, shared by the elementwise ops and the epilogue of linear.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cmath>
#include <cstdint>
#include <numbers>

namespace gpt2c {

template <typename T> T sigmoid(T x) { return 1 / (1 + std::exp(-x)); }

template <typename T> T geluErf(T x) {
  return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<T>));
}

/// x / 2 (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3). The right side
/// keeps its digits where tanh u is near -1, and takes a quarter of the time.
template <typename T> T geluTanh(T x) {
  constexpr T twice = 2 * std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
  return x / (1 + std::exp(-twice * (x + T(0.044715) * x * x * x)));
}

template <typename T> T silu(T x) { return x / (1 + std::exp(-x)); }

/// Calls f with the function that `name` stands for; false when there is none.
template <typename T, typename F> bool withActivation(llvm::StringRef name, F f) {
  if (name == "none")
    f([](T x) { return x; });
  else if (name == "gelu_tanh")
    f([](T x) { return geluTanh(x); });
  else if (name == "gelu_erf")
    f([](T x) { return geluErf(x); });
  else if (name == "relu")
    f([](T x) { return x < 0 ? T(0) : x; });
  else if (name == "sigmoid")
    f([](T x) { return sigmoid(x); });
  else if (name == "tanh")
    f([](T x) { return std::tanh(x); });
  else
    return false;
  return true;
}

inline bool isActivation(llvm::StringRef name) {
  return withActivation<float>(name, [](auto) {});
}

/// The same for what may stand in front of a gate.
template <typename T, typename F> bool withGate(llvm::StringRef name, F f) {
  if (name != "silu")
    return withActivation<T>(name, f);
  f([](T x) { return silu(x); });
  return true;
}

inline bool isGate(llvm::StringRef name) {
  return withGate<float>(name, [](auto) {});
}

/// y = activation(y); `name` is known to be one.
template <typename T> void activate(llvm::StringRef name, T *y, int64_t n) {
  if (name == "none")
    return;
  withActivation<T>(name, [&](auto f) {
    for (int64_t i = 0; i < n; ++i)
      y[i] = f(y[i]);
  });
}

} // namespace gpt2c
