// Dimensions in other algebras, such as the expressions of a plan.
#pragma once

#include "ir/Piecewise.h"

#include <string_view>
#include <utility>

namespace gpt2c {

/// The value of `d` out of ops.constant(number), ops.symbol(name) and, of two values, ops.add,
/// ops.multiply, ops.min, ops.max and ops.floorDiv, whose divisor is a constant of at least 1.
template <typename Ops, typename Value = decltype(std::declval<Ops>().constant(0))>
Value calculate(const Dim &d, const Ops &ops) {
  auto factor = [&](const Dim::Factor &f) -> Value {
    switch (f.kind) {
    case Dim::Factor::Kind::Symbol:
      return ops.symbol(std::string_view(f.text));
    case Dim::Factor::Kind::Positive:
      return ops.max(calculate(*f.of, ops), ops.constant(0));
    case Dim::Factor::Kind::FloorDiv:
      return ops.floorDiv(calculate(*f.of, ops), ops.constant(f.by));
    }
    return ops.constant(0);
  };
  Value sum = ops.constant(0);
  for (const DimPiece &p : piecesOf(d)) {
    Value product = ops.constant(p.coefficient);
    for (const Dim::Factor *f : p.factors)
      product = ops.multiply(product, factor(*f));
    if (p.clamp) {
      Value clamp = calculate(p.clamp->of - Dim(p.clamp->from), ops);
      if (p.clamp->mayBeNegative)
        clamp = ops.max(clamp, ops.constant(0));
      if (p.clamp->width)
        clamp = ops.min(clamp, ops.constant(*p.clamp->width));
      product = ops.multiply(product, clamp);
    }
    sum = ops.add(sum, product);
  }
  return sum;
}

} // namespace gpt2c
