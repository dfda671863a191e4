// The three forms of the persistent step as kernels of one family: which can run a step.
#pragma once

#include "schedule/DecodeForm.h"
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/shares/SharesDivision.h"

namespace gpt2c {

/// What a kernel's record builds a step with: its ops are stages already.
struct DecodeLaunch {
  PersistentBuilder &builder;
};

template <typename Config> using DecodeKernelOf = KernelOf<DecodeProblem, DecodeLaunch, Config>;

/// Clusters of a head each: heads of 64, an MLP four times as wide as the rest.
const DecodeKernel &decodeClustersKernel();
/// Clusters that share all that a step has.
const DecodeKernel &decodeSharesKernel();
/// A stage for each op.
const DecodeKernel &decodeStagesKernel();

/// All of them, in order of preference.
llvm::ArrayRef<const DecodeKernel *> decodeKernels();

/// Whether the state is in no pages, or in those that clusters take.
bool suitPages(const DecodeProblem &p);
/// Rows of x in clusters: of several sequences always as many as a cluster has blocks, or a multiple
/// of it.
int64_t clusterRows(int64_t rows);
/// Slots of 8 rows of weights that fill shared memory beside what it has of several sequences: as
/// many as keys and values of one tile for each warp take, or a multiple.
int64_t clusterSlots(const DecodeProblem &p);

} // namespace gpt2c
