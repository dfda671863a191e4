#include "templates/sample/Sample.h"

#include "codegen/KernelWriter.h"

namespace gpt2c {

/// Of the shared memory of a block what the kernel has beside the logits.
static constexpr int64_t ownBytes = 26 << 10;

static int64_t heldBytes(const SampleConfig &c) {
  const int64_t groups = (c.vocabulary + 3) / 4, share = (groups + c.blocks - 1) / c.blocks;
  return (share + c.threads - 1) / c.threads * c.threads * 16;
}

SampleConfig sampleConfig(int64_t vocabulary, const Target &target) {
  SampleConfig c{.vocabulary = vocabulary};
  auto fits = [&] { return heldBytes(c) + ownBytes <= int64_t(target.sharedBytes); };
  if (target.has({Feature::Clusters}))
    while (c.blocks < 8 && !fits())
      c.blocks *= 2;
  c.held = fits();
  return c;
}

SampleConfig spreadSampleConfig(int64_t vocabulary, const Target &target) {
  SampleConfig c{
      .vocabulary = vocabulary, .blocks = target.has({Feature::Clusters}) ? 8 : 1, .threads = 256};
  c.held = heldBytes(c) + ownBytes <= int64_t(target.sharedBytes);
  return c;
}

KernelSource sample(llvm::StringRef name, const SampleConfig &c) {
  KernelWriter w(name, "templates/sample/sample.cuh", "tile::sample");
  w.constant("Vocab", c.vocabulary);
  w.constant("Blocks", c.blocks);
  w.constant("Threads", c.threads);
  w.flag("Held", c.held);
  w.constant("Rehearsed", c.rehearsed);
  if (c.blocks > 1)
    w.cluster(c.blocks, 1);
  w.out("logits", Scalar::F32);
  for (const char *name : {"greedy", "rows", "masks"})
    w.in(name, Scalar::I32);
  for (const char *name : {"adjustments", "next", "reports"})
    w.out(name, Scalar::I32);
  w.pass(c.held ? "dynamicShared" : "nullptr");
  const unsigned shared = c.held ? unsigned(heldBytes(c)) : 0;
  w.check("tile::RowSampler", "sharedBytes", shared);
  return w.finish(unsigned(c.threads), shared);
}

Grid gridOf(const SampleConfig &c, const plan::ExprT &rows) {
  return blocks(rt::constantExpr(c.blocks), rows);
}

} // namespace gpt2c
