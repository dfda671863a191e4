// The record of linear_stream_ring.
#include "templates/linear/stream_ring/LinearStreamRing.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearStreamRingConfig &c) {
  return llvm::formatv("linear_stream_ring warps={0} columns={1} slots={2}", c.warps, c.columns,
                       c.slots)
      .str();
}

Grid gridOf(const LinearStreamRingConfig &, const plan::ExprT &, int64_t, int64_t processors) {
  return blocks(processors);
}

KernelSource linearStreamRing(llvm::StringRef name, const LinearStreamRingConfig &c,
                              const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/stream_ring/linear_stream_ring.cuh",
                 "tile::linearStreamRing");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.constant("Columns", c.columns);
  w.constant("Slots", c.slots);
  w.flag("Best", c.best);
  normMember(w, c.norm);
  passOperands(w, c.x, c.w, c.y);
  passNorm(w, c.norm, c.p);
  passLargest(w, c.best);
  passTurn(w);
  passShared(w, cudaType(c.x));
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearStreamRing");
  return w.finish(32 * c.warps, streamRingSharedBytes(c));
}

namespace linear_stream_ring {

LinearStreamRingConfig config(const LinearProblem &p) {
  LinearStreamRingConfig c;
  c.y = p.y;
  c.x = p.x;
  c.w = p.w;
  c.k = p.k;
  c.rows = p.rows;
  c.norm = p.fused.norm;
  c.p = p.fused.gain;
  c.best = p.fused.best;
  while (c.columns > 1 && streamSlots(c) < 3)
    c.columns /= 2;
  c.slots = streamSlots(c);
  return c;
}

std::vector<LinearStreamRingConfig> configs(const LinearProblem &p) {
  LinearStreamRingConfig c = config(p);
  ConfigList list(c);
  for (c.columns = 2; c.columns <= 8; c.columns *= 2) {
    c.slots = streamSlots(c);
    if (c.slots >= 2)
      list.add(c);
  }
  return list.take();
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0 || p.k % 32 != 0 ? "K is no multiple of 32"
         : p.rows > 2              ? "more than 2 rows"
         : config(p).slots < 3     ? "no room for three slots of the ring"
                                   : "";
}
std::string slower(const LinearProblem &p) { return wideRefusal(p); }
llvm::Error emit(LinearLaunch &l, const LinearStreamRingConfig &c) {
  if (llvm::Error e = l.addNorm())
    return e;
  if (c.best)
    l.addLargest(l.processors());
  return l.launch(linearStreamRing(l.name("linear_stream"), c, l.call.epilogue), c);
}
} // namespace linear_stream_ring

const LinearKernel &linearStreamRingKernel() {
  using namespace linear_stream_ring;
  static const LinearKernelOf<LinearStreamRingConfig> kernel({
      .name = "linear_stream_ring",
      .summary = "a vocabulary for one or two rows: weights come by bulk copies into a ring",
      .needs = {Feature::Tma, Feature::Shared},
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::Norm,
              LinearAbility::NormBySums, LinearAbility::NormByStatistics, LinearAbility::NormGain,
              LinearAbility::Best},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
