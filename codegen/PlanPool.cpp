#include "codegen/PlanPool.h"

#include "ir/Op.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/PackedWeight.h"
#include "runtime/plan/WeightPart.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Parallel.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>

#include <xxhash.h>

namespace gpt2c {

std::string PlanPool::nextKernelName(llvm::StringRef stem) const {
  return (stem + "_" + llvm::Twine(kernels_.size())).str();
}

static std::string replaced(std::string text, llvm::StringRef from, llvm::StringRef to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

int PlanPool::kernel(KernelSource source) {
  std::string text = replaced(source.text, source.name, "@");
  auto [it, isNew] = kernelByText_.try_emplace(text, kernels_.size());
  if (isNew) {
    std::string stem = llvm::StringRef(source.name).rsplit('_').first.str();
    uint32_t hash = XXH3_64bits(text.data(), text.size());
    std::string name = stem + llvm::formatv("_{0:x-8}", hash).str();
    source.text = replaced(source.text, source.name, name);
    source.name = name;
    kernels_.push_back(std::move(source));
    targetsOf_.emplace_back();
  }
  targetsOf_[it->second].insert(targetNumber);
  return it->second;
}

int PlanPool::weight(const Tensor &t) {
  auto [it, isNew] = weightByHash_.try_emplace(t.hash() >> 1, weights_.size());
  if (isNew)
    weights_.push_back(t);
  return it->second;
}

Tensor PlanPool::standIn(RankedWeight &&part) {
  llvm::SmallVector<int64_t, 4> shape(part.whole.shape());
  shape[part.axis] = part.unit * (int64_t(part.units.size()) / part.ranks);
  // Pages of it that nobody reads are none.
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  const auto bytes = size_t(storedBytes(part.whole.dtype(), count));
  const std::shared_ptr<void> nobodys(std::calloc(bytes + 1, 1), std::free);
  Tensor t(part.whole.dtype(), shape, nobodys.get(), nobodys);
  standIns_.try_emplace(t.raw(), std::move(part));
  heldStandIns_.push_back(t);
  return t;
}

const RankedWeight *PlanPool::partOf(const Tensor &t) const {
  auto it = standIns_.find(t.raw());
  return it == standIns_.end() ? nullptr : &it->second;
}

plan::ArgT PlanPool::address(const Tensor &t) {
  plan::ArgT a;
  const RankedWeight *ranked = partOf(t);
  if (!ranked) {
    a.kind = plan::ArgKind::Weight;
    a.index = weight(t);
    return a;
  }
  plan::WeightPartT part;
  part.weight = weight(ranked->whole);
  part.axis = int32_t(ranked->axis);
  part.unit = ranked->unit;
  part.units = ranked->units;
  part.ranks = int32_t(ranked->ranks);
  a.kind = plan::ArgKind::WeightPart;
  auto isSame = [&](const plan::WeightPartT &other) {
    return std::tie(other.weight, other.axis, other.unit, other.units, other.ranks) ==
           std::tie(part.weight, part.axis, part.unit, part.units, part.ranks);
  };
  a.index = int(llvm::find_if(parts_, isSame) - parts_.begin());
  if (size_t(a.index) == parts_.size())
    parts_.push_back(std::move(part));
  return a;
}

static Tensor rowSumsOf(const Tensor &w, const Tensor *factors, const Tensor *scales,
                        const Tensor *zeros) {
  const int64_t k = w.dim(1);
  std::vector<float> sums(w.dim(0));
  std::vector<double> f(k, 1);
  if (factors)
    factors->load(0, f);
  llvm::parallelFor(0, sums.size(), [&](size_t n) {
    llvm::SmallVector<double, 0> row(k);
    w.load(int64_t(n) * k, row);
    if (scales) {
      const int64_t groups = scales->dim(1);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = int64_t(n) * groups + i / (k / groups);
        row[i] = (row[i] - (zeros ? zeros->asDouble(at) : 0)) * scales->asDouble(at);
      }
    }
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += row[i] * f[i];
    sums[n] = float(sum);
  });
  return Tensor::of<float>(sums, {w.dim(0)});
}

/// What rank `rank` has of it.
static Tensor partOfRank(const RankedWeight &ranked, int rank) {
  plan::WeightPartT part;
  part.axis = int32_t(ranked.axis);
  part.unit = ranked.unit;
  part.units = ranked.units;
  part.ranks = int32_t(ranked.ranks);
  const Tensor &whole = ranked.whole;
  const auto sizes = rt::sizesOf(part, static_cast<plan::DType>(whole.dtype()), whole.shape());
  assert(sizes && "rank_part is verified");
  llvm::SmallVector<int64_t, 4> shape(whole.shape());
  shape[ranked.axis] = ranked.unit * int64_t(sizes->unitsOfRank);
  Tensor out(whole.dtype(), shape);
  rt::takePart(part, *sizes, rank, {static_cast<const std::byte *>(whole.raw()), whole.bytes()},
               {static_cast<std::byte *>(out.raw()), out.bytes()});
  return out;
}

Tensor PlanPool::ofRank(const Tensor &t, int64_t rank) const {
  const RankedWeight *ranked = partOf(t);
  return ranked ? partOfRank(*ranked, int(rank)) : t;
}

Tensor PlanPool::ofRanks(int64_t ranks, llvm::function_ref<Tensor(int64_t)> make) {
  Tensor first = make(0);
  if (ranks == 1)
    return first;
  llvm::SmallVector<int64_t, 4> shape(first.shape());
  shape[0] *= ranks;
  Tensor all(first.dtype(), shape);
  bool isOne = true;
  for (int64_t r = 0; r < ranks; ++r) {
    const Tensor mine = r == 0 ? first : make(r);
    isOne &= mine.hash() == first.hash();
    std::memcpy(static_cast<char *>(all.raw()) + r * mine.bytes(), mine.raw(), mine.bytes());
  }
  if (isOne)
    return first;
  std::vector<int64_t> units(static_cast<size_t>(ranks));
  std::iota(units.begin(), units.end(), 0);
  return standIn({std::move(all), 0, first.dim(0), std::move(units), ranks});
}

Tensor PlanPool::sumsOf(const Tensor &w, const Tensor *factors, const Tensor *scales,
                        const Tensor *zeros) {
  const RankedWeight *ranked = partOf(w);
  if (!ranked)
    return weights_[rowSums(w, factors, scales, zeros)];
  const int64_t n = w.dim(0), ranks = ranked->ranks;
  Tensor &all = sumsOfParts_[{w.raw(), factors ? factors->raw() : nullptr,
                              scales ? scales->raw() : nullptr, zeros ? zeros->raw() : nullptr}];
  if (all.valid())
    return all;
  Tensor sums(DType::F32, {ranks * n});
  for (int64_t r = 0; r < ranks; ++r) {
    auto ofRank = [&](const Tensor *t) -> std::optional<Tensor> {
      if (!t)
        return std::nullopt;
      const RankedWeight *part = partOf(*t);
      return part ? partOfRank(*part, int(r)) : *t;
    };
    auto pointer = [](const std::optional<Tensor> &t) { return t ? &*t : nullptr; };
    const auto f = ofRank(factors), s = ofRank(scales), z = ofRank(zeros);
    const Tensor mine = rowSumsOf(partOfRank(*ranked, int(r)), pointer(f), pointer(s), pointer(z));
    std::copy_n(mine.data<float>(), n, sums.data<float>() + r * n);
  }
  std::vector<int64_t> units(static_cast<size_t>(ranks));
  std::iota(units.begin(), units.end(), 0);
  return all = standIn({std::move(sums), 0, n, std::move(units), ranks});
}

int PlanPool::rowSums(const Tensor &w, const Tensor *factors, const Tensor *scales,
                      const Tensor *zeros) {
  auto addressOf = [](const Tensor *t) { return t ? t->raw() : nullptr; };
  auto [it, isNew] =
      rowSums_.try_emplace({w.raw(), addressOf(factors), addressOf(scales), addressOf(zeros)}, 0);
  if (isNew)
    it->second = weight(rowSumsOf(w, factors, scales, zeros));
  return it->second;
}

std::optional<int> PlanPool::pack(int index) {
  auto [it, isNew] = packed_.try_emplace(index);
  const Tensor t = weights_[size_t(index)];
  const auto shape = rt::PackedShape::of(t.shape());
  if (!isNew || !packs || !shape || t.dtype() != DType::BF16)
    return it->second;
  auto bytes = rt::packWeight(*shape, {t.data<uint16_t>(), size_t(t.count())});
  if (!bytes)
    return std::nullopt;
  const auto held = std::make_shared<std::vector<std::byte>>(std::move(*bytes));
  return it->second = weight(Tensor(DType::U8, {int64_t(held->size())}, held->data(), held));
}

std::optional<PlanPool::PackedPlaces> PlanPool::packed(const Tensor &t) {
  if (!packs || partOf(t))
    return std::nullopt;
  const std::optional<int> index = pack(weight(t));
  if (!index)
    return std::nullopt;
  PackedPlaces places;
  places.weights.kind = places.words.kind = plan::ArgKind::Weight;
  places.weights.index = places.words.index = *index;
  const uint64_t bytes = weights_[size_t(*index)].bytes();
  places.words.expr = std::make_unique<plan::ExprT>(
      rt::constantExpr(int64_t(rt::PackedShape::of(t.shape())->wordsAt(bytes))));
  return places;
}

int PlanPool::derived(llvm::StringRef what, llvm::ArrayRef<const Tensor *> of,
                      llvm::function_ref<Tensor()> make) {
  std::vector<const void *> addresses;
  for (const Tensor *t : of)
    addresses.push_back(t->raw());
  auto [it, isNew] = derived_.try_emplace({what.str(), std::move(addresses)}, 0);
  if (isNew)
    it->second = weight(make());
  return it->second;
}

} // namespace gpt2c
