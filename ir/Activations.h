// What ir/Activations.def says of each activation.
#pragma once

#include "ir/Op.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>

namespace gpt2c {

enum class Activation : uint8_t {
  None,
#define ACTIVATION(Name, ...) Name,
#include "ir/Activations.def"
};

struct ActivationInfo {
  llvm::StringLiteral name;     ///< in the IR
  llvm::StringLiteral function; ///< of templates/device/activations.cuh; empty for none
  /// The same where results are rounded to fp16, bf16 or int8.
  llvm::StringLiteral functionForHalves;
  bool bounded; ///< |f(x)| <= max(1, |x|) for every x
};

const ActivationInfo &infoOf(Activation a);

/// None: there is no such activation.
std::optional<Activation> activationNamed(llvm::StringRef name);

/// The ops that do nothing but compute an activation of their operand, element by element.
llvm::ArrayRef<OpCode> activationOps();
/// Which one an op computes; empty: it is none of those.
std::optional<Activation> activationOf(const Op &op);

/// All of them, as documentation lists them.
inline constexpr llvm::StringLiteral activationNames = "none"
#define ACTIVATION(Name, inIr, ...) ", " inIr
#include "ir/Activations.def"
    ;

} // namespace gpt2c
