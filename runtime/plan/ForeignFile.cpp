#include "runtime/plan/ForeignFile.h"

#include <algorithm>
#include <cctype>

namespace gpt2c::rt {
namespace {

/// An ONNX model begins with its version, and a field that follows one.
bool isOnnx(std::string_view bytes) {
  constexpr std::string_view next = "\x12\x1A\x22\x28\x32\x3A\x42";
  return bytes.size() > 2 && bytes[0] == '\x08' && bytes[1] > 0 && bytes[1] < 32 &&
         next.find(bytes[2]) != next.npos;
}

bool isWebPage(std::string_view bytes) {
  std::string text(bytes.substr(0, 512));
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text.starts_with("<!doctype html") || text.starts_with("<html") ||
         text.starts_with("<?xml") || text.starts_with("<head");
}

} // namespace

std::string foreignFile(std::string_view bytes) {
  if (bytes.starts_with("version https://git-lfs"))
    return "it is a Git LFS pointer; 'git lfs pull' fetches the file itself";
  if (isWebPage(bytes))
    return "it is a web page; download the file itself";
  if (bytes.starts_with("GGUF"))
    return "it is a GGUF file, of llama.cpp; gpt2c compiles an ONNX export, or the folder of a "
           "checkpoint with config.json and safetensors";
  if (bytes.starts_with("\x1F\x8B"))
    return "it is compressed by gzip; unpack it first";
  if (isOnnx(bytes))
    return "it is an ONNX model; 'gpt2c MODEL.onnx -o MODEL.plan' makes a plan of it";
  return {};
}

} // namespace gpt2c::rt
