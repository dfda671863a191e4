#include "frontend/files/FileKind.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"

namespace gpt2c {

namespace {

struct Magic {
  size_t at;
  llvm::StringLiteral bytes;
  FileKind kind;
};

constexpr llvm::StringLiteral kCheckpoint =
    "gpt2c compiles an ONNX export, or the folder of a checkpoint with config.json and safetensors";

const Magic kMagics[] = {
    {0, "version https://git-lfs", {"a Git LFS pointer", "'git lfs pull' fetches the file itself"}},
    {0, "GGUF", {"a GGUF file, of llama.cpp", kCheckpoint}},
    {0, "ggml", {"a GGML file, of llama.cpp", kCheckpoint}},
    {0, "ggjt", {"a GGML file, of llama.cpp", kCheckpoint}},
    {4, "ORTM", {"a model in the format of ONNX Runtime", "give the .onnx that it was made of"}},
    {4, "TFL3", {"a TFLite model", kCheckpoint}},
    {0, "ftrt", {"a TensorRT engine", kCheckpoint}},
    {0, "\x89G2C\r\n\x1A\n", {"a plan of gpt2c", "gpt2c-run runs it"}},
    {0, "PK\x03\x04", {"a ZIP archive, as PyTorch's checkpoints are", kCheckpoint}},
    {0, "\x89HDF", {"an HDF5 file", kCheckpoint}},
    {0, "\x1F\x8B", {"compressed by gzip", "unpack it first"}},
    {0, "\x28\xB5\x2F\xFD", {"compressed by zstd", "unpack it first"}},
    {0,
     "\xFD"
     "7zXZ",
     {"compressed by xz", "unpack it first"}},
    {0, "BZh", {"compressed by bzip2", "unpack it first"}},
    {0, "7z\xBC\xAF", {"a 7-Zip archive", "unpack it first"}},
    {0, "\x80\x02}", {"a pickle of Python's", kCheckpoint}},
    {0, "\x80\x04", {"a pickle of Python's", kCheckpoint}},
};

/// A number of bytes, and so many of JSON.
bool isSafetensors(llvm::StringRef bytes) {
  if (bytes.size() < 10)
    return false;
  const uint64_t header = llvm::support::endian::read64le(bytes.data());
  return header >= 2 && header <= bytes.size() - 8 && bytes[8] == '{' &&
         (bytes[9] == '"' || bytes[9] == '}' || llvm::isSpace(bytes[9]));
}

} // namespace

FileKind foreignKind(llvm::StringRef bytes) {
  for (const Magic &magic : kMagics)
    if (bytes.substr(magic.at).starts_with(magic.bytes))
      return magic.kind;
  if (isSafetensors(bytes))
    return {"a safetensors file",
            "give the folder that it lies in, with its config.json, or an ONNX export"};
  const llvm::StringRef text = bytes.take_front(512).ltrim();
  for (llvm::StringRef tag : {"<!doctype html", "<html", "<?xml", "<head"})
    if (text.starts_with_insensitive(tag))
      return {"a web page", "download the file itself; a page of a model is not the model"};
  if (text.starts_with("{") || text.starts_with("["))
    return {"JSON", kCheckpoint};
  return {};
}

} // namespace gpt2c
