#include "codegen/PlanPool.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Parallel.h"

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

int PlanPool::rowSums(const Tensor &w, const Tensor *factors, const Tensor *scales,
                      const Tensor *zeros) {
  auto addressOf = [](const Tensor *t) { return t ? t->raw() : nullptr; };
  auto [it, isNew] =
      rowSums_.try_emplace({w.raw(), addressOf(factors), addressOf(scales), addressOf(zeros)}, 0);
  if (isNew) {
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
    it->second = weight(Tensor::of<float>(sums, {w.dim(0)}));
  }
  return it->second;
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
