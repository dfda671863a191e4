// Names of operands and of the results of ops that have several, from ir/Ops.def:
//   op.operand(ops::Linear::Residual)    op.result(ops::AddLayerNorm::Sum)
// A unit test holds them to the signatures. A scope that reads many of one op may say
// `using enum ops::Linear::Operand;` and leave the rest of the name out.
//
// Code that looks at one kind of op, or at a few that share an operand, says its name. A number is
// for what has no name of its own: operand 0 of any op that has one operand or begins with its
// data, either side of an op with two equal sides (i and 1 - i), and loops over all operands.
#pragma once

namespace gpt2c::ops {

#define NAMES(...) __VA_ARGS__
#define OP(Name, mnemonic, operands, ...)                                                          \
  struct Name {                                                                                    \
    enum Operand : unsigned { NAMES operands };                                                    \
    __VA_OPT__(enum Result : unsigned{NAMES __VA_ARGS__};)                                         \
  };
#include "ir/Ops.def"
#undef NAMES

/// Whether operands of several ops have one number. Code that takes any of the ops relies on it and
/// names the operand of the first.
template <auto First, auto... Others>
constexpr bool sameNumber = ((unsigned(First) == unsigned(Others)) && ...);

static_assert(sameNumber<Linear::X, QuantizedLinear::X, RequantizedLinear::X>);
static_assert(sameNumber<Linear::W, QuantizedLinear::W, RequantizedLinear::W>);
static_assert(sameNumber<QuantizedLinear::WScale, RequantizedLinear::WScale>);
static_assert(sameNumber<QuantizedLinear::XScale, RequantizedLinear::XScale>);
static_assert(sameNumber<QuantizedLinear::Bias, RequantizedLinear::Bias>);
static_assert(sameNumber<LayerNorm::X, RmsNorm::X, AddLayerNorm::X, QuantizedLayerNorm::X>);
static_assert(sameNumber<LayerNorm::Scale, RmsNorm::Scale, QuantizedLayerNorm::Scale>);
static_assert(sameNumber<LayerNorm::Bias, QuantizedLayerNorm::Bias>);
static_assert(sameNumber<AppendAttention::Kv, QuantizedAppendAttention::Kv, KvAppend::Kv>);
static_assert(sameNumber<AppendAttention::Qkv, QuantizedAppendAttention::Qkv>);
static_assert(sameNumber<AppendAttention::Past, QuantizedAppendAttention::Past>);
static_assert(sameNumber<AppendAttention::KeyMask, QuantizedAppendAttention::KeyMask>);
static_assert(sameNumber<AppendAttention::NextKv, QuantizedAppendAttention::NextKv>);
static_assert(sameNumber<AppendAttention::Y, QuantizedAppendAttention::Q>);
static_assert(sameNumber<Gather::X, GatherElements::X, GatherND::X>);
static_assert(sameNumber<Gather::Indices, GatherElements::Indices, GatherND::Indices>);
static_assert(
    sameNumber<AffineQuantize::Scale, Quantize::Scale, AffineDequantize::Scale, Dequantize::Scale>);
static_assert(sameNumber<AffineQuantize::X, Quantize::X>);
static_assert(sameNumber<AffineQuantize::ZeroPoint, AffineDequantize::ZeroPoint>);

} // namespace gpt2c::ops
