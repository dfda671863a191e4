#include "passes/Pass.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

#define PASS(name, function, summary) llvm::Error function(PassContext &);
#include "passes/Passes.def"

llvm::ArrayRef<Pass> allPasses() {
  static const Pass passes[] = {
#define PASS(name, function, summary) {name, summary, function},
#include "passes/Passes.def"
  };
  return passes;
}

const Pass *findPass(llvm::StringRef name) {
  auto it = llvm::find_if(allPasses(), [&](const Pass &p) { return p.name == name; });
  return it == allPasses().end() ? nullptr : it;
}

void PassContext::note(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes) {
  remarks_.push_back({Remark::Note, pass_.str(), message.str(), {nodes.begin(), nodes.end()}});
}

void PassContext::missed(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes) {
  remarks_.push_back({Remark::Missed, pass_.str(), message.str(), {nodes.begin(), nodes.end()}});
}

} // namespace gpt2c
