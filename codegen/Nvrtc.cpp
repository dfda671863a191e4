#include "codegen/Nvrtc.h"

#include "ir/Error.h"
#include "templates/Embedded.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <dlfcn.h>
#include <xxhash.h>

using namespace llvm;
namespace path = llvm::sys::path;
namespace fs = llvm::sys::fs;

namespace gpt2c {

namespace {
// The few declarations of nvrtc.h that we need; the library is never linked.
using Program = struct ProgramTag *;
using NvrtcResult = int;

constexpr int oldestVersion[2] = {12, 4};

/// Folders below a root that may hold the library or the headers: a toolkit, wheels of CUDA 12,
/// wheels of CUDA 13.
constexpr const char *libraryFolders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                          "nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"};
constexpr const char *includeFolders[] = {"include",
                                          "targets/x86_64-linux/include",
                                          "nvidia/cuda_runtime/include",
                                          "nvidia/cu13/include",
                                          "nvidia/cuda_cccl/include",
                                          "nvidia/cuda_nvcc/include"};

std::string join(StringRef a, StringRef b) {
  SmallString<128> s(a);
  path::append(s, b);
  return std::string(s);
}

/// The newest libnvrtc.so* of a folder, empty when there is none.
std::string findLibrary(StringRef folder) {
  std::string best;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    StringRef name = path::filename(it->path());
    if (name == "libnvrtc.so" || (name.consume_front("libnvrtc.so.") && !name.contains("alt")))
      if (best.size() < it->path().size() ||
          (best.size() == it->path().size() && best < it->path()))
        best = it->path();
  }
  return best;
}

std::vector<std::string> candidateRoots(StringRef cudaPath) {
  std::vector<std::string> roots;
  if (!cudaPath.empty())
    return {cudaPath.str()};
  if (auto env = sys::Process::GetEnv("GPT2C_CUDA_PATH"); env && !env->empty())
    return {*env};
  static int anchor;
  std::string folder = fs::getMainExecutable(nullptr, &anchor);
  for (int level = 0; level < 5 && !folder.empty(); ++level) {
    folder = path::parent_path(folder).str();
    roots.push_back(join(folder, ".deps/cuda"));
  }
  for (const char *name : {"CUDA_PATH", "CUDA_HOME"})
    if (auto env = sys::Process::GetEnv(name); env && !env->empty())
      roots.push_back(*env);
  roots.push_back("/usr/local/cuda");
  return roots;
}

/// Include folders for cuda_fp16.h and the <nv/target> it needs; empty when a root lacks
/// cuda_fp16.h.
std::vector<std::string> findIncludes(StringRef root) {
  std::vector<std::string> found;
  bool headers = false;
  for (const char *folder : includeFolders) {
    std::string include = join(root, folder);
    bool fp16 = fs::exists(join(include, "cuda_fp16.h"));
    headers |= fp16;
    if (fp16 || fs::exists(join(include, "nv/target")))
      found.push_back(include);
    if (fs::exists(join(include, "cccl/nv/target")))
      found.push_back(join(include, "cccl"));
  }
  return headers ? found : std::vector<std::string>();
}
} // namespace

/// NVRTC opens its builtins library by name when it compiles, and the loader knows that name only
/// where the toolkit is installed for the whole system. One that is loaded already is found, so
/// those beside `file` are.
static void openBuiltins(StringRef file) {
  std::error_code end;
  for (fs::directory_iterator it(path::parent_path(file), end), last; !end && it != last;
       it.increment(end))
    if (path::filename(it->path()).starts_with("libnvrtc-builtins.so"))
      dlopen(it->path().c_str(), RTLD_NOW | RTLD_GLOBAL);
}

struct Nvrtc::Api {
  void *library = nullptr;
  NvrtcResult (*version)(int *, int *) = nullptr;
  NvrtcResult (*numArchs)(int *) = nullptr;
  NvrtcResult (*archs)(int *) = nullptr;
  const char *(*errorString)(NvrtcResult) = nullptr;
  NvrtcResult (*create)(Program *, const char *, const char *, int, const char *const *,
                        const char *const *) = nullptr;
  NvrtcResult (*destroy)(Program *) = nullptr;
  NvrtcResult (*compile)(Program, int, const char *const *) = nullptr;
  NvrtcResult (*logSize)(Program, size_t *) = nullptr;
  NvrtcResult (*log)(Program, char *) = nullptr;
  NvrtcResult (*cubinSize)(Program, size_t *) = nullptr;
  NvrtcResult (*cubin)(Program, char *) = nullptr;
  NvrtcResult (*ptxSize)(Program, size_t *) = nullptr;
  NvrtcResult (*ptx)(Program, char *) = nullptr;
};

