// Values of the configurations of templates/decode_step/common/configs.def, and their text in a
// kernel.
#pragma once

#include "ir/Activations.h"
#include "ir/Norms.h"
#include "ir/Type.h"
#include "templates/decode_step/common/records.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace gpt2c::persistent {

inline Element elementOf(DType t) {
  switch (t) {
#define ELEMENT_TYPE(Name, Type)                                                                   \
  case DType::Name:                                                                                \
    return Element::Name;
#include "templates/decode_step/common/configs.def"
  default:
    llvm_unreachable("no stage has it");
  }
}

inline int64_t byteSize(Element e) {
  switch (e) {
#define ELEMENT_TYPE(Name, Type)                                                                   \
  case Element::Name:                                                                              \
    return gpt2c::byteSize(DType::Name);
#include "templates/decode_step/common/configs.def"
  }
  return 0;
}

/// The text of a value, member by member with their names.
class ConfigText {
public:
  void add(llvm::StringRef name, int value) { append(name, llvm::Twine(value)); }
  void add(llvm::StringRef name, bool value) { append(name, value ? "true" : "false"); }
  void add(llvm::StringRef name, float value) {
    std::string digits;
    llvm::raw_string_ostream(digits) << llvm::format("%a", value) << "f";
    append(name, digits);
  }
  void add(llvm::StringRef name, Element value);
  void add(llvm::StringRef name, NormKind value) { append(name, "NormKind::" + nameOf(value)); }
  void add(Activation function) { function_ = infoOf(function).function; }
  /// The constant `name` of a type.
  std::string finish(llvm::StringRef type, llvm::StringRef name) const;

private:
  void append(llvm::StringRef name, const llvm::Twine &value) {
    text_ += ((text_.empty() ? "/*" : ", /*") + name + "=*/" + value).str();
  }
  std::string text_;
  llvm::StringRef function_;
};

inline std::string ConfigText::finish(llvm::StringRef type, llvm::StringRef name) const {
  std::string text = ("constexpr persistent::" + type + " " + name + " = {" + text_ + "};\n").str();
  if (!function_.empty())
    text += ("template <> struct gpt2c::persistent::FunctionOf<" + name +
             "> {\n  template <int V> static __device__ __forceinline__ void apply(float (&v)[V]) "
             "{ epilogue::" +
             function_ + "(v); }\n};\n")
                .str();
  return text;
}

// clang-format off
inline void ConfigText::add(llvm::StringRef name, Element value) {
#define ELEMENT_TYPE(Name, Type)                                                                   \
  if (value == Element::Name)                                                                      \
    append(name, "persistent::Element::" #Name);
#include "templates/decode_step/common/configs.def"
}

#define CONFIG(Name)                                                                               \
  inline bool operator==(const Name##Config &a, const Name##Config &b) {                           \
    return true
#define ELEMENT(Name) && a.Name == b.Name
#define VALUE(Type, Name) && a.Name == b.Name
#define FUNCTION(Name) && a.Name == b.Name
#define END_CONFIG ; }
#include "templates/decode_step/common/configs.def"

/// The definition of a constant in a kernel's text.
#define CONFIG(Name)                                                                               \
  inline std::string define(llvm::StringRef name, const Name##Config &config) {                    \
    const llvm::StringRef type = #Name "Config";                                                   \
    ConfigText text;
#define ELEMENT(Name) text.add(#Name, config.Name);
#define VALUE(Type, Name) text.add(#Name, config.Name);
#define FUNCTION(Name) text.add(config.Name);
#define END_CONFIG                                                                                 \
    return text.finish(type, name);                                                                \
  }
#include "templates/decode_step/common/configs.def"
// clang-format on

} // namespace gpt2c::persistent
