// NVRTC, opened at run time: CUDA source to machine code or PTX. Only the compiler uses it.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace gpt2c {

class Nvrtc {
public:
  /// Opens the first usable NVRTC (12.4 or newer) together with the CUDA headers: below `cudaPath`
  /// when given, else below $GPT2C_CUDA_PATH, `.deps/cuda` of the folders above the executable,
  /// $CUDA_PATH, /usr/local/cuda, or where the loader finds it. A root may be a toolkit or the
  /// unpacked nvidia-cuda-* wheels. Fails with ExitCode::KernelCompilation and a list of all that
  /// was tried.
  static llvm::Expected<std::unique_ptr<Nvrtc>> load(llvm::StringRef cudaPath = {});
  ~Nvrtc();

  /// "13.0"
  std::string version() const;
  const std::string &libraryPath() const { return libraryPath_; }
  /// Compute capabilities as 10 * major + minor, ascending.
  llvm::ArrayRef<int> supportedArchs() const { return archs_; }
  /// Whether compile() knows `arch`: "sm_90a" is machine code, "compute_80" PTX.
  bool supports(llvm::StringRef arch) const;

  /// Compiles one module. `source` may include the files of templates/ by name and the CUDA
  /// headers. The result is a cubin, or PTX with a NUL at its end. A failure carries the compiler's
  /// log, a success may leave warnings in `log`.
  llvm::Expected<std::vector<char>> compile(llvm::StringRef source, llvm::StringRef name,
                                            llvm::StringRef arch, std::string *log = nullptr) const;
  /// What compile() depends on besides its arguments and the files of templates/: the version, the
  /// options, the CUDA headers.
  const std::string &fingerprint() const { return fingerprint_; }

private:
  struct Api;
  Nvrtc();
  llvm::Error open(llvm::StringRef path);
  static llvm::ArrayRef<const char *> options();
  void takeFingerprint();

  std::unique_ptr<Api> api_;
  std::string libraryPath_, fingerprint_;
  std::vector<std::string> includes_;
  std::vector<int> archs_;
  int major_ = 0, minor_ = 0;
};

} // namespace gpt2c
