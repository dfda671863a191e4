// The one table of ONNX operators.
#pragma once

#include "frontend/Builders.h"

#include "llvm/ADT/StringRef.h"

namespace gpt2c {

/// The opsets of the default domain that are understood.
constexpr int64_t minOpset = 10, maxOpset = 24;

constexpr const char *onnxDomain = "";
constexpr const char *microsoftDomain = "com.microsoft";

struct OpRow {
  const char *domain; // "" is ONNX's own
  const char *op;
  int64_t
      since; // first opset with this form; a row with a higher `since` replaces it from there on
  onnxops::BuilderFunction build;
};

/// The rows, for documentation and tests.
llvm::ArrayRef<OpRow> opRows();

struct OpLookup {
  /// The form for the opset; null when there is none.
  const OpRow *row = nullptr;
  /// When `row` is null: the opset that first has the operator, 0 when none of those understood
  /// does.
  int64_t firstSince = 0;
};

OpLookup lookUpOp(llvm::StringRef domain, llvm::StringRef op, int64_t opset);
bool isKnownDomain(llvm::StringRef domain);

} // namespace gpt2c