Nvrtc::Nvrtc() : api_(std::make_unique<Api>()) {}
// The library stays mapped: it keeps threads and handlers of its own.
Nvrtc::~Nvrtc() = default;

Error Nvrtc::open(StringRef file) {
  Api &a = *api_;
  a.library = dlopen(file.str().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!a.library)
    return makeError(ExitCode::KernelCompilation, dlerror());
  openBuiltins(file);
  const char *missing = nullptr;
  auto bind = [&](auto &function, const char *name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(a.library, name));
    if (!function)
      missing = name;
  };
  bind(a.version, "nvrtcVersion");
  bind(a.numArchs, "nvrtcGetNumSupportedArchs");
  bind(a.archs, "nvrtcGetSupportedArchs");
  bind(a.errorString, "nvrtcGetErrorString");
  bind(a.create, "nvrtcCreateProgram");
  bind(a.destroy, "nvrtcDestroyProgram");
  bind(a.compile, "nvrtcCompileProgram");
  bind(a.logSize, "nvrtcGetProgramLogSize");
  bind(a.log, "nvrtcGetProgramLog");
  bind(a.cubinSize, "nvrtcGetCUBINSize");
  bind(a.cubin, "nvrtcGetCUBIN");
  bind(a.ptxSize, "nvrtcGetPTXSize");
  bind(a.ptx, "nvrtcGetPTX");
  if (missing)
    return makeError(ExitCode::KernelCompilation, Twine("it has no ") + missing);
  int count = 0;
  if (a.version(&major_, &minor_) != 0 || a.numArchs(&count) != 0)
    return makeError(ExitCode::KernelCompilation, "it does not answer nvrtcVersion");
  archs_.resize(count);
  if (a.archs(archs_.data()) != 0)
    return makeError(ExitCode::KernelCompilation, "it does not answer nvrtcGetSupportedArchs");
  llvm::sort(archs_);
  if (std::pair(major_, minor_) < std::pair(oldestVersion[0], oldestVersion[1]))
    return makeError(ExitCode::KernelCompilation,
                     Twine("it is version ") + version() + "; 12.4 or newer is needed");
  libraryPath_ = file.str();
  return Error::success();
}

Expected<std::unique_ptr<Nvrtc>> Nvrtc::load(StringRef cudaPath) {
  std::string tried;
  auto note = [&](StringRef what, StringRef why) { tried += ("\n  " + what + ": " + why).str(); };
  std::vector<std::string> fallbackIncludes;
  auto attempt = [&](StringRef library,
                     std::vector<std::string> includes) -> std::unique_ptr<Nvrtc> {
    std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
    if (Error e = nvrtc->open(library)) {
      note(library, toString(std::move(e)));
      return nullptr;
    }
    if (includes.empty()) {
      note(library, "no cuda_fp16.h beside it");
      return nullptr;
    }
    nvrtc->includes_ = std::move(includes);
    nvrtc->takeFingerprint();
    return nvrtc;
  };
  for (const std::string &root : candidateRoots(cudaPath)) {
    std::vector<std::string> includes = findIncludes(root);
    if (fallbackIncludes.empty())
      fallbackIncludes = includes;
    bool found = false;
    for (const char *folder : libraryFolders) {
      std::string library = findLibrary(join(root, folder));
      if (library.empty())
        continue;
      found = true;
      if (auto nvrtc = attempt(library, includes))
        return nvrtc;
    }
    if (!found)
      note(root, "no libnvrtc.so");
  }
  if (cudaPath.empty())
    for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
      if (auto nvrtc = attempt(name, fallbackIncludes))
        return nvrtc;
  return makeError(
      ExitCode::KernelCompilation,
      Twine("no usable NVRTC (12.4 or newer, with cuda_fp16.h). Run scripts/setup.sh, or set "
            "GPT2C_CUDA_PATH to a CUDA toolkit. Tried:") +
          tried);
}

