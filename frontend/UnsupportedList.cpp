#include "frontend/UnsupportedList.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

void UnsupportedList::add(llvm::StringRef domain, llvm::StringRef op, int64_t opset,
                          llvm::StringRef reason, std::string node) {
  std::string name = domain.empty() ? op.str() : (domain + "." + op).str();
  groups_[Key{std::move(name), opset, reason.str()}].push_back(std::move(node));
}

llvm::Error UnsupportedList::report() const {
  constexpr size_t shown = 3;
  std::string text;
  llvm::raw_string_ostream os(text);
  size_t nodes = 0;
  for (auto &[key, names] : groups_)
    nodes += names.size();
  os << nodes << (nodes == 1 ? " node" : " nodes") << " of the model cannot be compiled:";
  for (auto &[key, names] : groups_) {
    os << "\n  " << key.op << " (opset " << key.opset << "), " << names.size()
       << (names.size() == 1 ? " node: " : " nodes: ");
    llvm::interleaveComma(llvm::ArrayRef(names).take_front(shown), os,
                          [&](const std::string &n) { os << "'" << n << "'"; });
    if (names.size() > shown)
      os << ", ...";
    os << ": " << key.reason;
  }
  return makeError(ExitCode::Unsupported, text);
}

} // namespace gpt2c
