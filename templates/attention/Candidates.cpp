// The configurations of attention's kernels that the tuner may take.
#include "templates/attention/Attention.h"
#include "templates/linear/parts/ConfigList.h"

namespace gpt2c {

std::string nameOf(const AttentionChoice &choice) {
  const AttentionConfig &c = choice.config;
  switch (choice.kernel) {
  case AttentionKernel::Decode:
    return llvm::formatv("attention_decode warps={0} splits={1} ring={2}", c.warps, c.splits,
                         c.ring)
        .str();
  case AttentionKernel::DecodeMma:
    return llvm::formatv("attention_decode_mma warps={0} splits={1}", c.warps, c.splits).str();
  case AttentionKernel::Wgmma:
    return llvm::formatv("attention_prefill_wgmma splits={0}", c.splits).str();
  case AttentionKernel::Mma:
    return llvm::formatv("attention_prefill_mma warps={0} keys={1}", c.warps, c.keys).str();
  case AttentionKernel::Tf32:
    return llvm::formatv("attention_prefill_tf32 warps={0} keys={1} splits={2}", c.warps, c.keys,
                         c.splits)
        .str();
  case AttentionKernel::Simt:
    return llvm::formatv("attention_prefill_simt {0}x{1}", 16 * c.tq, 16 * c.tk).str();
  }
  llvm_unreachable("no such kernel");
}

std::vector<AttentionChoice> attentionCandidates(const AttentionChoice &model, int64_t rows,
                                                 const Target &target) {
  const int64_t processors = target.multiprocessors;
  ConfigList list(model);
  auto vary = [&](auto change) {
    AttentionChoice choice = model;
    change(choice.config);
    list.add(choice);
  };
  switch (model.kernel) {
  case AttentionKernel::Decode:
    for (int splits : {1, 2, 4, 8})
      for (int warps : {4, 8})
        for (int ring : {0, 4}) {
          AttentionConfig split = model.config;
          split.splits = splits;
          split.cluster = splits > 1;
          split.warps = warps;
          split.ring = ring;
          // Blocks for half of the multiprocessors; a ring where each has several.
          const int64_t blocks = rows * split.heads * splits;
          if ((splits == 8 || 2 * blocks > processors) &&
              (splits == 1 || blocks < 16 * processors) &&
              (ring == 0 ||
               (split.bulk && blocks >= 2 * processors && attentionRingBytes(split) <= 64 * 1024)))
            vary([&](AttentionConfig &c) { c = split; });
        }
    break;
  case AttentionKernel::DecodeMma:
    for (int splits : {1, 2, 4, 8})
      for (int warps : {4, 8})
        if (const int64_t blocks = rows * model.config.heads * splits;
            splits == 1 || blocks < 4 * processors)
          vary([&](AttentionConfig &c) {
            c.splits = splits;
            c.cluster = splits > 1;
            c.warps = warps;
            c.blocks = 12 / warps;
          });
    break;
  case AttentionKernel::Wgmma:
    for (int splits : {1, 2, 4})
      vary([&](AttentionConfig &c) { c.splits = splits; });
    break;
  case AttentionKernel::Mma:
    for (int warps : {2, 4, 8})
      for (int keys : {32, 64})
        if (keys <= model.config.keys)
          vary([&](AttentionConfig &c) {
            c.warps = warps;
            c.keys = keys;
          });
    break;
  case AttentionKernel::Tf32:
    for (int warps : {1, 2, 4})
      for (int splits : {1, 2, 4})
        if (warps * model.config.keys <= 256)
          vary([&](AttentionConfig &c) {
            c.warps = warps;
            c.splits = splits;
          });
    break;
  case AttentionKernel::Simt:
    break;
  }
  return list.take();
}

} // namespace gpt2c
