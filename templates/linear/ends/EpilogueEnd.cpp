#include "templates/linear/ends/EpilogueEnd.h"

#include "llvm/Support/ErrorHandling.h"

namespace gpt2c {

llvm::ArrayRef<const ProductEnd *> productEnds() {
  static const ProductEnd *const ends[] = {
#define PRODUCT_END(Name, ...) &end##Name,
#include "schedule/products/ProductEnds.def"
  };
  return ends;
}

const EpilogueEnd &endOf(ProductEndKind kind) {
  switch (kind) {
#define PRODUCT_END(Name, ...)                                                                     \
  case ProductEndKind::Name:                                                                       \
    return end##Name;
#include "schedule/products/ProductEnds.def"
  case ProductEndKind::None:
    break;
  }
  llvm_unreachable("none is no end");
}

} // namespace gpt2c
