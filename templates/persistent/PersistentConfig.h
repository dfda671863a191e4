// What the texts of persistent kernels have in common.
#pragma once

#include "ir/Type.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <utility>

namespace gpt2c::persistent {

inline const char *cudaType(DType t) {
  return t == DType::I8 ? "signed char" : t == DType::F16 ? "__half" : "float";
}

/// Activations and their functions in templates/linear/parts/epilogue.cuh.
inline constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral> activationFunctions[] = {
    {"gelu_tanh", "geluTanh"},
    {"gelu_erf", "geluErf"},
    {"relu", "relu"},
    {"sigmoid", "sigmoid"},
    {"tanh", "tanh"}};
inline bool hasFunction(llvm::StringRef activation) {
  for (auto [name, function] : activationFunctions)
    if (activation == name)
      return true;
  return activation == "none";
}

/// Writes the members of a config.
struct Config {
  llvm::raw_string_ostream os;
  explicit Config(std::string &to, const llvm::Twine &name) : os(to) {
    os << "struct " << name << " {\n";
  }
  ~Config() { os << "};\n"; }
  Config &type(llvm::StringRef name, llvm::StringRef is) {
    os << "  using " << name << " = " << is << ";\n";
    return *this;
  }
  Config &number(llvm::StringRef name, int64_t value) {
    os << "  static constexpr int " << name << " = " << value << ";\n";
    return *this;
  }
  Config &norm(llvm::StringRef name, llvm::StringRef kind) {
    os << "  static constexpr NormKind " << name << " = NormKind::" << kind << ";\n";
    return *this;
  }
  Config &real(llvm::StringRef name, float value) {
    os << "  static constexpr float " << name << " = " << llvm::format("%a", value) << "f;\n";
    return *this;
  }
  Config &activation(llvm::StringRef activation) {
    os << "  template <int V> static __device__ __forceinline__ void activate(float (&v)[V]) {\n";
    for (auto [name, function] : activationFunctions)
      if (activation == name)
        os << "    epilogue::" << function << "(v);\n";
    os << "  }\n";
    return *this;
  }
  Config &flag(llvm::StringRef name, bool value) {
    os << "  static constexpr bool " << name << " = " << (value ? "true" : "false") << ";\n";
    return *this;
  }
};

} // namespace gpt2c::persistent
