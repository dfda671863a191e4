#include "frontend/files/DecodeTensor.h"
#include "frontend/files/FileKind.h"
#include "frontend/files/OnnxFile.h"
#include "frontend/files/TensorProto.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <cstring>

namespace gpt2c {

std::optional<DType> fromOnnxType(int type) {
  switch (type) {
  case onnx::TensorProto::FLOAT:
    return DType::F32;
  case onnx::TensorProto::FLOAT16:
    return DType::F16;
  case onnx::TensorProto::BFLOAT16:
    return DType::BF16;
  case onnx::TensorProto::DOUBLE:
    return DType::F64;
  case onnx::TensorProto::INT8:
    return DType::I8;
  case onnx::TensorProto::UINT8:
    return DType::U8;
  case onnx::TensorProto::INT32:
    return DType::I32;
  case onnx::TensorProto::INT64:
    return DType::I64;
  case onnx::TensorProto::BOOL:
    return DType::Bool;
  default:
    return std::nullopt;
  }
}

// Numbers as in onnx.proto; an older schema has no names for them.
static constexpr int fp8Type = 17, uint4Type = 21, int4Type = 22;

int toOnnxType(DType dtype) {
  if (dtype == DType::F8E4M3)
    return fp8Type;
  for (int type = onnx::TensorProto::FLOAT; type <= onnx::TensorProto::BFLOAT16; ++type)
    if (fromOnnxType(type) == dtype)
      return type;
  llvm_unreachable("every type of the IR is one of ONNX");
}

static bool isFourBits(int type) { return type == uint4Type || type == int4Type; }
bool isOfSteps(int type) { return isFourBits(type) || type == fp8Type; }

std::string onnxTypeName(int type) {
  // Numbers as in onnx.proto; the newer ones are listed here since an older schema may be
  // installed.
  static constexpr const char *names[] = {
      "undefined",      "float",    "uint8",        "int8",           "uint16",
      "int16",          "int32",    "int64",        "string",         "bool",
      "float16",        "double",   "uint32",       "uint64",         "complex64",
      "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
      "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
      "uint2",          "int2"};
  if (type >= 0 && type < static_cast<int>(std::size(names)))
    return names[type];
  return std::to_string(type);
}

namespace {

class TensorDecoder {
public:
  TensorDecoder(const onnx::TensorProto &proto, std::shared_ptr<const void> owner,
                ExternalFiles *external)
      : proto_(proto), owner_(std::move(owner)), external_(external) {}

  llvm::Expected<Tensor> run() {
    auto dtype = fromOnnxType(proto_.data_type());
    if (isFourBits(proto_.data_type()))
      return fromFourBits();
    if (proto_.data_type() == fp8Type)
      dtype = DType::F8E4M3;
    if (!dtype)
      return makeError(ExitCode::Unsupported,
                       "tensor '" + proto_.name() + "' has elements of type " +
                           onnxTypeName(proto_.data_type()) + ", which is not supported");
    dtype_ = *dtype;
    if (llvm::Error e = readShape())
      return e;
    if (proto_.has_segment())
      return invalid("is stored in segments, which is not supported");
    if (proto_.data_location() == onnx::TensorProto::EXTERNAL)
      return fromExternal();
    const int fields = proto_.has_raw_data() + !proto_.float_data().empty() +
                       !proto_.double_data().empty() + !proto_.int32_data().empty() +
                       !proto_.int64_data().empty() + !proto_.uint64_data().empty();
    if (fields > 1)
      return invalid("has its elements in more than one field");
    if (proto_.has_raw_data())
      return fromBytes(proto_.raw_data(), owner_);
    switch (dtype_) {
    case DType::F32:
      return fromField<float>(proto_.float_data());
    case DType::F64:
      return fromField<double>(proto_.double_data());
    case DType::I64:
      return fromField<int64_t>(proto_.int64_data());
    case DType::I32:
      return fromField<int32_t>(proto_.int32_data());
    case DType::F16: // the bits, one element in each int32
    case DType::BF16:
      return fromField<uint16_t>(proto_.int32_data());
    case DType::I8:
      return fromField<int8_t>(proto_.int32_data());
    case DType::U8:
      return fromField<uint8_t>(proto_.int32_data());
    case DType::F8E4M3:
      return fromField<Fp8>(proto_.int32_data(), [](int32_t v) { return Fp8{uint8_t(v)}; });
    case DType::Bool:
      return fromField<uint8_t>(proto_.int32_data(), [](int32_t v) { return uint8_t(v != 0); });
    default:
      llvm_unreachable("all element types of models are handled");
    }
  }

private:
  llvm::Error invalid(const llvm::Twine &why) {
    return makeError(ExitCode::InvalidModel, "tensor '" + proto_.name() + "' " + why);
  }

  llvm::Error readShape() {
    int64_t bytes = byteSize(dtype_);
    bool empty = llvm::is_contained(proto_.dims(), 0);
    for (int64_t d : proto_.dims()) {
      if (d < 0)
        return invalid("has the negative dimension " + llvm::Twine(d));
      if (!empty && llvm::MulOverflow(bytes, d, bytes))
        return invalid("has more elements than any file can hold");
      shape_.push_back(d);
    }
    bytes_ = empty ? 0 : bytes;
    return llvm::Error::success();
  }

