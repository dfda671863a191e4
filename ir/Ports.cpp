#include "ir/Ports.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

/// "role:dtype:layer:part:name", where plain ports have `port` in the place of `part`; the name
/// comes last since it may hold any character.
static std::string encode(const ExportedPort &p) {
  return p.role + ":" + dtypeName(p.dtype).str() + ":" + std::to_string(p.layer) + ":" +
         (isNamed(p) ? p.port : p.part) + ":" + p.name;
}

static llvm::Expected<ExportedPort> decode(llvm::StringRef text) {
  ExportedPort p;
  auto [role, rest] = text.split(':');
  auto [dtype, rest2] = rest.split(':');
  auto [layer, rest3] = rest2.split(':');
  auto [part, name] = rest3.split(':');
  auto parsed = parseDType(dtype);
  if (!parsed || layer.getAsInteger(10, p.layer))
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "bad port property '" + text + "'");
  p.role = role.str();
  p.dtype = *parsed;
  (isNamed(p) ? p.port : p.part) = part.str();
  p.name = name.str();
  return p;
}

static std::string key(llvm::StringRef kind, size_t i) { return (kind + llvm::Twine(i)).str(); }

static llvm::Expected<std::vector<ExportedPort>> ports(const Module &m, llvm::StringRef kind) {
  std::vector<ExportedPort> out;
  for (auto &[name, value] : m.properties) {
    if (name != key(kind, out.size()))
      continue;
    auto p = decode(value);
    if (!p)
      return p.takeError();
    out.push_back(std::move(*p));
  }
  return out;
}

void setExportedPorts(Module &m, llvm::ArrayRef<ExportedPort> inputs,
                      llvm::ArrayRef<ExportedPort> outputs) {
  llvm::erase_if(m.properties, [](auto &p) {
    return llvm::StringRef(p.first).starts_with("input") ||
           llvm::StringRef(p.first).starts_with("output");
  });
  for (auto [i, p] : llvm::enumerate(inputs))
    m.properties.emplace_back(key("input", i), encode(p));
  for (auto [i, p] : llvm::enumerate(outputs))
    m.properties.emplace_back(key("output", i), encode(p));
}

llvm::Expected<std::vector<ExportedPort>> exportedInputs(const Module &m) {
  return ports(m, "input");
}
llvm::Expected<std::vector<ExportedPort>> exportedOutputs(const Module &m) {
  return ports(m, "output");
}

constexpr llvm::StringRef maskKey = "whole_mask";

/// "keep:hide:name"
void setWholeMask(Module &m, const WholeMask &mask) {
  m.properties.emplace_back(
      maskKey.str(), llvm::formatv("{0:e17}:{1:e17}:{2}", mask.keep, mask.hide, mask.name).str());
}

std::optional<WholeMask> wholeMask(const Module &m) {
  for (auto &[key, value] : m.properties) {
    if (key != maskKey)
      continue;
    auto [keep, rest] = llvm::StringRef(value).split(':');
    auto [hide, name] = rest.split(':');
    WholeMask mask{name.str()};
    if (!keep.getAsDouble(mask.keep) && !hide.getAsDouble(mask.hide))
      return mask;
  }
  return std::nullopt;
}

constexpr llvm::StringRef givenKey = "given_input";
constexpr llvm::StringRef givenKinds[] = {"one", "past", "positions"};

llvm::StringRef describe(const GivenInput &input) {
  constexpr llvm::StringRef texts[] = {"1", "the number of tokens before", "positions that count"};
  return texts[size_t(input.kind)];
}

/// "kind:name"
void setGivenInputs(Module &m, llvm::ArrayRef<GivenInput> inputs) {
  for (const GivenInput &input : inputs)
    m.properties.emplace_back(givenKey.str(),
                              (givenKinds[size_t(input.kind)] + ":" + input.name).str());
}

std::vector<GivenInput> givenInputsOf(const Module &m) {
  std::vector<GivenInput> inputs;
  for (auto &[key, value] : m.properties) {
    auto [kind, name] = llvm::StringRef(value).split(':');
    for (auto [i, known] : llvm::enumerate(givenKinds))
      if (key == givenKey && kind == known)
        inputs.push_back({name.str(), GivenInput::Kind(i)});
  }
  return inputs;
}

constexpr llvm::StringRef precisionKey = "exported_precision";

void setExportedPrecision(Module &m, DType precision) {
  llvm::erase_if(m.properties, [](auto &p) { return p.first == precisionKey; });
  if (precision != DType::F32)
    m.properties.emplace_back(precisionKey.str(), dtypeName(precision).str());
}

DType exportedPrecision(const Module &m) {
  for (auto &[name, value] : m.properties)
    if (name == precisionKey)
      return parseDType(value).value_or(DType::F32);
  return DType::F32;
}

} // namespace gpt2c
