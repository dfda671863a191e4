// What must hold between passes.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// Checks that
/// - every operand is an argument or a result of an earlier op of the same function, and use lists
///   agree with operands;
/// - operands, results and attributes fit the op's signature;
/// - result types are what inference gives;
/// - the last op, and no other, is `return`; results have at most as many names as there are;
/// - operand 0 of an InPlace op is not used by that op again or by a later one;
/// - functions of a module have different names.
/// The error lists everything found. Types are checked when all the rest holds.
llvm::Error verify(const Module &m);
llvm::Error verify(const Function &f);

/// The signature part, for one op: counts of operands and results, presence and kinds of
/// attributes.
llvm::Error verifySignature(const Op &op);

} // namespace gpt2c