  template <typename T, typename Field> llvm::Expected<Tensor> fromField(const Field &field) {
    return fromField<T>(field, [](auto v) { return static_cast<T>(v); });
  }
  template <typename T, typename Field, typename F>
  llvm::Expected<Tensor> fromField(const Field &field, F convert) {
    if (field.size() != bytes_ / static_cast<int64_t>(sizeof(T)))
      return invalid("has " + llvm::Twine(field.size()) + " elements, but its shape asks for " +
                     llvm::Twine(bytes_ / static_cast<int64_t>(sizeof(T))));
    Tensor t(dtype_, shape_);
    llvm::transform(field, t.data<T>(), convert);
    return t;
  }

  /// Decodes the bytes, and takes them apart: the first of two elements is in the low bits.
  llvm::Expected<Tensor> fromFourBits() {
    onnx::TensorProto bytes = proto_;
    const bool isSigned = proto_.data_type() == int4Type;
    bytes.set_data_type(onnx::TensorProto::UINT8);
    dtype_ = isSigned ? DType::I8 : DType::U8;
    if (llvm::Error e = readShape())
      return e;
    bytes.clear_dims();
    bytes.add_dims((bytes_ + 1) / 2);
    auto packed = decodeTensor(bytes, nullptr, external_);
    if (!packed)
      return packed;
    Tensor t(dtype_, shape_);
    for (int64_t i = 0; i < bytes_; ++i) {
      const int v = packed->data<uint8_t>()[i / 2] >> (i % 2 * 4) & 15;
      static_cast<uint8_t *>(t.raw())[i] = uint8_t(isSigned && v > 7 ? v - 16 : v);
    }
    return t;
  }

  /// `keepAlive` null: the bytes are copied.
  llvm::Expected<Tensor> fromBytes(llvm::StringRef bytes, std::shared_ptr<const void> keepAlive) {
    if (static_cast<int64_t>(bytes.size()) != bytes_)
      return invalid("has " + llvm::Twine(bytes.size()) +
                     " bytes of data, but its shape asks for " + llvm::Twine(bytes_));
    bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % byteSize(dtype_) == 0;
    bool plainBool = dtype_ != DType::Bool || llvm::all_of(bytes, [](uint8_t b) { return b <= 1; });
    if (keepAlive && aligned && plainBool && bytes_ > 0)
      return Tensor(dtype_, shape_, bytes.data(), std::move(keepAlive));
    Tensor t(dtype_, shape_);
    if (dtype_ == DType::Bool)
      llvm::transform(bytes, t.data<uint8_t>(), [](char b) { return uint8_t(b != 0); });
    else if (bytes_ > 0)
      std::memcpy(t.raw(), bytes.data(), bytes_);
    return t;
  }

  llvm::Expected<Tensor> fromExternal() {
    if (!external_)
      return invalid("has external data, which is not allowed here");
    llvm::StringRef location;
    uint64_t offset = 0, length = bytes_;
    for (const onnx::StringStringEntryProto &e : proto_.external_data()) {
      llvm::StringRef key = e.key(), value = e.value();
      if (key == "location")
        location = value;
      else if (key == "offset" || key == "length") {
        if (value.getAsInteger(10, key == "offset" ? offset : length))
          return invalid("has an external " + key + " that is no number: '" + value + "'");
      } else if (key == "checksum" || key == "basepath")
        continue;
    }
    if (static_cast<int64_t>(length) != bytes_)
      return invalid("has " + llvm::Twine(length) +
                     " bytes of external data, but its shape asks for " + llvm::Twine(bytes_));
    auto file = external_->open(location);
    if (!file)
      return llvm::handleErrors(file.takeError(), [&](const CodedError &e) {
        return makeError(e.code(), "tensor '" + proto_.name() + "': " + e.message());
      });
    llvm::StringRef bytes = (*file)->getBuffer();
    if (offset > bytes.size() || length > bytes.size() - offset) {
      const FileKind kind = foreignKind(bytes);
      return invalid("needs bytes " + llvm::Twine(offset) + " to " + llvm::Twine(offset + length) +
                     " of '" + location + "', which has only " + llvm::Twine(bytes.size()) +
                     (kind.name.empty() ? "" : " and is " + kind.name + ": " + kind.wayOut));
    }
    return fromBytes(bytes.substr(offset, length), *file);
  }

  const onnx::TensorProto &proto_;
  std::shared_ptr<const void> owner_;
  ExternalFiles *external_;
  DType dtype_ = DType::F32;
  llvm::SmallVector<int64_t, 4> shape_;
  int64_t bytes_ = 0;
};

} // namespace

llvm::Expected<Tensor> decodeTensor(const onnx::TensorProto &proto,
                                    std::shared_ptr<const void> owner, ExternalFiles *external) {
  return TensorDecoder(proto, std::move(owner), external).run();
}

llvm::Expected<NamedTensor> readTensorProto(llvm::StringRef path) {
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  auto proto = std::make_shared<onnx::TensorProto>();
  if (llvm::Error e = parseMessage((*buffer)->getBuffer(), *proto, path, "an ONNX tensor"))
    return e;
  auto tensor = decodeTensor(*proto, proto, nullptr);
  if (!tensor)
    return tensor.takeError();
  return NamedTensor{proto->name(), std::move(*tensor)};
}

} // namespace gpt2c
