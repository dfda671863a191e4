// mlp_cluster: both products of an MLP for 17 to 32 rows, with the norm before them, in one launch.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "templates/linear/Mlp.h"

namespace gpt2c {

/// Both products of an MLP in fp16 for up to 32 rows, with the norm before them, from sm_90 on; d
/// and hidden are multiples of 256, at most 1024 and 4096.
struct MlpClusterConfig {
  Scalar p = Scalar::F16; ///< type of the biases
  int d = 0, hidden = 0;
  Activation activation = Activation::GeluTanh; ///< a bounded one
  int heads = 0, headDim = 0; ///< of attention whose state it may bring into L2; 0: none
};

constexpr unsigned mlpThreads = 288;

constexpr unsigned mlpSharedBytes(const MlpClusterConfig &c) {
  return (c.d / 8 + 32) * 288 * 2 + 8 * 32 * 36 * 4 + c.d * 16 + 32 * 8 + 16;
}

std::string nameOf(const MlpClusterConfig &c);
KernelSource mlpCluster(llvm::StringRef name, const MlpClusterConfig &config);
Grid gridOf(const MlpClusterConfig &c);

} // namespace gpt2c
