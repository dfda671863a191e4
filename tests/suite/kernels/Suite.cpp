// The cases of the kernel suite: selection, compilation, and one run after the other.
#include "Suite.h"

#include "codegen/KernelBuild.h"
#include "schedule/Target.h"

#include "tests/suite/Skip.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <fstream>
#include <thread>
#include <tuple>

using namespace gpt2c::rt::cuda;

namespace gpt2c::kernels {

namespace {
struct Registered {
  std::string file;
  unsigned line;
  void (*add)(Suite &);
};
std::vector<Registered> &registered() {
  static std::vector<Registered> list;
  return list;
}
} // namespace

Cases::Cases(void (*add)(Suite &), std::source_location where) {
  registered().push_back({where.file_name(), where.line(), add});
}

void addAllCases(Suite &suite) {
  llvm::sort(registered(), [](const auto &a, const auto &b) {
    return std::tie(a.file, a.line) < std::tie(b.file, b.line);
  });
  for (const Registered &r : registered())
    r.add(suite);
}

int Suite::kernel(const std::string &group,
                  const std::function<KernelSource(llvm::StringRef)> &make) {
  kernels_.push_back({group, make("k" + std::to_string(kernelsOf_[group]++)), nullptr, {}});
  return (int)kernels_.size() - 1;
}

void Suite::test(const CaseName &name, std::function<void(Run &)> body, bool hopper) {
  cases_.push_back(
      {name.text, kernels_.back().group, std::move(body), hopper, kernels_.size() - 1, name.work});
}

void Suite::select(const Options &options) {
  std::erase_if(cases_, [&](const Case &test) {
    auto found = [&](const std::string &text) { return llvm::StringRef(test.name).contains(text); };
    return !options.filters.empty() && llvm::none_of(options.filters, found);
  });
  if (options.smoke) // of several blocks
    selectOne(1e6, [](const Case &test) { return test.kernel; });
  if (options.oneOfEach)
    selectOne(2e4, [&](const Case &test) { return kernels_[test.kernel].source.headers.front(); });
  std::vector<Case> share;
  for (size_t i = options.shard; i < cases_.size(); i += options.shards)
    share.push_back(std::move(cases_[i]));
  cases_ = std::move(share);
}

template <typename Key> void Suite::selectOne(double enough, Key key) {
  std::map<decltype(key(cases_[0])), const Case *> chosen;
  for (const Case &test : cases_) {
    const Case *&best = chosen[key(test)];
    if (!best || (best->work < enough ? test.work > best->work
                                      : test.work >= enough && test.work < best->work))
      best = &test;
  }
  std::vector<Case> kept;
  for (const auto &[name, test] : chosen)
    kept.push_back(*test);
  cases_ = std::move(kept);
}

std::set<int> Suite::launched() {
  dry_ = true;
  launched_.clear();
  for (const Case &test : cases_) {
    Run run(*this, 0);
    try {
      test.body(run);
    } catch (const CaseFailure &) {
      // It fails again when it runs.
    }
  }
  dry_ = false;
  return launched_;
}

bool Suite::compile(const Nvrtc &nvrtc, const std::string &arch, const Options &options,
                    std::map<std::string, std::vector<char>> &images) {
  std::map<std::string, std::vector<KernelSource>> groups;
  for (const Case &test : cases_)
    groups.try_emplace(test.group);
  const bool selection = options.oneOfEach || options.smoke || !options.filters.empty();
  const std::set<int> wanted = selection ? launched() : std::set<int>();
  for (auto [number, kernel] : llvm::enumerate(kernels_))
    if (auto it = groups.find(kernel.group); it != groups.end())
      if (!selection || wanted.contains(int(number)))
        it->second.push_back(kernel.source);
  std::erase_if(groups, [](const auto &group) { return group.second.empty(); });
  std::vector<std::string> texts;
  for (const auto &[name, sources] : groups)
    texts.push_back(moduleSource(sources));
  std::vector<KernelProgram> programs;
  for (const auto &[name, sources] : groups)
    programs.push_back({name + ".cu", texts[programs.size()]});
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  KernelCache cache(options.kernelCache);
  auto built = buildKernels(nvrtc, programs, {{arch}, threads}, cache);
  if (!built) {
    llvm::errs() << toString(built.takeError()) << "\n";
    return false;
  }
  for (auto [i, group] : llvm::enumerate(groups))
    images[group.first] = std::move((*built)[i].bytes);
  llvm::outs() << cases_.size() << " cases, " << images.size() << " groups of kernels for " << arch
               << ", " << cache.hits() << " of them from the cache\n";
  return true;
}

int Suite::list() const {
  for (const Case &test : cases_)
    llvm::outs() << test.name << "\n";
  return 0;
}

int Suite::checkArguments() {
  dry_ = true;
  unsigned failed = 0;
  for (const Case &test : cases_) {
    Run run(*this, 0);
    try {
      test.body(run);
    } catch (const CaseFailure &failure) {
      ++failed;
      llvm::outs() << "FAIL  " << test.name << ": " << failure.message << "\n";
    }
  }
  llvm::outs() << cases_.size() - failed << " cases fit their kernels, " << failed << " do not\n";
  return failed == 0 && !cases_.empty() ? 0 : 1;
}

int Suite::run(const Options &options) {
  select(options);
  if (options.list)
    return list();
  if (options.checkArguments)
    return checkArguments();
  std::string arch = options.arch;
  if (!options.compileOnly) {
    auto device = CudaDevice::open();
    if (!device)
      return suite::skipped(device.status().message());
    device_ = device.take();
    llvm::outs() << device_->name() << ", " << device_->multiprocessors() << " SMs\n";
    int number = device_->capability().major * 10 + device_->capability().minor;
    if (arch.empty())
      arch = (options.ptx ? "compute_" : "sm_") + std::to_string(number) +
             (number >= 90 && !options.ptx ? "a" : "");
  }
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return suite::skipped(toString(nvrtc.takeError()));
  std::map<std::string, std::vector<char>> images;
  if (!compile(**nvrtc, arch, options, images))
    return 1;
  if (options.compileOnly) {
    // What a block of Hopper may have.
    constexpr unsigned most = 227 * 1024;
    for (const Case &test : cases_)
      if (unsigned bytes = kernels_[test.kernel].source.sharedBytes;
          bytes > most && llvm::StringRef(arch).starts_with("sm_90")) {
        llvm::outs() << "FAIL  " << test.name << ": " << bytes << " bytes of shared memory\n";
        return 1;
      }
    for (const auto &[group, image] : images)
      if (!options.keep.empty())
        std::ofstream((llvm::Twine(options.keep) + "/" + group + "." + arch).str(),
                      std::ios::binary)
            .write(image.data(), image.size());
    return 0;
  }

  for (const auto &[group, image] : images) {
    auto module = device_->loadModule(std::as_bytes(std::span(image)), group);
    if (!module) {
      llvm::errs() << module.status().message() << "\n";
      return 1;
    }
    modules_[group] = module.take();
  }
  for (Kernel &kernel : kernels_) {
    if (!modules_.contains(kernel.group))
      continue;
    auto function = modules_[kernel.group].function(kernel.source.name, kernel.source.sharedBytes);
    if (function)
      kernel.function = *function;
    else
      kernel.refusal = function.status().message();
  }

  unsigned passed = 0, failed = 0;
  for (const Case &test : cases_) {
    if (test.hopper && !Target::of({arch}).has(wgmmaTiles | wholeClusters)) {
      llvm::outs() << "skip  " << test.name << ": it needs sm_90a\n";
      continue;
    }
    Run run(*this, (uint32_t)std::hash<std::string>()(test.name));
    try {
      test.body(run);
      ++passed;
      llvm::outs() << "ok    " << test.name << llvm::format("  %.2f of the tolerance\n", run.worst);
    } catch (const CaseFailure &failure) {
      ++failed;
      llvm::outs() << "FAIL  " << test.name << ": " << failure.message << "\n";
      if (auto status = device_->synchronize(); !status.ok()) {
        llvm::outs() << "the device is lost: " << status.message() << "\n";
        break;
      }
    }
  }
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? 0 : 1;
}

} // namespace gpt2c::kernels
