#include "templates/KernelDocs.h"

#include "templates/linear/Kernels.h"

namespace gpt2c {

void printKernelDocs(llvm::raw_ostream &os) {
  os << "# Kernels of products\n\n"
        "Written by `gpt2c-opt --print-kernel-docs -o docs/kernels-table.md` from the records in\n"
        "`templates/linear/`, in order of preference: the first that can compute a product and is "
        "not\nknown to be slower is taken. `gpt2c-opt --explain=\"linear rows=512 n=2304 k=768 f16 "
        "x f16\"`\nlists them all for a product, with their costs or why they do not compute "
        "it.\n\n| kernel | what it computes |\n|---|---|\n";
  for (const LinearKernel *k : linearKernels())
    os << "| `" << k->name() << "` | " << k->summary() << " |\n";
}

} // namespace gpt2c
