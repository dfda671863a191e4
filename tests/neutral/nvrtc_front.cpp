// A library with the entry points of NVRTC that gpt2c binds, which has the real NVRTC, the file
// $GPT2C_REAL_NVRTC, do its first half alone: it reads a program and instantiates its templates, so
// that what does not compile is an error as ever, but generates no code, which takes most of the
// time. The image is that of an ELF file without sections; no GPU loads it.
#include <dlfcn.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

/// NVRTC opens its builtins library by name; one that is loaded already is found.
void *openReal() {
  const char *file = std::getenv("GPT2C_REAL_NVRTC");
  if (!file)
    return nullptr;
  std::error_code end;
  const auto folder = std::filesystem::path(file).parent_path();
  for (const auto &entry : std::filesystem::directory_iterator(folder, end))
    if (entry.path().filename().string().rfind("libnvrtc-builtins.so", 0) == 0)
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

constexpr int noReal = 7; ///< NVRTC's own code for what its builtins lack

template <typename... Args> int call(const char *name, Args... args) {
  static void *const real = openReal();
  auto *function = real ? reinterpret_cast<int (*)(Args...)>(dlsym(real, name)) : nullptr;
  return function ? function(args...) : noReal;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvrtcVersion(int *major, int *minor) { return call("nvrtcVersion", major, minor); }
EXPORT int nvrtcGetNumSupportedArchs(int *count) {
  return call("nvrtcGetNumSupportedArchs", count);
}
EXPORT int nvrtcGetSupportedArchs(int *archs) { return call("nvrtcGetSupportedArchs", archs); }
EXPORT const char *nvrtcGetErrorString(int) { return "the front end of NVRTC refuses it"; }
EXPORT int nvrtcCreateProgram(void **program, const char *text, const char *name, int count,
                              const char *const *texts, const char *const *names) {
  return call("nvrtcCreateProgram", program, text, name, count, texts, names);
}
EXPORT int nvrtcDestroyProgram(void **program) { return call("nvrtcDestroyProgram", program); }
/// With -dlto NVRTC stops at its intermediate code.
EXPORT int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  std::vector<const char *> all(options, options + count);
  all.push_back("-dlto");
  return call("nvrtcCompileProgram", program, int(all.size()), all.data());
}
EXPORT int nvrtcGetProgramLogSize(void *program, size_t *size) {
  return call("nvrtcGetProgramLogSize", program, size);
}
EXPORT int nvrtcGetProgramLog(void *program, char *log) {
  return call("nvrtcGetProgramLog", program, log);
}
/// What a plan's verifier asks for.
EXPORT int nvrtcGetCUBINSize(void *, size_t *size) {
  *size = sizeof(Elf64_Ehdr);
  return 0;
}
EXPORT int nvrtcGetCUBIN(void *, char *to) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  std::memcpy(to, &header, sizeof header);
  return 0;
}
EXPORT int nvrtcGetPTXSize(void *, size_t *size) {
  *size = 1;
  return 0;
}
EXPORT int nvrtcGetPTX(void *, char *to) {
  *to = '\0';
  return 0;
}
