#include "tools/gpt2c-compare/Compare.h"

#include "ir/Error.h"
#include "tools/common/flags/CommandLine.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace gpt2c {

namespace {

using llvm::support::endian::read16le;
using llvm::support::endian::read32le;

llvm::Error damaged(llvm::StringRef path, const llvm::Twine &why) {
  return makeError(ExitCode::Io, "'" + path + "' is no NumPy archive that can be read: " + why +
                                     "; numpy.savez writes one");
}

/// The value of a key in the text of an array's header, a Python dictionary: 'descr': '<f4'.
llvm::StringRef field(llvm::StringRef header, llvm::StringRef key) {
  llvm::StringRef rest = header.split("'" + key.str() + "':").second.ltrim();
  if (rest.consume_front("'"))
    return rest.split('\'').first;
  if (rest.consume_front("("))
    return rest.split(')').first;
  return rest.split(',').first.trim();
}

std::optional<DType> dtypeOf(llvm::StringRef descr) {
  static const std::pair<llvm::StringRef, DType> known[] = {
      {"<f4", DType::F32}, {"<f2", DType::F16}, {"<f8", DType::F64}, {"<i4", DType::I32},
      {"<i8", DType::I64}, {"|i1", DType::I8},  {"|u1", DType::U8},  {"|b1", DType::Bool}};
  for (auto [name, dtype] : known)
    if (descr == name)
      return dtype;
  return std::nullopt;
}

/// An array of the NPY format, versions 1 to 3.
llvm::Expected<Tensor> readArray(llvm::StringRef bytes, llvm::StringRef path,
                                 llvm::StringRef name) {
  if (!bytes.starts_with("\x93NUMPY") || bytes.size() < 12)
    return damaged(path, name + " is no array");
  const bool wide = bytes[6] > 1;
  const size_t start = wide ? 12 : 10,
               length = wide ? read32le(bytes.data() + 8) : read16le(bytes.data() + 8);
  if (bytes.size() - start < length)
    return damaged(path, name + " is cut off");
  llvm::StringRef header = bytes.substr(start, length), data = bytes.substr(start + length);
  std::optional<DType> dtype = dtypeOf(field(header, "descr"));
  if (!dtype || field(header, "fortran_order") != "False")
    return damaged(path,
                   name + " has the type '" + field(header, "descr") + "', or its columns first");
  llvm::SmallVector<int64_t> shape;
  llvm::SmallVector<llvm::StringRef> parts;
  field(header, "shape").split(parts, ',', -1, false);
  uint64_t size = byteSize(*dtype);
  for (llvm::StringRef part : parts) {
    int64_t d = 0;
    if (part.trim().empty())
      continue;
    if (part.trim().getAsInteger(10, d) || d < 0 ||
        __builtin_mul_overflow(size, uint64_t(d), &size))
      return damaged(path, name + " has no shape");
    shape.push_back(d);
  }
  if (size != data.size())
    return damaged(path, name + " has " + llvm::Twine(data.size()) + " bytes, its shape needs " +
                             llvm::Twine(size));
  Tensor out(*dtype, shape);
  if (size)
    std::memcpy(out.raw(), data.data(), size);
  return out;
}

/// A ZIP file whose members are stored as they are, by its central directory. Its last record is
/// 22 bytes without a comment, which NumPy does not write.
llvm::Expected<std::vector<NamedTensor>> readArchive(const std::string &path) {
  auto buffer = readInput(path);
  if (!buffer)
    return buffer.takeError();
  llvm::StringRef file = (*buffer)->getBuffer();
  constexpr size_t endBytes = 22, entryBytes = 46, memberBytes = 30;
  size_t at = file.rfind("PK\5\6");
  if (at == llvm::StringRef::npos || file.size() - at < endBytes)
    return damaged(path, "it has no directory");
  const unsigned count = read16le(file.data() + at + 10);
  size_t entry = read32le(file.data() + at + 16);
  std::vector<NamedTensor> out;
  for (unsigned i = 0; i < count; ++i) {
    if (entry > file.size() || file.size() - entry < entryBytes ||
        !file.substr(entry).starts_with("PK\1\2"))
      return damaged(path, "its directory is cut off");
    const char *e = file.data() + entry;
    const size_t nameBytes = read16le(e + 28), bytes = read32le(e + 20), member = read32le(e + 42);
    llvm::StringRef name = file.substr(entry + entryBytes, nameBytes);
    entry += entryBytes + nameBytes + read16le(e + 30) + read16le(e + 32);
    if (read16le(e + 10) != 0)
      return damaged(path, name + " is compressed");
    if (member > file.size() || file.size() - member < memberBytes)
      return damaged(path, name + " lies outside of it, or is above 4 GiB");
    const size_t begin = member + memberBytes + read16le(file.data() + member + 26) +
                         read16le(file.data() + member + 28);
    if (begin > file.size() || file.size() - begin < bytes)
      return damaged(path, name + " is cut off, or above 4 GiB");
    auto tensor = readArray(file.substr(begin, bytes), path, name);
    if (!tensor)
      return tensor.takeError();
    name.consume_back(".npy");
    out.push_back({name.str(), std::move(*tensor)});
  }
  return out;
}

llvm::Expected<std::vector<NamedTensor>> readFolder(const std::string &path) {
  std::vector<std::string> files;
  std::error_code ec;
  for (llvm::sys::fs::directory_iterator it(path, ec), end; it != end && !ec; it.increment(ec))
    if (llvm::StringRef(it->path()).ends_with(".pb"))
      files.push_back(it->path());
  llvm::sort(files);
  std::vector<NamedTensor> out;
  for (const std::string &file : files) {
    auto tensor = readTensorProto(file);
    if (!tensor)
      return tensor.takeError();
    if (tensor->name.empty())
      tensor->name = llvm::sys::path::stem(file).str();
    out.push_back(std::move(*tensor));
  }
  return out;
}

/// "/h.0/mlp/Add_output_0" as PyTorch calls what the node /h.0/mlp/Add gives.
llvm::StringRef nodeOf(llvm::StringRef tensor) {
  auto [node, number] = tensor.rsplit("_output_");
  return !number.empty() && llvm::all_of(number, llvm::isDigit) ? node : tensor;
}

} // namespace

