// Tensors of the runtime and arrays of Python.
//
// What goes in is copied once, whatever its layout: the runtime's tensors own their bytes. What
// comes out is not: the array has the tensor's memory and keeps it alive.
#pragma once

#include "python/src/Bindings.h"
#include "runtime/device/HostTensor.h"

#include <nanobind/ndarray.h>

namespace gpt2c::python {

/// Anything with __dlpack__ or the buffer protocol.
using AnyArray = nb::ndarray<nb::ro>;
using NumpyArray = nb::ndarray<nb::numpy>;

/// A copy in the element type `dtype`; integers become other integers that hold their values, and
/// floating point other floating point. StatusError for what is not in host memory or has another
/// kind of elements; `name` appears in messages.
rt::HostTensor toTensor(const AnyArray &array, plan::DType dtype, const std::string &name);

/// The tensor's own memory. bf16, which NumPy does not have, becomes f32.
NumpyArray toArray(rt::HostTensor tensor);

/// int32 of `shape`, or f32.
NumpyArray toArray(std::vector<int32_t> values, std::vector<int64_t> shape);
NumpyArray toArray(const std::vector<float> &values, std::vector<int64_t> shape);

} // namespace gpt2c::python
