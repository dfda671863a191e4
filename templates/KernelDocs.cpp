#include "templates/KernelDocs.h"

#include "templates/OpKernels.h"
#include "templates/attention/Kernels.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/Mlp.h"

namespace gpt2c {

template <typename Kernels>
static void printTable(llvm::raw_ostream &os, llvm::StringRef title, const Kernels &kernels) {
  os << "\n## " << title
     << "\n\n| kernel | what it computes | what it can | what it needs |\n|---|---|---|---|\n";
  for (const auto *k : kernels)
    os << "| `" << k->name() << "` | " << k->summary() << " | " << k->can().names() << " | "
       << k->needs().names() << " |\n";
}

void printKernelDocs(llvm::raw_ostream &os) {
  os << "# Tables of kernels\n\n"
        "Written by `gpt2c-opt --print-kernel-docs -o docs/kernels-table.md` from the records "
        "below\n"
        "`templates/`, in order of preference: the first that can compute a problem and is not "
        "known "
        "to be\nslower is taken. `gpt2c-opt --explain=PROBLEM` lists them all for a problem, with "
        "their costs or\nwhy they do not compute it:\n\n"
        "```sh\n"
        "gpt2c-opt --explain=\"linear rows=512 n=2304 k=768 f16 x f16 norm\"\n"
        "gpt2c-opt --explain=\"attention batch=8 seq=1 heads=12 head_dim=64 context=1024 f16 x "
        "f16\"\n"
        "gpt2c-opt --explain=\"pages rows=256 pieces=8 heads=12 head_dim=64 f16 prompts\"\n"
        "gpt2c-opt --explain=\"layer_norm bf16 i8\"\n"
        "gpt2c-opt --explain=\"mlp rows=32 d=768 hidden=3072 f16\"\n"
        "```\n";
  printTable(os, "Products with weights", linearKernels());
  printTable(os, "Both products of an MLP", mlpKernels());
  printTable(os, "Attention over the KV state", attentionKernels());
  printTable(os, "Attention over a state in pages", pagedKernels());
  os << "\n## Kernels without rivals\n\n| kernel | what it computes | element types "
        "|\n|---|---|---|\n";
  for (const OpKernelInfo &k : opKernels())
    os << "| `" << k.name << "` | " << k.summary << " | " << k.types.names() << " |\n";
}

} // namespace gpt2c
