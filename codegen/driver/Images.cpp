// The kernels of a plan, compiled.
#include "codegen/KernelBuild.h"
#include "codegen/driver/Draft.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Those of the targets that a kernel is for.
static std::vector<std::string> archsOf(const PlanPool &pool, size_t kernel,
                                        llvm::ArrayRef<TargetGroup> groups) {
  std::vector<std::string> archs;
  for (size_t target : pool.targetsOf(kernel))
    llvm::append_range(archs, groups[target].archs);
  return archs;
}

llvm::Error compileKernels(PlanDraft &d, llvm::ArrayRef<TargetGroup> groups,
                           std::vector<std::vector<char>> &images) {
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
    programs.push_back({source->name, source->text, archsOf(d.pool, i, groups)});
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
  d.out.kernels = {unsigned(built->size()) - cache.hits(), cache.hits(), cache.damaged(),
                   cache.failedToStore()};
  for (KernelImage &made : *built) {
    auto image = std::make_unique<plan::ImageT>();
    image->source = int(made.program);
    image->arch = made.arch;
    image->ptx = llvm::StringRef(made.arch).starts_with("compute_");
    d.meta().images.push_back(std::move(image));
    images.push_back(std::move(made.bytes));
  }
  for (const std::vector<char> &image : images)
    d.out.contents.images.push_back(std::as_bytes(std::span(image)));
  return llvm::Error::success();
}

} // namespace gpt2c
