#include "tools/common/WeightFolder.h"

#include "ir/Budget.h"
#include "ir/Error.h"
#include "tools/common/flags/CommandLine.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace gpt2c {

std::string WeightFolder::file(uint64_t hash) const {
  llvm::SmallString<128> path(path_);
  llvm::sys::path::append(path, hashText(hash) + ".bin");
  return path.str().str();
}

void WeightFolder::store(uint64_t hash, const Tensor &t) {
  uint64_t size;
  std::string path = file(hash);
  if (error_ || (!llvm::sys::fs::file_size(path, size) && size == t.bytes()))
    return;
  if (std::error_code e = llvm::sys::fs::create_directories(path_))
    error_ = makeError(ExitCode::Io, "cannot create '" + path_ + "': " + e.message());
  else
    error_ = writeOutput(path,
                         [&](llvm::raw_ostream &os) { os.write(t.byteArray().data(), t.bytes()); });
}

Tensor WeightFolder::load(uint64_t hash, const Type &type) const {
  llvm::SmallVector<int64_t, 4> shape;
  for (const Dim &d : type.shape) {
    shape.push_back(d.constant().value_or(-1));
    if (shape.back() < 0)
      return {};
  }
  const std::optional<int64_t> bytes = tensorBytes(type.dtype, shape);
  auto buffer = llvm::MemoryBuffer::getFile(file(hash), /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer || !bytes || static_cast<int64_t>((*buffer)->getBufferSize()) != *bytes)
    return {};
  std::shared_ptr<llvm::MemoryBuffer> owner = std::move(*buffer);
  Tensor t(type.dtype, shape, owner->getBufferStart(), owner);
  return t.hash() == hash ? t : Tensor();
}

} // namespace gpt2c
