#include "tools/gpt2c-ablate/PeakKernels.h"

#include "codegen/Codegen.h"
#include "codegen/KernelBuild.h"
#include "codegen/KernelCache.h"
#include "ir/Error.h"

namespace gpt2c {

// gpt2c-bench has the same numbers.
static constexpr llvm::StringLiteral source =
    "#include \"templates/peak.cuh\"\n"
    "static_assert(gpt2c::peakProductsShared == 41984 && gpt2c::peakProductsFlops == 3145728 &&\n"
    "              gpt2c::peakFmaFlops == 512);\n";

llvm::Expected<std::vector<char>> peakKernels(llvm::StringRef capability) {
  auto [major, minor] = capability.split('.');
  rt::ComputeCapability c;
  if (major.getAsInteger(10, c.major) || minor.getAsInteger(10, c.minor))
    return makeError(ExitCode::Usage,
                     "--peak-kernels=" + capability + " is no compute capability such as 9.0");
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  KernelCache cache(KernelCache::defaultFolder());
  auto images = buildKernels(**nvrtc, {{"peak.cu", source.str()}}, {{archOf(c)}}, cache);
  if (!images)
    return images.takeError();
  return std::move(images->front().bytes);
}

} // namespace gpt2c
