// Writes an ONNX graph, node by node.
#pragma once

#include "ir/DType.h"

#include "onnx.pb.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

class GraphWriter {
public:
  using Name = std::string; // of a tensor
  struct Attr {
    const char *name;
    std::variant<int64_t, double, const char *, std::vector<int64_t>> value;
  };

  /// Names of nodes are "<part>.<operator>"; those of its first result too.
  void setPart(const llvm::Twine &part) { part_ = part.str(); }

  Name op(llvm::StringRef type, llvm::ArrayRef<Name> inputs, llvm::ArrayRef<Attr> attrs = {});
  std::vector<Name> ops(llvm::StringRef type, unsigned outputs, llvm::ArrayRef<Name> inputs,
                        llvm::ArrayRef<Attr> attrs = {});
  Name ints(llvm::ArrayRef<int64_t> values);
  Name integer(int64_t value);                ///< a scalar
  Name order(llvm::ArrayRef<int64_t> values); ///< indices of a name of their own
  Name floats(llvm::ArrayRef<float> values, llvm::ArrayRef<int64_t> shape);
  Name number(double value, DType dtype); ///< a scalar, rounded to `dtype`
  /// A constant of a name of its own, of these bytes.
  Name bytes(llvm::StringRef name, DType dtype, llvm::ArrayRef<int64_t> shape,
             llvm::ArrayRef<uint8_t> values);
  /// Bytes of a file in the model's folder, as a constant of a name of its own.
  void external(llvm::StringRef name, DType dtype, llvm::ArrayRef<int64_t> shape,
                llvm::StringRef file, uint64_t offset, uint64_t bytes);
  Name cast(const Name &x, DType to);

  /// The graph with these ports: ids [batch, seq] of 64 bits.
  onnx::ModelProto finish(llvm::StringRef name, llvm::StringRef ids, const Name &result,
                          llvm::StringRef resultName);

private:
  std::string fresh(llvm::StringRef type);
  onnx::TensorProto &initializer(llvm::StringRef name, int type, llvm::ArrayRef<int64_t> shape);

  onnx::ModelProto model_;
  std::string part_;
  llvm::StringMap<unsigned> uses_; // of a name
  llvm::StringSet<> constants_;
};

} // namespace gpt2c
