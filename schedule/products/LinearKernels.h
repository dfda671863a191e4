// How the kernels of products with weights are asked: for a product and what is fused into it,
// which kernel and configuration.
#pragma once

#include "schedule/Kernel.h"
#include "schedule/products/ProductSite.h"

namespace gpt2c {

struct LinearLaunch; // where a launch of one goes
using LinearKernel = Kernel<LinearProblem, LinearLaunch>;
using LinearCandidate = Candidate<LinearProblem, LinearLaunch>;

/// A product with what its kernel computes beside it.
struct ProductForm {
  LinearProblem problem;
  std::vector<LinearCandidate> candidates = {}; ///< as LinearFamily::candidates() has them
  std::vector<NearMiss> misses = {};            ///< what is not computed with it
};

/// All of them, in order of preference.
class LinearFamily {
public:
  explicit LinearFamily(llvm::ArrayRef<const LinearKernel *> kernels = {},
                        llvm::ArrayRef<const ProductEnd *> ends = {})
      : kernels_(kernels), ends_(ends) {}

  llvm::ArrayRef<const LinearKernel *> kernels() const { return kernels_; }
  /// What epilogues may end with.
  llvm::ArrayRef<const ProductEnd *> ends() const { return ends_; }
  /// Every kernel and configuration that may compute a product with all that is fused into it; the
  /// first is the choice of the cost model. None: it has no kernel like that.
  std::vector<LinearCandidate> candidates(const LinearProblem &p) const;
  /// The kernel that is taken for a product by itself; null: none computes it.
  const LinearKernel *leader(const LinearProblem &p) const;
  /// Whether that kernel does all that is fused, too.
  bool leaderComputes(const LinearProblem &p) const;
  /// Whether there is a kernel that does all of it.
  bool computes(const LinearProblem &p) const;
  /// Whether the kernel that is taken wants a norm with the statistics of its rows, as it is with
  /// them, and could not compute it without.
  bool wantsNormStatistics(const LinearProblem &p) const;
  /// Whether the norm in front of `p`, which wants its statistics, pays for what the product in
  /// front of that takes more for leaving them: `before` is that product. Where there is no model
  /// of one of the four it does.
  bool statisticsPay(const LinearProblem &p, const LinearProblem &before) const;
  /// A product with a norm and an end; the norm by the statistics of its rows where there are some
  /// and the kernel that is taken wants them.
  LinearProblem fused(LinearProblem p, const ProductSite &site, ProductEndKind end) const;
  /// What of the site a kernel computes with the product: the rest becomes null there. Without
  /// candidates, and without what others wish of its result, where it is not `whole`.
  ProductForm form(ProductSite &site, bool whole) const;
  /// What others wish of the result, where the kernel that is taken does it.
  void addWishes(LinearProblem &p, const ProductSite &site, std::vector<NearMiss> &misses) const;
  /// Why no kernel does all of it: the word of the kernel that is taken for the plain product.
  std::string refusal(const LinearProblem &p) const;

private:
  std::optional<double> leastMicroseconds(const LinearProblem &p) const;
  /// Whether the kernel that is taken for the product does not compute its norm, and another one
  /// takes longer for both than that one and a launch of the norm.
  bool isNormDearer(const LinearProblem &normed) const;
  void takeNorm(ProductSite &site, ProductForm &form) const;
  void takeEnd(ProductSite &site, ProductForm &form) const;
  /// Whether a kernel that ends with what stands behind a product takes longer than the product and
  /// a launch of that.
  bool isEndDearer(const LinearProblem &p, const LinearProblem &ended,
                   const ProductSite &site) const;

  llvm::ArrayRef<const LinearKernel *> kernels_;
  llvm::ArrayRef<const ProductEnd *> ends_;
};

} // namespace gpt2c
