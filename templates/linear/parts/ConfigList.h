// Lists of configurations that begin with the cost model's choice and hold none twice.
#pragma once

#include "codegen/Grid.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

template <typename C> class ConfigList {
public:
  explicit ConfigList(const C &model) : configs_{model} {}
  void add(const C &c) {
    if (llvm::none_of(configs_, [&](const C &other) { return nameOf(other) == nameOf(c); }))
      configs_.push_back(c);
  }
  size_t size() const { return configs_.size(); }
  std::vector<C> take() { return std::move(configs_); }

private:
  std::vector<C> configs_;
};

/// Those of `configs` whose estimated time is near that of `model`, the cheapest first; or `all`.
template <typename C, typename Cost>
std::vector<C> cheapest(const C &model, std::vector<C> configs, Cost cost, bool all = false) {
  constexpr double tooSlow = 1.6;
  constexpr size_t most = 16;
  llvm::sort(configs, [&](const C &a, const C &b) {
    const double first = cost(a), second = cost(b);
    return first != second ? first < second : nameOf(a) < nameOf(b);
  });
  ConfigList list(model);
  for (const C &c : configs)
    if (all || (list.size() < most && cost(c) <= tooSlow * cost(model)))
      list.add(c);
  return list.take();
}

/// The name of tiles of bm x bn, a ring, parts of K.
template <typename C> std::string tileName(llvm::StringRef kernel, const C &c) {
  return llvm::formatv("{0} {1}x{2} stages={3} split={4}", kernel, c.bm, c.bn, c.stages, c.splitK)
      .str();
}

/// How a sum over K that is cut into so many parts, which are added up in their order, is said.
inline std::string inParts(llvm::StringRef what, int parts) {
  return parts == 1 ? what.str() : llvm::formatv("{0} in {1} parts", what, parts).str();
}

/// A block for each tile and part of K.
template <typename C> Grid tileGrid(const C &c, const plan::ExprT &m, int64_t n) {
  return blocks(ceilDivExpr(m, c.bm), rt::constantExpr(llvm::divideCeilSigned(n, c.bn)), c.splitK);
}

/// Configurations of one kernel among those of several, where the cheapest of all is looked for.
template <typename C, typename Tile> std::vector<C> only(const std::vector<Tile> &list) {
  std::vector<C> out;
  for (const Tile &tile : list)
    if (const C *c = std::get_if<C>(&tile))
      out.push_back(*c);
  return out;
}
template <typename... C> std::string nameOf(const std::variant<C...> &tile) {
  return std::visit([](const auto &c) { return nameOf(c); }, tile);
}

} // namespace gpt2c
