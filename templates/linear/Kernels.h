// The kernels of products with weights and the choice among them.
#pragma once

#include "schedule/products/LinearKernels.h"
#include "templates/linear/Launch.h"

namespace gpt2c {

template <typename Config> using LinearKernelOf = KernelOf<LinearProblem, LinearLaunch, Config>;

#define LINEAR_KERNEL(name) const LinearKernel &name##Kernel();
#include "templates/linear/Kernels.def"
#undef LINEAR_KERNEL

/// All of them, in order of preference, and what LinearFamily says of them.
const LinearFamily &linearFamily();
inline llvm::ArrayRef<const LinearKernel *> linearKernels() { return linearFamily().kernels(); }
inline std::vector<LinearCandidate> linearCandidates(const LinearProblem &p) {
  return linearFamily().candidates(p);
}
inline const LinearKernel *linearLeader(const LinearProblem &p) { return linearFamily().leader(p); }
inline bool leaderComputes(const LinearProblem &p) { return linearFamily().leaderComputes(p); }
inline bool computes(const LinearProblem &p) { return linearFamily().computes(p); }
inline bool wantsNormStatistics(const LinearProblem &p) {
  return linearFamily().wantsNormStatistics(p);
}

/// Whether so few rows are for tiles of 64 as well: 2 to 32 whose weights are many and cost less so
/// by estimate; of int8 weights 17 to 32 which linear_ring has no registers for; or those that such
/// a product wants the statistics of.
bool areRowsForTiles(const LinearProblem &p);
/// Microseconds of a product by tiles in its own type, of few rows no faster than its weights come
/// from memory, fitted as ringMicroseconds() is; none: it is none of 2 to 64 rows.
std::optional<double> tileMicroseconds(const LinearProblem &p);

/// Why kernels of a vocabulary are not taken for it; empty: they are.
std::string wideRefusal(const LinearProblem &p);
/// Whether rows that stay in shared memory while a vocabulary passes by are a way to compute it, by
/// linear_stream or linear_stream_ring.
bool keepsRows(const LinearProblem &p);
/// Whether linear_stream_tma computes a vocabulary, of one row in less time than linear_rows.
bool isForStreamTma(const LinearProblem &p);
/// Whether some kernel of a vocabulary computes it.
bool isVocabularyForStreams(const LinearProblem &p);
/// Sums of int8 products: why no kernel has them, or those in tiles do not; empty: one does.
std::string int8Refusal(const LinearProblem &p);
std::string int8TilesRefusal(const LinearProblem &p);

/// Every kernel with its configurations and costs, or why it refuses or is not taken.
std::string explainLinear(const LinearProblem &p);
/// A product as explain takes it: "rows=512 n=2304 k=768 f16 x i8 norm statistics".
llvm::Expected<LinearProblem> parseLinearProblem(llvm::StringRef text, const Target &target);

} // namespace gpt2c
