#include "python/src/Arrays.h"

#include <cstring>
#include <optional>

namespace gpt2c::python {

namespace {

using plan::DType;
using rt::HostTensor;

constexpr auto kInt = uint8_t(nb::dlpack::dtype_code::Int);
constexpr auto kUInt = uint8_t(nb::dlpack::dtype_code::UInt);
constexpr auto kFloat = uint8_t(nb::dlpack::dtype_code::Float);
constexpr auto kBfloat = uint8_t(nb::dlpack::dtype_code::Bfloat);
constexpr auto kBool = uint8_t(nb::dlpack::dtype_code::Bool);

struct Pair {
  DType dtype;
  uint8_t code, bits;
};

constexpr Pair pairs[] = {
    {DType::F32, kFloat, 32},   {DType::F16, kFloat, 16}, {DType::F64, kFloat, 64},
    {DType::BF16, kBfloat, 16}, {DType::I8, kInt, 8},     {DType::U8, kUInt, 8},
    {DType::I32, kInt, 32},     {DType::I64, kInt, 64},   {DType::Bool, kBool, 8}};

std::optional<DType> dtypeOf(nb::dlpack::dtype type) {
  for (const Pair &p : pairs)
    if (p.code == type.code && p.bits == type.bits && type.lanes == 1)
      return p.dtype;
  return std::nullopt;
}

nb::dlpack::dtype dlpackOf(DType dtype) {
  for (const Pair &p : pairs)
    if (p.dtype == dtype)
      return {p.code, p.bits, 1};
  throw StatusError({rt::Code::Unsupported, "an element type without an array"});
}

bool isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::F64 || dtype == DType::BF16;
}

/// Copies `from` with its strides, counted in elements, to `to` row by row; returns the end.
std::byte *copyRows(std::byte *to, const std::byte *from, const AnyArray &array, size_t axis,
                    size_t element) {
  if (axis == array.ndim()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  const auto step = array.stride(axis) * int64_t(element);
  if (axis + 1 == array.ndim() && array.stride(axis) == 1) {
    std::memcpy(to, from, array.shape(axis) * element);
    return to + array.shape(axis) * element;
  }
  for (size_t i = 0; i < array.shape(axis); ++i)
    to = copyRows(to, from + int64_t(i) * step, array, axis + 1, element);
  return to;
}

[[noreturn]] void refuse(const std::string &message) {
  throw StatusError({rt::Code::Usage, message});
}

} // namespace

HostTensor toTensor(const AnyArray &array, DType dtype, const std::string &name) {
  if (array.device_type() != nb::device::cpu::value)
    refuse("'" + name +
           "' is in the memory of a device; the runtime takes arrays in host memory, " +
           "such as tensor.cpu()");
  std::optional<DType> own = dtypeOf(array.dtype());
  if (!own)
    refuse("'" + name + "' has elements of " + std::to_string(array.dtype().bits) +
           " bits of a kind that the runtime does not have; it is to be " + rt::dtypeName(dtype));
  if (isFloat(*own) != isFloat(dtype))
    refuse("'" + name + "' is " + rt::dtypeName(*own) + ", it is to be " + rt::dtypeName(dtype));
  std::vector<int64_t> shape;
  for (size_t i = 0; i < array.ndim(); ++i)
    shape.push_back(int64_t(array.shape(i)));
  HostTensor tensor(*own, shape);
  if (!tensor.data.empty())
    copyRows(tensor.data.data(), static_cast<const std::byte *>(array.data()), array, 0,
             rt::dtypeBytes(*own));
  rt::Result<HostTensor> converted = rt::convert(std::move(tensor), dtype);
  if (!converted)
    throw StatusError(
        {converted.status().code(), "'" + name + "': " + converted.status().message()});
  return converted.take();
}

NumpyArray toArray(HostTensor tensor) {
  if (tensor.dtype == DType::BF16)
    tensor = take(rt::convert(std::move(tensor), DType::F32));
  auto kept = std::make_unique<HostTensor>(std::move(tensor));
  static std::byte nothing[8];
  void *data = kept->data.empty() ? static_cast<void *>(nothing) : kept->data.data();
  std::vector<size_t> shape(kept->shape.begin(), kept->shape.end());
  nb::dlpack::dtype dtype = dlpackOf(kept->dtype);
  nb::capsule owner(kept.get(), [](void *p) noexcept { delete static_cast<HostTensor *>(p); });
  (void)kept.release();
  return NumpyArray(data, shape.size(), shape.data(), owner, nullptr, dtype);
}

NumpyArray toArray(std::vector<int32_t> values, std::vector<int64_t> shape) {
  HostTensor tensor(DType::I32, std::move(shape));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return toArray(std::move(tensor));
}

NumpyArray toArray(const std::vector<float> &values, std::vector<int64_t> shape) {
  HostTensor tensor(DType::F32, std::move(shape));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return toArray(std::move(tensor));
}

} // namespace gpt2c::python