llvm::Expected<std::vector<NamedTensor>> readTensors(const std::string &path) {
  auto tensors = llvm::sys::fs::is_directory(path) ? readFolder(path) : readArchive(path);
  if (tensors && tensors->empty())
    return makeError(ExitCode::Io, "'" + path + "' holds no tensors");
  return tensors;
}

/// The names under which another tool may have a value.
static std::vector<llvm::StringRef> namesOf(const Value &v, const plan::PlanT &meta,
                                            bool isLogits) {
  std::vector<llvm::StringRef> out{v.name};
  llvm::append_range(out, v.def()->locations);
  if (isLogits)
    out.push_back("logits");
  for (const auto &port : meta.exported_outputs)
    if (isLogits && port->role == plan::Role::Logits)
      out.push_back(port->name);
  return out;
}

static bool isResult(const Value &v, llvm::StringRef name) {
  const Function &f = *v.def()->function();
  for (auto [i, r] : llvm::enumerate(f.returned()))
    if (r == &v && i < f.resultNames.size() && f.resultNames[i] == name)
      return true;
  return false;
}

std::vector<ValueError> compareTensors(llvm::ArrayRef<TracedValue> traced,
                                       llvm::ArrayRef<NamedTensor> tensors, const TraceCall &call,
                                       const plan::PlanT &meta) {
  const ComparedRows rows{call.batch(), call.tokens(), 0};
  std::vector<ValueError> out;
  for (const TracedValue &t : traced) {
    std::optional<ValueError> nearest;
    const bool logits = isResult(*t.value, "logits");
    const std::vector<llvm::StringRef> names = namesOf(*t.value, meta, logits);
    for (const NamedTensor &other : tensors) {
      const bool named = !other.name.empty() && (llvm::is_contained(names, other.name) ||
                                                 llvm::is_contained(names, nodeOf(other.name)));
      if (!named || !isFloat(other.tensor.dtype()))
        continue;
      auto part = partFor(t.tensor, other.tensor, rows);
      if (!part || part->count() != t.tensor.count())
        continue;
      ValueError e = valueError(t, *part, logits);
      if (!nearest || e.total.relative < nearest->total.relative)
        nearest = std::move(e);
    }
    if (nearest)
      out.push_back(std::move(*nearest));
  }
  return out;
}

} // namespace gpt2c
