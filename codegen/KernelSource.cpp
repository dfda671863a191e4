#include "codegen/KernelSource.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace gpt2c {

std::string moduleSource(ArrayRef<KernelSource> kernels) {
  std::vector<std::string> headers;
  for (const KernelSource &kernel : kernels)
    for (const std::string &header : kernel.headers)
      if (!is_contained(headers, header))
        headers.push_back(header);
  std::string text;
  for (const std::string &header : headers)
    text += "#include \"" + header + "\"\n";
  text += "\nusing namespace gpt2c;\n";
  for (const KernelSource &kernel : kernels)
    text += "\n" + kernel.text;
  return text;
}

} // namespace gpt2c
