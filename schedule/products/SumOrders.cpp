#include "schedule/products/SumOrders.h"

#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Of a configuration without a model: behind all that have one, in the order of the list.
static double costOf(const SumOption &option, size_t place) {
  constexpr double unknown = 1e6;
  return option.microseconds ? *option.microseconds : unknown + double(place);
}

size_t SumOrders::choose(const Op &op, llvm::ArrayRef<SumOption> options) {
  assert(!options.empty() && !versions_.empty());
  if (auto it = decided_.find(&op); it != decided_.end()) {
    std::optional<size_t> best;
    for (size_t i = 0; i < options.size(); ++i)
      if (options[i].order == it->second &&
          (!best || costOf(options[i], i) < costOf(options[*best], *best)))
        best = i;
    assert(best && "the same options are offered both times");
    return *best;
  }
  Offer offer{.version = versions_.size() - 1};
  for (auto [i, option] : llvm::enumerate(options)) {
    const double cost = costOf(option, i);
    auto [it, isNew] = offer.costs.try_emplace(option.order, cost);
    it->second = std::min(it->second, cost);
    offer.modelled |= option.microseconds.has_value();
  }
  offers_[&op].push_back(std::move(offer));
  return 0;
}

static double cheapestOf(const std::map<std::string, double> &costs) {
  return llvm::min_element(costs, [](auto &a, auto &b) { return a.second < b.second; })->second;
}

llvm::Error SumOrders::decide() {
  for (auto &[op, offers] : offers_) {
    std::optional<std::pair<double, std::string>> best;
    for (const auto &[order, unused] : offers.front().costs) {
      double sum = 0;
      const bool everywhere = llvm::all_of(offers, [&, o = &order](const Offer &offer) {
        auto it = offer.costs.find(*o);
        sum += it == offer.costs.end() ? 0 : it->second / cheapestOf(offer.costs);
        return it != offer.costs.end();
      });
      if (everywhere && (!best || sum < best->first))
        best = {sum, order};
    }
    if (!best) {
      std::string why;
      for (const Offer &offer : offers) {
        why += "\n  " + versions_[offer.version] + ":";
        for (const auto &[order, cost] : offer.costs)
          why += " " + order + ";";
      }
      return makeError(ExitCode::Unsupported,
                       op->describe() + ": its versions have no order of sums in common" + why);
    }
    decided_[op] = best->second;
  }
  return llvm::Error::success();
}

std::vector<SumOrders::Estimate> SumOrders::estimates() const {
  std::map<size_t, Estimate> byVersion;
  for (auto &[op, offers] : offers_)
    for (const Offer &offer : offers) {
      Estimate &e = byVersion[offer.version];
      e.version = versions_[offer.version];
      auto it = offer.costs.find(decided_.lookup(op));
      if (!offer.modelled || it == offer.costs.end()) {
        ++e.unknown;
        continue;
      }
      e.cheapest += cheapestOf(offer.costs);
      e.taken += it->second;
    }
  std::vector<Estimate> list;
  for (auto &[version, e] : byVersion)
    list.push_back(std::move(e));
  return list;
}

} // namespace gpt2c
