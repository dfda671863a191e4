// Configurations of persistent kernels on the device; see configs.def.
#pragma once

#include "templates/decode_step/common/records.h"
#include "templates/device/norm_kind.cuh"
#include "templates/linear/parts/epilogue.cuh"

struct __nv_bfloat16; // templates/device/elements_bf16.cuh

namespace gpt2c::persistent {

// clang-format off
template <Element E> struct ElementOf;
#define ELEMENT_TYPE(Name, T) template <> struct ElementOf<Element::Name> { using Type = T; };
#include "templates/decode_step/common/configs.def"

// The activation of a configuration; that of one that has one is in the kernel's text, behind the
// value.
template <const auto &Value> struct FunctionOf {
  template <int V> static __device__ __forceinline__ void apply(float (&)[V]) {}
};

// A value of NameConfig as the members of a type, NameOf.
#define CONFIG(Name) template <const Name##Config &Value> struct Name##Of {
#define ELEMENT(Name) using Name = typename ElementOf<Value.Name>::Type;
#define VALUE(Type, Name) static constexpr Type Name = Value.Name;
#define FUNCTION(Name) using Name = FunctionOf<Value>;
#define END_CONFIG };
#include "templates/decode_step/common/configs.def"
// clang-format on

} // namespace gpt2c::persistent
