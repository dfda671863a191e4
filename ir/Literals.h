// Literals of the text form: dimensions, types, attributes and the elements of constants, in both
// directions.
#pragma once

#include "ir/Attr.h"
#include "ir/Lexer.h"
#include "ir/Tensor.h"
#include "ir/Type.h"

namespace gpt2c {

// The parse functions return true after reporting an error to the stream.

/// `past + seq`, `2*seq - 1`
bool parseDim(TokenStream &s, Dim &out);
/// `f32[batch, 64]`
bool parseType(TokenStream &s, Type &out);
bool parseAttr(TokenStream &s, AttrKind kind, Attr &out);
/// 16 hex digits in quotes.
bool parseHash(TokenStream &s, uint64_t &out);

/// What stands in `dense<...>`. It becomes a tensor once the type that follows is known.
struct DenseLiteral {
  struct Element {
    Token token;
    bool negative = false;
  };
  std::vector<Element> elements;
  llvm::SmallVector<int64_t, 4> shape; // of the nested lists; empty for one element
  llvm::SMLoc loc;
};
bool parseDense(TokenStream &s, DenseLiteral &out);
bool toTensor(TokenStream &s, const DenseLiteral &literal, const Type &type, Tensor &out);

/// Whether every element has the same bits; false for fewer than two.
bool isSplat(const Tensor &t);
/// More elements than this are never written as one repeated element, so that a short text cannot
/// ask for much memory.
constexpr int64_t splatLimit = 1 << 20;

void printDense(const Tensor &t, llvm::raw_ostream &os);
void printQuoted(llvm::StringRef s, llvm::raw_ostream &os);
void printFloat(double v, llvm::raw_ostream &os);

} // namespace gpt2c
