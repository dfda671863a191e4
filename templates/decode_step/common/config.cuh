// Configurations of persistent kernels on the device; see configs.def.
#pragma once

#include "templates/decode_step/common/records.h"
#include "templates/linear/parts/epilogue.cuh"

struct __nv_bfloat16; // templates/device/elements_bf16.cuh

namespace gpt2c::persistent {

// clang-format off
template <Element E> struct ElementOf;
#define ELEMENT_TYPE(Name, T) template <> struct ElementOf<Element::Name> { using Type = T; };
#include "templates/decode_step/common/configs.def"

// A value of NameConfig as the members of a type, NameOf.
#define CONFIG(Name) template <const Name##Config &Value> struct Name##Of {
#define ELEMENT(Name) using Name = typename ElementOf<Value.Name>::Type;
#define VALUE(Type, Name) static constexpr Type Name = Value.Name;
#define END_CONFIG };
#include "templates/decode_step/common/configs.def"

template <Activation A, int V> __device__ __forceinline__ void activate(float (&v)[V]) {
#define ACTIVATION(Name, inIr, function)                                                           \
  if constexpr (A == Activation::Name)                                                             \
    epilogue::function(v);
#include "templates/decode_step/common/configs.def"
}
// clang-format on

} // namespace gpt2c::persistent
