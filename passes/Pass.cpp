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

Remark &PassContext::add(Remark::Severity severity, const llvm::Twine &message,
                         llvm::ArrayRef<llvm::StringRef> nodes) {
  Remark &remark = remarks_.emplace_back();
  remark.severity = severity;
  remark.pass = pass_.str();
  remark.message = message.str();
  remark.nodes.assign(nodes.begin(), nodes.end());
  return remark;
}

Remark &PassContext::note(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes) {
  return add(Remark::Note, message, nodes);
}

Remark &PassContext::missed(const llvm::Twine &message, llvm::ArrayRef<llvm::StringRef> nodes) {
  return add(Remark::Missed, message, nodes);
}

} // namespace gpt2c
