// onnx::TensorProto -> Tensor.
#pragma once

#include "frontend/files/ExternalFiles.h"
#include "ir/Tensor.h"

#include "onnx.pb.h"

#include <optional>

namespace gpt2c {

/// The element type for a value of onnx::TensorProto::DataType; none for types the IR does not
/// have.
std::optional<DType> fromOnnxType(int type);
/// The value that fromOnnxType() takes back.
int toOnnxType(DType dtype);
/// "float16", "int4", ...; "type 99" for unknown ones.
std::string onnxTypeName(int type);

/// Whether elements of a value of onnx::TensorProto::DataType are steps of a scale that
/// DequantizeLinear alone may read: four bits, two in a byte, which become one of i8 or u8 each, or
/// float8e4m3fn.
bool isOfSteps(int type);

/// The elements, from raw data, typed fields or an external file. Raw bytes are borrowed from
/// `owner` when it is given (it must keep `proto` alive) and copied otherwise; external bytes are
/// borrowed from the mapped file. `external` null: external data is refused. Fails with
/// InvalidModel, or Unsupported for element types.
llvm::Expected<Tensor> decodeTensor(const onnx::TensorProto &proto,
                                    std::shared_ptr<const void> owner, ExternalFiles *external);

} // namespace gpt2c
