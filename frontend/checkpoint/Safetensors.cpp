#include "frontend/checkpoint/Safetensors.h"
#include "frontend/checkpoint/Json.h"
#include "frontend/files/FileKind.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"

#include <nlohmann/json.hpp>

namespace gpt2c {

namespace {

using Json = nlohmann::json;

constexpr uint64_t lengthBytes = 8, mostHeaderBytes = 100'000'000;

/// 0 for types that this reader does not know; their sizes are not checked.
unsigned bytesOf(llvm::StringRef dtype) {
  return llvm::StringSwitch<unsigned>(dtype)
      .Cases("F64", "I64", "U64", "C64", 8)
      .Cases("F32", "I32", "U32", 4)
      .Cases("F16", "BF16", "I16", "U16", 2)
      .Cases("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", 1)
      .Default(0);
}

std::optional<DType> dtypeOf(llvm::StringRef dtype) {
  return llvm::StringSwitch<std::optional<DType>>(dtype)
      .Case("F64", DType::F64)
      .Case("F32", DType::F32)
      .Case("F16", DType::F16)
      .Case("BF16", DType::BF16)
      .Default(std::nullopt);
}

class HeaderReader {
public:
  HeaderReader(llvm::StringRef file, llvm::StringRef name) : file_(file), name_(name) {}

  llvm::Expected<std::vector<SafetensorsEntry>> run() {
    auto text = header();
    if (!text)
      return text.takeError();
    auto json = parseObject(*text, name_, 3);
    if (!json)
      return json.takeError();
    data_ = lengthBytes + text->size();
    std::vector<SafetensorsEntry> entries;
    for (const auto &[name, fields] : json->items()) {
      if (name == "__metadata__")
        continue;
      auto entry = entryOf(name, fields);
      if (!entry)
        return entry.takeError();
      entries.push_back(std::move(*entry));
    }
    llvm::sort(entries, [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    if (llvm::Error e = checkOrder(entries))
      return e;
    return entries;
  }

private:
  llvm::Error invalid(const llvm::Twine &why) {
    return makeError(ExitCode::InvalidModel, "'" + name_ + "' " + why);
  }
  llvm::Error invalid(llvm::StringRef tensor, const llvm::Twine &why) {
    return invalid("has a tensor '" + tensor + "' " + why);
  }

  /// A file of another kind, where it can be told.
  llvm::Error noHeader(const llvm::Twine &why) {
    const FileKind kind = foreignKind(file_);
    if (kind.name.empty())
      return invalid("is no safetensors file, or is cut short: " + why);
    return invalid("is " + kind.name + ", no safetensors file: " + kind.wayOut);
  }

  llvm::Expected<llvm::StringRef> header() {
    if (file_.size() < lengthBytes)
      return noHeader("it has " + llvm::Twine(file_.size()) + " bytes");
    const uint64_t length = llvm::support::endian::read64le(file_.data());
    if (length > mostHeaderBytes)
      return noHeader("its header would have " + llvm::Twine(length) +
                      " bytes, the format's most are " + llvm::Twine(mostHeaderBytes));
    if (length > file_.size() - lengthBytes)
      return noHeader("its header has " + llvm::Twine(length) + " bytes, the file " +
                      llvm::Twine(file_.size()));
    return file_.substr(lengthBytes, length);
  }

  llvm::Expected<SafetensorsEntry> entryOf(const std::string &name, const Json &fields) {
    static const Json none;
    auto field = [&](const char *key) -> const Json & {
      auto found = fields.is_object() ? fields.find(key) : fields.end();
      return found == fields.end() ? none : *found;
    };
    const Json &dtype = field("dtype"), &shape = field("shape"), &span = field("data_offsets");
    if (!dtype.is_string() || !shape.is_array() || !span.is_array() || span.size() != 2)
      return invalid(name, "without dtype, shape or two data_offsets");
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtypeName = dtype.get<std::string>();
    entry.dtype = dtypeOf(entry.dtypeName);
    for (const Json &size : shape) {
      auto count = asCount(size);
      if (!count)
        return invalid(name, "with a shape that is no list of sizes");
      entry.shape.push_back(*count);
    }
    auto begin = asCount(span[0]), end = asCount(span[1]);
    const uint64_t available = file_.size() - data_;
    if (!begin || !end || *begin > *end)
      return invalid(name, "with data_offsets that are no span");
    if (uint64_t(*end) > available)
      return invalid(name, "that ends at byte " + llvm::Twine(*end) + " of " +
                               llvm::Twine(available) + ": the file is cut short");
    entry.offset = data_ + uint64_t(*begin);
    entry.bytes = uint64_t(*end - *begin);
    if (llvm::Error e = checkSize(entry))
      return e;
    return entry;
  }

  llvm::Error checkSize(const SafetensorsEntry &entry) {
    const unsigned size = bytesOf(entry.dtypeName);
    uint64_t wanted = llvm::is_contained(entry.shape, 0) ? 0 : size;
    bool fits = true;
    for (int64_t d : entry.shape)
      if (wanted && fits) {
        fits = wanted <= UINT64_MAX / uint64_t(d);
        wanted *= uint64_t(d);
      }
    if (size && (!fits || wanted != entry.bytes))
      return invalid(entry.name, "of " + llvm::Twine(entry.bytes) +
                                     " bytes, which are not those of its shape and type " +
                                     entry.dtypeName);
    return llvm::Error::success();
  }

  llvm::Error checkOrder(llvm::ArrayRef<SafetensorsEntry> entries) {
    uint64_t end = data_;
    for (const SafetensorsEntry &entry : entries) {
      if (entry.offset != end)
        return invalid(entry.name, entry.offset < end
                                       ? "whose bytes are another tensor's, too"
                                       : "in front of which lie bytes that are no tensor's");
      end += entry.bytes;
    }
    if (end != file_.size())
      return invalid("ends with " + llvm::Twine(file_.size() - end) +
                     " bytes that are no tensor's");
    return llvm::Error::success();
  }

  llvm::StringRef file_, name_;
  uint64_t data_ = 0; // where the tensors begin
};

} // namespace

llvm::Expected<std::vector<SafetensorsEntry>> readSafetensors(llvm::StringRef file,
                                                              llvm::StringRef name) {
  return HeaderReader(file, name).run();
}

} // namespace gpt2c
