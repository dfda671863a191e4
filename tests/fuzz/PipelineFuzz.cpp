// Any bytes choose the spelling of every part of a small GPT-2; the pipeline keeps its values in
// double precision through every pass. Runs as long as it is let.
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "tests/unit/passes/PipelineProof.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace gpt2c::test;
  RandomGpt g{Choices(llvm::ArrayRef(data, size))};
  if (std::string problem = PipelineProof(g).run(); !problem.empty()) {
    llvm::errs() << problem << '\n';
    std::abort();
  }
  return 0;
}