/// Updates of a toolkit have the version of their release: sizes and headers tell them apart.
void Nvrtc::takeFingerprint() {
  uint64_t size = 0;
  if (fs::file_size(libraryPath_, size))
    size = 0; // not to be told
  fingerprint_ = version() + " " + std::to_string(size);
  for (const char *option : options())
    fingerprint_ += std::string(" ") + option;
  for (const std::string &include : includes_)
    for (const char *header : {"cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp"})
      if (auto file = MemoryBuffer::getFile(join(include, header)))
        fingerprint_ +=
            " " + utohexstr(XXH3_64bits((*file)->getBufferStart(), (*file)->getBufferSize()));
}

std::string Nvrtc::version() const { return (Twine(major_) + "." + Twine(minor_)).str(); }

bool Nvrtc::supports(StringRef arch) const {
  if (!arch.consume_front("sm_") && !arch.consume_front("compute_"))
    return false;
  StringRef digits = arch.take_while([](char c) { return isDigit(c); });
  StringRef suffix = arch.drop_front(digits.size());
  int number = 0;
  return !digits.getAsInteger(10, number) && (suffix.empty() || suffix == "a" || suffix == "f") &&
         is_contained(archs_, number);
}

ArrayRef<const char *> Nvrtc::options() {
  static const char *const list[] = {"-std=c++17", "-default-device", "--display-error-number"};
  return list;
}

Expected<std::vector<char>> Nvrtc::compile(StringRef source, StringRef name, StringRef arch,
                                           std::string *log) const {
  if (!supports(arch)) {
    std::string known;
    for (int a : archs_)
      known += " sm_" + std::to_string(a);
    return makeError(ExitCode::KernelCompilation, Twine("NVRTC ") + version() +
                                                      " cannot compile for '" + arch +
                                                      "'; it knows" + known);
  }
  const Api &a = *api_;
  std::vector<std::string> texts, names;
  for (const EmbeddedFile &file : embeddedTemplates()) {
    names.emplace_back(file.name);
    texts.emplace_back(file.text);
  }
  std::vector<const char *> textPointers, namePointers;
  for (size_t i = 0; i < names.size(); ++i) {
    textPointers.push_back(texts[i].c_str());
    namePointers.push_back(names[i].c_str());
  }
  std::vector<std::string> arguments;
  arguments.push_back(("-arch=" + arch).str());
  for (const std::string &include : includes_)
    arguments.push_back("--include-path=" + include);
  std::vector<const char *> argumentPointers(options().begin(), options().end());
  for (const std::string &argument : arguments)
    argumentPointers.push_back(argument.c_str());

  Program program = nullptr;
  std::string text = source.str(), fileName = name.str();
  NvrtcResult status = a.create(&program, text.c_str(), fileName.c_str(), (int)names.size(),
                                textPointers.data(), namePointers.data());
  if (status != 0)
    return makeError(ExitCode::KernelCompilation,
                     Twine("nvrtcCreateProgram failed for ") + name + ": " + a.errorString(status));
  struct Cleanup {
    const Api &api;
    Program &program;
    ~Cleanup() { api.destroy(&program); }
  } cleanup{a, program};

  status = a.compile(program, (int)argumentPointers.size(), argumentPointers.data());
  size_t size = 0;
  std::string message;
  if (a.logSize(program, &size) == 0 && size > 1) {
    message.resize(size);
    a.log(program, message.data());
    message.resize(size - 1);
  }
  if (status != 0)
    return makeError(ExitCode::KernelCompilation, Twine("kernel compilation failed: ") + name +
                                                      " for " + arch + ": " +
                                                      a.errorString(status) + "\n" + message);
  if (log)
    *log = message;

  const bool ptx = arch.starts_with("compute_");
  status = (ptx ? a.ptxSize : a.cubinSize)(program, &size);
  std::vector<char> image(size);
  if (status == 0)
    status = (ptx ? a.ptx : a.cubin)(program, image.data());
  if (status != 0)
    return makeError(ExitCode::KernelCompilation,
                     Twine("no code for ") + name + " for " + arch + ": " + a.errorString(status));
  return image;
}

} // namespace gpt2c
