// The record of attention_prefill_wgmma.
#include "templates/attention/prefill_wgmma/AttentionPrefillWgmma.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionPrefillWgmmaConfig &c) {
  return llvm::formatv("attention_prefill_wgmma splits={0}", c.splits).str();
}

KernelSource attentionPrefillWgmma(llvm::StringRef name, const AttentionPrefillWgmmaConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_wgmma/attention_prefill_wgmma.cuh",
                 "tile::attentionPrefillWgmma");
  w.type("X", c.x);
  w.type("Y", valueType(c));
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.constant("KeySplit", c.splits);
  const int stages = c.splits > 1 ? 3 : 2; // one group leaves room for four blocks
  w.constant("Stages", stages);
  w.flag("Pairs", hasAttentionPairs(c));
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
  w.map("qkvMap");
  w.map("kvMap");
  w.out("kv", c.kv);
  passOut(w, c);
  passPast(w);
  passSizes(w);
  w.i32("backwards");
  w.pass("dynamicShared");
  const int units = hasAttentionPairs(c) ? 2 : 1;
  w.checkSizes("AttentionWgmma");
  return w.finish(128 * c.splits, (units + 2 * stages * c.splits) * 64 * 64 * 2 + 1024,
                  4 / c.splits);
}

namespace attention_prefill_wgmma {

using Config = AttentionPrefillWgmmaConfig;

Config modelConfig(const AttentionProblem &p) {
  Config c{p.config};
  c.append = true;
  // Groups share the keys of 64 queries: four while each tile of queries has an SM of its own, or
  // two have one and the longest are long; two while no more than three share one, or four where
  // they are long.
  const int64_t tiles = llvm::divideCeilSigned(p.queries, 64),
                processors = p.target.multiprocessors;
  const int64_t blocks = p.sequences * c.heads * tiles;
  c.splits = 1;
  if (tiles > 2 && blocks <= (tiles > 4 ? 2 : 1) * processors)
    c.splits = 4;
  else if (tiles > 1 && blocks <= (tiles > 8 ? 4 : tiles > 2 ? 3 : 2) * processors)
    c.splits = 2;
  return c;
}

std::vector<Config> configs(const AttentionProblem &p) {
  const Config model = modelConfig(p);
  ConfigList list(model);
  for (int splits : {1, 2, 4}) {
    Config c = model;
    c.splits = splits;
    list.add(c);
  }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  return p.config.quantise && !p.isHalf() ? "a result in int8 of rows in bf16"
         : p.config.headDim != 64         ? "heads that are not of 64"
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
  l.args.set("backwards", b.backwards());
  std::array<plan::ExprT, 3> grid = {rt::constantExpr(c.heads), b.expr(batch),
                                     ceilDivExpr(b, seq, 64)};
  if (hasAttentionPairs(c)) {
    // As many tiles of each head as all SMs have room for, but at least half of them.
    const Dim heads = batch * Dim(c.heads); // floor(a / b) = ceil((a + 1 - b) / b)
    plan::ExprT room = rt::combineExpr(
        rt::ExprOp::CeilDiv, b.expr(Dim(l.p.target.multiprocessors + 1) - heads), b.expr(heads));
    grid[2] = minExpr(grid[2], maxExpr(ceilDivExpr(b, seq, 128), room));
  }
  return l.launch(attentionPrefillWgmma(l.name("attention_prefill_wgmma"), c), grid);
}
} // namespace attention_prefill_wgmma

const AttentionKernel &attentionPrefillWgmmaKernel() {
  using namespace attention_prefill_wgmma;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_prefill_wgmma",
      .summary =
          "many queries in fp16 or bf16 on Hopper, heads of 64: tiles by wgmma, warpgroups that "
          "share the keys",
      .needs = wgmmaTiles,
      .can = {AttentionAbility::F16, AttentionAbility::BF16, AttentionAbility::SharedKeys,
              AttentionAbility::KeyMask, AttentionAbility::NotCausal, AttentionAbility::GivenScale,
              AttentionAbility::OwnScales},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
