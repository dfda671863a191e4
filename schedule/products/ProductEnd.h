// What stands behind a product and is computed at the end of its epilogue.
#pragma once

#include "ir/Op.h"
#include "schedule/Scalar.h"

#include <iterator>
#include <string>

namespace gpt2c {

enum class ProductEndKind : uint8_t {
  None,
#define PRODUCT_END(Name, ...) Name,
#include "schedule/products/ProductEnds.def"
};

struct ProductEndInfo {
  llvm::StringLiteral word; ///< as near misses and --explain have it
  llvm::StringLiteral noun; ///< what a launch of it is called
  bool pairs;               ///< it takes neighbouring columns together
};
inline constexpr ProductEndInfo productEndInfos[] = {
    {"", "", false},
#define PRODUCT_END(Name, word, noun, text, pairs) {word, noun, pairs},
#include "schedule/products/ProductEnds.def"
};
constexpr const ProductEndInfo &infoOf(ProductEndKind k) { return productEndInfos[size_t(k)]; }

/// By its word; None: there is none of it.
constexpr ProductEndKind endNamed(llvm::StringRef word) {
  for (size_t i = 1; i < std::size(productEndInfos); ++i)
    if (productEndInfos[i].word == word)
      return ProductEndKind(i);
  return ProductEndKind::None;
}

struct LinearProblem;

/// All that the schedule asks of one; those who have the kernels hand it in.
struct ProductEnd {
  ProductEndKind kind = ProductEndKind::None;
  /// Whether `op`, which alone reads the product's result, is one.
  bool (*fits)(const Op &op, const Op &product) = nullptr;
  /// What it adds to the product's name in tuning files: "+silu gate".
  std::string (*name)(const Op &op) = nullptr;
  /// Up to so many rows a norm before the product may be for those kernels alone that compute the
  /// end as well.
  int64_t normRows = 0;
  /// What the product stores then; null: what its result is.
  Scalar (*stores)(const Op &op) = nullptr;
  /// Microseconds that launches behind a product take less which ends so, and itself takes
  /// `product`; null: a launch that reads what the product has written.
  double (*saves)(const LinearProblem &ended, const Op &op, double product) = nullptr;
  /// Of the same op, where this one is not taken; null: there is no other.
  const ProductEnd *otherwise = nullptr;
};

} // namespace gpt2c
