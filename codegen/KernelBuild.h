// From CUDA sources to images: in parallel, and from the cache what was compiled before.
#pragma once

#include "codegen/KernelCache.h"
#include "codegen/Nvrtc.h"

#include <functional>

namespace gpt2c {

struct KernelProgram {
  std::string name; ///< "linear_wgmma_1f.cu", as messages say it
  llvm::StringRef source;
  std::vector<std::string> archs = {}; ///< of those below that it is compiled for; none: all
};

struct KernelBuildOptions {
  std::vector<std::string> archs;
  unsigned threads = 1;
  /// Called after each image with the number of those done and of all; one thread at a time.
  std::function<void(size_t done, size_t all)> progress = nullptr;
};

/// A program compiled for one architecture.
struct KernelImage {
  size_t program;
  std::string arch;
  std::vector<char> bytes;
};

/// The images of each architecture in turn, each in the order of `programs`. Does not depend on the
/// number of threads or on what the cache holds. Fails with the log of a program that does not
/// compile.
llvm::Expected<std::vector<KernelImage>> buildKernels(const Nvrtc &nvrtc,
                                                      llvm::ArrayRef<KernelProgram> programs,
                                                      const KernelBuildOptions &options,
                                                      KernelCache &cache);

/// All that the image of a program depends on.
KernelCache::Key kernelKey(const Nvrtc &nvrtc, const KernelProgram &program, llvm::StringRef arch);

} // namespace gpt2c
