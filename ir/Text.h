// The text form of the IR.
//
//     module @gpt2 {producer = "pytorch", opset = "18"}
//
//     func @main(%input_ids: i64[batch, seq]) -> (%logits: f32[batch, seq, 512]) {
//       %wte = constant weight<"9f86d081884c7d65"> : f32[512, 64]
//       %0 = gather(%wte, %input_ids) : f32[batch, seq, 64] loc("/wte/Gather")
//       %1 = linear(%0, %wte, none, none) {activation = "relu"} : f32[batch, seq, 512]
//       return %1
//     }
//
// An op prints its operands (`none` for an absent one), the attributes that differ from their
// defaults in the order of the signature, its result types and, in `loc`, the ONNX nodes it came
// from. Types are written and checked against inference. Names keep their spelling, quoted where
// they are no identifiers: %"onnx::Add_12"; values without a name of their own are numbered. `//`
// starts a comment. Printing what was parsed gives the same text.
//
// A constant is `dense<[1.0, 2.5]>`, `dense<0.0>` when all elements are the same, `elided<"hash">`
// when its bytes are not there, or `weight<"hash">` when they are kept elsewhere. Floats are the
// shortest decimals that read back to the same bits, `inf`, `-inf`, `nan`, or the bits in hex (a
// NaN with a payload).
#pragma once

#include "ir/Function.h"

#include <functional>

namespace gpt2c {

struct PrintOptions {
  /// Whether ops show the nodes they came from.
  bool locations = true;
  /// Whether values known to inference are shown, as comments: `// = [batch, seq]`.
  bool contents = false;
  /// When set, constants that are not written out go here and are printed as `weight<"hash">`, else
  /// as `elided<"hash">`. May be called with the same hash again.
  std::function<void(uint64_t hash, const Tensor &)> weights;
  /// Which functions of a module are printed; none: all.
  std::function<bool(const Function &)> prints;
};

struct ParseOptions {
  /// Finds the bytes of `weight<"hash">`; an invalid tensor when there are none. Called once for
  /// each hash: constants of one hash share their storage.
  std::function<Tensor(uint64_t hash, const Type &)> weights;
};

void print(const Module &m, llvm::raw_ostream &os, const PrintOptions &options = {});
void print(const Function &f, llvm::raw_ostream &os, const PrintOptions &options = {});
std::string toText(const Function &f, const PrintOptions &options = {});

/// Parses a module. The error names file, line and column and is the first one found. The result
/// satisfies the verifier, except that nothing is said about InPlace operands.
llvm::Expected<std::unique_ptr<Module>>
parseModule(llvm::StringRef text, llvm::StringRef bufferName, const ParseOptions &options = {});

/// How the text form spells an attribute.
std::string attrText(const Attr &a);

/// The elided bytes' hash as the text form shows it: 16 hex digits.
std::string hashText(uint64_t hash);

} // namespace gpt2c
