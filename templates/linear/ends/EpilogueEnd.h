// What epilogues of products may end with: a file here and a line in
// schedule/products/ProductEnds.def for each. A kernel that can do it lists it in its record.
#pragma once

#include "codegen/Lowering.h"
#include "schedule/Schedule.h"
#include "templates/linear/parts/EpilogueWriter.h"

namespace gpt2c {

struct EpilogueEnd : ProductEnd {
  /// The last stage of the epilogue of a group that ends with it, and its operands by name.
  EpilogueStage (*stage)(const LinearGroup &g, ArgList &args) = nullptr;
  void (*write)(EpilogueWriter &w, const EpilogueStage &stage) = nullptr;
};

#define PRODUCT_END(Name, ...) extern const EpilogueEnd end##Name;
#include "schedule/products/ProductEnds.def"

/// All of them.
llvm::ArrayRef<const ProductEnd *> productEnds();
const EpilogueEnd &endOf(ProductEndKind kind);

} // namespace gpt2c
