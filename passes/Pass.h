// Passes and what they see.
//
// A pass transforms a module in place. It reports what an engineer would want to know as remarks: a
// recognition that nearly matched and what stopped it, a fallback taken. It returns an error only
// for what makes the module impossible to compile.
#pragma once

#include "passes/Remark.h"
#include "passes/quantize/Quantization.h"

#include <functional>
#include <utility>

namespace gpt2c {

struct PassOptions {
  /// How much is fused. 0: every op of the exported graph by itself; 1: what the exporter wrote out
  /// is recognised; 2: ops that follow each other become one launch.
  unsigned level = 2;
  /// Element type of activations and weights after `lower-precision`: F32 or F16.
  DType precision = DType::F32;
  /// Bounds of the KV state. Context 0: as many tokens as the model has positions.
  int64_t maxBatch = 8;
  int64_t maxContext = 0;
  QuantizeOptions quantize = {};
  /// Numbers of ranks that may share every layer, each more than one, ascending.
  std::vector<int64_t> tensorParallel = {};
};

class PassContext {
public:
  PassContext(Module &module, PassOptions options, std::vector<Remark> &remarks)
      : module_(module), options_(std::move(options)), remarks_(remarks) {}
  Module &module() const { return module_; }
  const PassOptions &options() const { return options_; }
  /// For who runs passes, between two of them.
  PassOptions &options() { return options_; }
  llvm::ArrayRef<Remark> remarks() const { return remarks_; }
  void setPass(llvm::StringRef name) { pass_ = name; }
  Remark &note(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes = {});
  /// Something expected did not happen: `message` says which pattern, how far it got and what
  /// stopped it. The caller fills the other fields in; the reference is good until the next remark.
  Remark &missed(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes = {});

private:
  Remark &add(Remark::Severity severity, const llvm::Twine &message,
              llvm::ArrayRef<llvm::StringRef> nodes);
  Module &module_;
  PassOptions options_;
  std::vector<Remark> &remarks_;
  llvm::StringRef pass_;
};

struct Pass {
  llvm::StringRef name;
  llvm::StringRef summary;
  llvm::Error (*run)(PassContext &);
};

llvm::ArrayRef<Pass> allPasses();
const Pass *findPass(llvm::StringRef name); // null when unknown

} // namespace gpt2c
