#include "frontend/checkpoint/Weights.h"
#include "frontend/checkpoint/Json.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <nlohmann/json.hpp>

#include <map>

namespace gpt2c {

static constexpr const char *singleFile = "model.safetensors";
static constexpr const char *indexFile = "model.safetensors.index.json";

std::string inFolder(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

/// What to do where no file is one that this reader takes.
static llvm::Error noWeights(const std::string &folder) {
  std::error_code e;
  for (llvm::sys::fs::directory_iterator file(folder, e), end; !e && file != end; file.increment(e))
    for (llvm::StringRef kind : {".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".safetensors"})
      if (llvm::StringRef(file->path()).ends_with(kind))
        return makeError(ExitCode::Unsupported,
                         "'" + folder + "' has neither " + singleFile + " nor " + indexFile +
                             "; '" + llvm::sys::path::filename(file->path()) +
                             "' is not read. Save the model with transformers' save_pretrained, or "
                             "export it to ONNX");
  return makeError(ExitCode::Io,
                   "'" + folder + "' has no weights: neither " + singleFile + " nor " + indexFile);
}

llvm::Error CheckpointWeights::addFile(llvm::StringRef name, ExternalFiles &files) {
  auto file = files.open(name);
  if (!file)
    return file.takeError();
  auto entries = readSafetensors((*file)->getBuffer(), name);
  if (!entries)
    return entries.takeError();
  for (SafetensorsEntry &entry : *entries) {
    const std::string tensor = entry.name;
    auto [known, added] = weights_.try_emplace(tensor, Weight{std::move(entry), name.str()});
    if (!added)
      return makeError(ExitCode::InvalidModel, "tensor '" + tensor + "' is in '" +
                                                   known->second.file + "' and in '" + name + "'");
  }
  return llvm::Error::success();
}

/// {"weight_map": {tensor: file}}
static llvm::Expected<llvm::StringMap<std::string>> readIndex(const std::string &path) {
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  auto json = parseObject((*buffer)->getBuffer(), path);
  if (!json)
    return json.takeError();
  auto invalid = [&](const llvm::Twine &why) {
    return makeError(ExitCode::InvalidModel, "'" + path + "' " + why);
  };
  auto map = json->find("weight_map");
  if (map == json->end() || !map->is_object() || map->empty())
    return invalid("has no weight_map");
  llvm::StringMap<std::string> files;
  for (const auto &[tensor, file] : map->items()) {
    if (!file.is_string())
      return invalid("names no file for '" + tensor + "'");
    files[tensor] = file.get<std::string>();
  }
  return files;
}

llvm::Expected<CheckpointWeights> CheckpointWeights::open(const std::string &folder) {
  CheckpointWeights weights;
  ExternalFiles files(folder);
  if (llvm::sys::fs::exists(inFolder(folder, singleFile))) {
    if (llvm::Error e = weights.addFile(singleFile, files))
      return e;
    return weights;
  }
  if (!llvm::sys::fs::exists(inFolder(folder, indexFile)))
    return noWeights(folder);
  auto index = readIndex(inFolder(folder, indexFile));
  if (!index)
    return index.takeError();
  llvm::StringSet<> added;
  for (const auto &mapped : *index)
    if (added.insert(mapped.second).second)
      if (llvm::Error e = weights.addFile(mapped.second, files))
        return e;
  for (const auto &mapped : *index)
    if (auto found = weights.weights_.find(mapped.first());
        found == weights.weights_.end() || found->second.file != mapped.second)
      return makeError(ExitCode::InvalidModel, "tensor '" + mapped.first() + "' is not in '" +
                                                   mapped.second + "', where " + indexFile +
                                                   " says it is");
  for (const auto &weight : weights.weights_)
    if (!index->contains(weight.first()))
      return makeError(ExitCode::InvalidModel, "tensor '" + weight.first() + "' of '" +
                                                   weight.second.file + "' is not in " + indexFile);
  return weights;
}

const CheckpointWeights::Weight *CheckpointWeights::find(llvm::StringRef name) const {
  auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

std::vector<std::string> CheckpointWeights::names() const {
  std::vector<std::string> names;
  for (const auto &weight : weights_)
    names.push_back(weight.first().str());
  llvm::sort(names);
  return names;
}

DType CheckpointWeights::mainType() const {
  std::map<DType, uint64_t> bytes;
  for (const auto &weight : weights_)
    if (weight.second.entry.dtype)
      bytes[*weight.second.entry.dtype] += weight.second.entry.bytes;
  DType most = DType::F32;
  for (auto [dtype, count] : bytes)
    if (count > bytes[most])
      most = dtype;
  return most;
}

} // namespace gpt2c
