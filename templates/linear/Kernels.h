// The kernels of products with weights and the choice among them.
#pragma once

#include "schedule/Kernel.h"
#include "templates/linear/Launch.h"

namespace gpt2c {

using LinearKernel = Kernel<LinearProblem, LinearLaunch>;
using LinearCandidate = Candidate<LinearProblem, LinearLaunch>;
template <typename Config> using LinearKernelOf = KernelOf<LinearProblem, LinearLaunch, Config>;

#define LINEAR_KERNEL(name) const LinearKernel &name##Kernel();
#include "templates/linear/Kernels.def"
#undef LINEAR_KERNEL

/// All of them, in order of preference.
llvm::ArrayRef<const LinearKernel *> linearKernels();

/// Every kernel and configuration that may compute a product with all that is fused into it; the
/// first is the choice of the cost model. None: it has no kernel like that.
std::vector<LinearCandidate> linearCandidates(const LinearProblem &p);
/// The kernel that is taken for a product by itself; null: none computes it.
const LinearKernel *linearLeader(const LinearProblem &p);
/// Whether that kernel does all that is fused, too.
bool leaderComputes(const LinearProblem &p);
/// Whether there is a kernel that does all of it.
bool computes(const LinearProblem &p);
/// Whether the kernel that is taken wants a norm with the statistics of its rows, as it is with
/// them, and could not compute it without.
bool wantsNormStatistics(const LinearProblem &p);

/// Whether so few rows are for tiles of 64 as well: 17 to 32 whose weights, floats or int8, are
/// many and which linear_ring has no registers for, or those that such a product wants the
/// statistics of.
bool areRowsForTiles(const LinearProblem &p);

/// Why kernels of a vocabulary are not taken for it; empty: they are.
std::string wideRefusal(const LinearProblem &p);
/// Sums of int8 products: why no kernel has them, or those in tiles do not; empty: one does.
std::string int8Refusal(const LinearProblem &p);
std::string int8TilesRefusal(const LinearProblem &p);

/// Every kernel with its configurations and costs, or why it refuses or is not taken.
std::string explainLinear(const LinearProblem &p);
/// A product as explain takes it: "rows=512 n=2304 k=768 f16 x i8 norm statistics".
llvm::Expected<LinearProblem> parseLinearProblem(llvm::StringRef text, const Target &target);

} // namespace gpt2c
