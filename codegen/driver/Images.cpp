// The kernels of a plan, compiled.
#include "codegen/KernelBuild.h"
#include "codegen/driver/Draft.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::Error compileKernels(PlanDraft &d, std::vector<std::vector<char>> &images) {
  if (d.pool.kernels().empty())
    return llvm::Error::success();
  auto nvrtc = Nvrtc::load(d.options.cudaPath);
  if (!nvrtc)
    return nvrtc.takeError();
  for (const std::string &arch : d.options.archs)
    if (!(*nvrtc)->supports(arch))
      return makeError(ExitCode::Unsupported,
                       "NVRTC " + (*nvrtc)->version() + " (" + (*nvrtc)->libraryPath() +
                           ") cannot compile for " + arch +
                           "; a newer one is needed, or leave it out of --gpu-arch");
  std::vector<KernelProgram> programs;
  for (const auto &[i, k] : llvm::enumerate(d.pool.kernels())) {
    auto source = std::make_unique<plan::SourceT>();
    source->name = k.name + ".cu";
    source->text = moduleSource(k);
    programs.push_back({source->name, source->text});
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = k.name;
    kernel->source = int(i);
    d.meta().sources.push_back(std::move(source));
    d.meta().kernels.push_back(std::move(kernel));
  }
  KernelCache cache(d.options.kernelCache);
  auto built = buildKernels(**nvrtc, programs,
                            {d.options.archs, d.options.threads, d.options.progress}, cache);
  if (!built)
    return built.takeError();
  images = std::move(*built);
  d.out.kernels = {unsigned(images.size()) - cache.hits(), cache.hits(), cache.damaged(),
                   cache.failedToStore()};
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string &arch = d.options.archs[i / programs.size()];
    auto image = std::make_unique<plan::ImageT>();
    image->source = int(i % programs.size());
    image->arch = arch;
    image->ptx = llvm::StringRef(arch).starts_with("compute_");
    d.meta().images.push_back(std::move(image));
    d.out.contents.images.push_back(std::as_bytes(std::span(images[i])));
  }
  return llvm::Error::success();
}

} // namespace gpt2c
