// The values of activations, shared by the elementwise ops, gates and the epilogues of products.
#pragma once

#include "ir/Activations.h"

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

/// Calls f with the function of values that an activation is.
template <typename T, typename F> void withActivation(Activation a, F f) {
  switch (a) {
  case Activation::None:
    return f([](T x) { return x; });
#define ACTIVATION(Name, inIr, function, bounded, formula)                                         \
  case Activation::Name:                                                                           \
    return f([](T x) -> T { return formula; });
#include "ir/Activations.def"
  }
}

/// y = activation(y)
template <typename T> void activate(Activation a, T *y, int64_t n) {
  if (a == Activation::None)
    return;
  withActivation<T>(a, [&](auto f) {
    for (int64_t i = 0; i < n; ++i)
      y[i] = f(y[i]);
  });
}

} // namespace gpt2c
