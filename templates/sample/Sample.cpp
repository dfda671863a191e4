#include "templates/sample/Sample.h"

#include "codegen/KernelWriter.h"

namespace gpt2c {

SampleConfig sampleConfig(int64_t vocabulary, const Target &target) {
  if (target.clusters)
    return {.vocabulary = vocabulary, .blocks = 8, .threads = 256};
  return {.vocabulary = vocabulary, .blocks = 1, .threads = 512};
}

KernelSource sample(llvm::StringRef name, const SampleConfig &c) {
  KernelWriter w(name, "templates/sample/sample.cuh", "tile::sample");
  w.constant("Vocab", c.vocabulary);
  w.constant("Blocks", c.blocks);
  w.constant("Threads", c.threads);
  w.constant("SharedBytes", c.sharedBytes);
  if (c.blocks > 1)
    w.cluster(c.blocks, 1);
  w.out("logits", Scalar::F32);
  for (const char *name : {"greedy", "rows"})
    w.in(name, Scalar::I32);
  for (const char *name : {"adjustments", "next", "reports"})
    w.out(name, Scalar::I32);
  return w.finish(unsigned(c.threads));
}

Grid gridOf(const SampleConfig &c, const plan::ExprT &rows) {
  return blocks(rt::constantExpr(c.blocks), rows);
}

} // namespace gpt2c
