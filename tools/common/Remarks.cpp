#include "tools/common/Remarks.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

void printRemarks(llvm::ArrayRef<Remark> remarks, llvm::raw_ostream &os) {
  constexpr size_t shown = 4;
  for (const Remark &r : remarks) {
    os << (r.severity == Remark::Missed ? "missed: " : "remark: ") << r.pass << ": " << r.message;
    if (!r.nodes.empty()) {
      os << " [";
      llvm::interleaveComma(llvm::ArrayRef(r.nodes).take_front(shown), os);
      if (r.nodes.size() > shown)
        os << " and " << r.nodes.size() - shown << " more";
      os << "]";
    }
    os << "\n";
  }
}

} // namespace gpt2c
