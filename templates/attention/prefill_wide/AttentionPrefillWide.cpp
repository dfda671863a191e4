// The record of attention_prefill_wide.
#include "templates/attention/prefill_wide/AttentionPrefillWide.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionPrefillWideConfig &c) {
  return llvm::formatv("attention_prefill_wide groups={0}", c.groups).str();
}

/// Warpgroups of a block, at most: of wider heads the accumulators of one take the registers that
/// two warps of a quarter of a multiprocessor have.
static int mostGroups(const AttentionConfig &c) { return c.headDim > 128 ? 1 : 2; }

/// Of keys, and of values: as many as leave room for the queries.
static int stagesOf(const AttentionConfig &c) { return c.headDim > 128 ? 2 : 3; }

KernelSource attentionPrefillWide(llvm::StringRef name, const AttentionPrefillWideConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_wide/attention_prefill_wide.cuh",
                 "tile::attentionPrefillWide");
  w.type("X", c.x);
  w.type("Y", valueType(c));
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.constant("HeadDim", c.headDim);
  w.constant("Window", c.window);
  if (c.softCap > 0)
    w.real("SoftCap", c.softCap);
  w.constant("Groups", c.groups);
  w.constant("Stages", stagesOf(c));
  w.map("qkvMap");
  w.map("kvMap");
  w.out("kv", c.kv);
  passOut(w, c);
  w.in("past", Scalar::I32);
  for (const char *size : {"layer", "batchMax", "context", "seq"})
    w.i32(size);
  w.f32("scale");
  w.pass("dynamicShared");
  w.checkSizes("AttentionWide");
  const unsigned tile = unsigned(llvm::divideCeil(c.headDim, 64)) * 64 * 64 * 2;
  return w.finish(128 * c.groups + 32, (c.groups + 2 * stagesOf(c)) * tile + 1024);
}

namespace attention_prefill_wide {

using Config = AttentionPrefillWideConfig;

std::vector<Config> configs(const AttentionProblem &p) {
  Config model{p.config};
  model.append = true;
  // Two groups share keys; one alone while there are fewer tiles of two than multiprocessors.
  const int64_t pairs =
      p.sequences * p.config.heads * llvm::divideCeilSigned(p.queries, int64_t(128));
  model.groups = p.queries > 64 && pairs >= p.target.multiprocessors ? mostGroups(p.config) : 1;
  ConfigList list(model);
  for (int groups = 1; groups <= mostGroups(p.config); ++groups) {
    Config c = model;
    c.groups = groups;
    list.add(c);
  }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  const int d = p.config.headDim;
  return d % 16 != 0 || d < 64 || d > 256   ? "heads that are no multiple of 16 from 64 to 256"
         : p.config.quantise && !p.isHalf() ? "a result in int8 of rows in bf16"
         : p.findsScales() && d % 32 != 0   ? "scales of heads that are no multiple of 32"
                                            : "";
}
std::string slower(const AttentionProblem &p) {
  return p.queries <= fewQueries ? "up to 4 queries of a sequence: attention_decode" : "";
}

llvm::Error emit(AttentionLaunch &l, const Config &c) {
  if (llvm::Error e = l.begin(c))
    return e;
  if (llvm::Error e = l.addMaps(c))
    return e;
  StepBuilder &b = l.b;
  const Dim &batch = l.sequences(), &seq = l.op.operand(ops::AppendAttention::Qkv)->type.shape[1];
  return l.launch(attentionPrefillWide(l.name("attention_prefill_wide"), c),
                  {rt::constantExpr(c.heads), b.expr(batch), ceilDivExpr(b, seq, 64 * c.groups)});
}
} // namespace attention_prefill_wide

const AttentionKernel &attentionPrefillWideKernel() {
  using namespace attention_prefill_wide;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_prefill_wide",
      .summary = "many queries in fp16 or bf16 on Hopper, heads of a multiple of 16 from 64 to "
                 "256: tiles by wgmma",
      .needs = wgmmaTiles,
      .can = {AttentionAbility::F16, AttentionAbility::BF16, AttentionAbility::SharedKeys,
              AttentionAbility::Window, AttentionAbility::SoftCap, AttentionAbility::GivenScale,
              AttentionAbility::OwnScales},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
