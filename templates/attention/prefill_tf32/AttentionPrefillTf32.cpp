// The record of attention_prefill_tf32.
#include "templates/attention/prefill_tf32/AttentionPrefillTf32.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionPrefillTf32Config &c) {
  return llvm::formatv("attention_prefill_tf32 warps={0} keys={1} splits={2}", c.warps, c.keys,
                       c.splits)
      .str();
}

KernelSource attentionPrefillTf32(llvm::StringRef name, const AttentionPrefillTf32Config &c) {
  KernelWriter w(name, "templates/attention/prefill_tf32/attention_prefill_tf32.cuh",
                 "tile::attentionPrefillTf32");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.constant("Splits", c.splits);
  if (c.splits > 1)
    w.cluster(1, c.splits);
  passPlain(w, c);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z / " + llvm::Twine(c.splits) + ", blockIdx.z % " +
         llvm::Twine(c.splits));
  w.pass("(float *)dynamicShared");
  w.pass(w.given(c.given));
  w.checkSizes("AttentionTf32");
  return w.finish(c.warps * c.keys, (16 * c.warps + 4 * c.keys) * (c.headDim + 4) * 4);
}

namespace attention_prefill_tf32 {

using Config = AttentionPrefillTf32Config;

Config modelConfig(const AttentionProblem &p) {
  Config c{p.config};
  c.warps = c.headDim > 80 || p.queries <= 32 ? 4 : 2;
  c.keys = c.headDim > 80 ? 32 : 64;
  const int64_t blocks = llvm::divideCeilSigned(p.queries, 16 * c.warps) * c.heads * p.sequences;
  // Splits of less than a tile of the new keys cost more than they gain.
  while (c.splits < 4 && blocks * c.splits < 2 * p.target.multiprocessors &&
         p.queries >= 2 * c.splits * c.keys)
    c.splits *= 2;
  return c;
}

std::vector<Config> configs(const AttentionProblem &p) {
  const Config model = modelConfig(p);
  ConfigList list(model);
  for (int warps : {1, 2, 4})
    for (int splits : {1, 2, 4})
      if (warps * model.keys <= 256) {
        Config c = model;
        c.warps = warps;
        c.splits = splits;
        list.add(c);
      }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  return p.config.headDim % 8 != 0 || p.config.headDim > 128
             ? "heads that are no multiple of 8, or more than 128"
             : "";
}
std::string slower(const AttentionProblem &p) {
  return p.queries <= fewQueries ? "up to 4 queries of a sequence: attention_decode" : "";
}

llvm::Error emit(AttentionLaunch &l, const Config &c) {
  if (llvm::Error e = l.begin(c))
    return e;
  std::array<plan::ExprT, 3> grid = l.tiles(16 * c.warps);
  grid[2] = l.b.expr(l.sequences() * Dim(c.splits));
  return l.launch(attentionPrefillTf32(l.name("attention_prefill_tf32"), c), grid);
}
} // namespace attention_prefill_tf32

const AttentionKernel &attentionPrefillTf32Kernel() {
  using namespace attention_prefill_tf32;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_prefill_tf32",
      .summary =
          "many queries in fp32 as three products of TF32, heads of a multiple of 8 up to 128",
      .can = {AttentionAbility::Tf32, AttentionAbility::KeyMask, AttentionAbility::NotCausal,
              AttentionAbility::GivenScale},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
