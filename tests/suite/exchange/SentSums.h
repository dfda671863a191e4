// Products whose partial sums go to all ranks as their tiles end, and the launches that add them;
// and those whose tiles add them.
#pragma once

#include "ExchangeRun.h"

#include "codegen/Nvrtc.h"

namespace gpt2c::exchange {

struct SentOptions {
  unsigned seed = 1;
  unsigned launches = 10;  ///< how many products one after another
  double patience = 1;     ///< seconds of a wait
  std::string filter = {}; ///< products alone whose names contain it
};

/// Products of random sizes in fp16 and bf16, alone and as a graph, against float64: all ranks get
/// the same bits; and a rank that does not come. `arch` is one for tensor maps and wgmma.
void checkSentSums(llvm::ArrayRef<std::shared_ptr<CudaDevice>> devices, const Nvrtc &nvrtc,
                   const std::string &arch, const SentOptions &options);

} // namespace gpt2c::exchange
