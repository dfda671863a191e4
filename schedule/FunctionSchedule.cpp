#include "schedule/FunctionSchedule.h"

#include "ir/FunctionNames.h"
#include "schedule/cost/ScheduleCost.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

static std::string count(int64_t n, llvm::StringRef what) {
  return llvm::formatv("{0} {1}{2}", n, what, n == 1 ? "" : "s").str();
}

Function *VersionScheduler::widenedForm(const Function &f) const {
  const std::string name = f.name() == functions::prefillShort ? functions::prefill : f.name();
  return module_.function(functions::widened(name));
}

llvm::Error VersionScheduler::add(std::vector<FunctionSchedule> &list, Function &f,
                                  std::string limits, SymbolBounds bounds,
                                  const ScheduleOptions &options) const {
  auto made = schedule(f, bounds, options, kernels_);
  if (!made)
    return made.takeError();
  FunctionSchedule version{&f, std::move(limits), std::move(bounds), std::move(*made)};
  if (Function *wide = widenedForm(f); wide && !options.orders) {
    auto other = schedule(*wide, version.bounds, options, kernels_);
    if (!other)
      return other.takeError();
    const TargetRates &rates = options.target.rates;
    if (microsecondsOf(*other, version.bounds, rates) <
        microsecondsOf(version.schedule, version.bounds, rates)) {
      version.of = wide;
      version.schedule = std::move(*other);
    }
  }
  list.push_back(std::move(version));
  return llvm::Error::success();
}

/// Whether `a` takes every call that `b` does.
static bool covers(const SymbolBounds &a, const SymbolBounds &b) {
  return llvm::all_of(b, [&](const auto &symbol) {
    auto it = a.find(symbol.first);
    return it != a.end() && it->second.second >= symbol.second.second;
  });
}

void VersionScheduler::dropSlower(std::vector<FunctionSchedule> &list) const {
  // Estimates are no nearer.
  constexpr double tolerance = 1.01;
  std::vector<double> costs;
  for (const FunctionSchedule &version : list)
    costs.push_back(microsecondsOf(version.schedule, version.bounds, options_.target.rates));
  std::vector<FunctionSchedule> kept;
  for (size_t i = 0; i < list.size(); ++i) {
    bool slower = false;
    for (size_t j = i + 1; j < list.size() && !slower; ++j)
      slower = covers(list[j].bounds, list[i].bounds) && tolerance * costs[j] < costs[i];
    if (!slower)
      kept.push_back(std::move(list[i]));
  }
  list = std::move(kept);
}

llvm::Expected<std::vector<FunctionSchedule>> VersionScheduler::extend(Function &f,
                                                                       SumOrders *orders) const {
  std::vector<FunctionSchedule> list;
  ScheduleOptions options = options_;
  options.orders = orders;
  for (const Versions::RowsBox &box : versions_.rowsBoxes(!orders)) {
    if (orders)
      orders->beginVersion("up to " + std::to_string(box.rows) + " rows");
    if (llvm::Error e =
            add(list, f, count(box.rows, "row") + " of " + count(box.segments, "segment"),
                versions_.boundsOfRows(f, box), options))
      return e;
  }
  if (!orders)
    dropSlower(list);
  return list;
}

llvm::Expected<std::vector<FunctionSchedule>>
VersionScheduler::invariant(Function &f, std::vector<SumOrders::Estimate> &costs) const {
  SumOrders orders;
  if (auto noted = extend(f, &orders); !noted)
    return noted.takeError();
  if (llvm::Error e = orders.decide())
    return e;
  costs = orders.estimates();
  return extend(f, &orders);
}

llvm::Expected<std::vector<FunctionSchedule>> VersionScheduler::of(Function &f) const {
  if (f.name() == functions::extend)
    return extend(f, nullptr);
  std::vector<FunctionSchedule> list;
  for (auto [batch, seq] : versions_.boxes(f, module_)) {
    SymbolBounds bounds = versions_.bounds(f, batch);
    bounds["seq"].second = std::min(bounds["seq"].second, seq);
    if (llvm::Error e = add(list, f, count(batch, "sequence") + " of " + count(seq, "token"),
                            std::move(bounds), options_))
      return e;
  }
  if (f.name() == functions::decode)
    dropSlower(list);
  return list;
}

llvm::Expected<std::vector<FunctionSchedule>>
VersionScheduler::steps(Function &decode, const Function &extend, int64_t covered) const {
  std::vector<FunctionSchedule> list;
  ScheduleOptions options = options_;
  options.pageTokens = int(*extend.argument("kv")->type.shape[4].constant());
  for (auto [batch, seq] : versions_.boxes(decode, module_))
    if (batch > covered)
      if (llvm::Error e = add(list, decode,
                              count(batch, "sequence") + " of " + count(seq, "token") + " in pages",
                              versions_.bounds(decode, batch), options))
        return e;
  dropSlower(list);
  return list;
}

} // namespace gpt2c
