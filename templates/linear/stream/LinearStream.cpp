// The record of linear_stream.
#include "templates/linear/stream/LinearStream.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearStreamConfig &c) {
  return llvm::formatv("linear_stream warps={0}", c.warps).str();
}

Grid gridOf(const LinearStreamConfig &, const plan::ExprT &, int64_t, int64_t processors) {
  return blocks(processors);
}

KernelSource linearStream(llvm::StringRef name, const LinearStreamConfig &c,
                          const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/stream/linear_stream.cuh", "tile::linearStream");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.flag("Best", c.best);
  normMember(w, c.norm);
  passOperands(w, c.x, c.w, c.y);
  passNorm(w, c.norm, c.p);
  passLargest(w, c.best);
  passTurn(w);
  passShared(w, cudaType(c.x));
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearStream");
  return w.finish(32 * c.warps, streamSharedBytes(c));
}

namespace linear_stream {

LinearStreamConfig config(const LinearProblem &p) {
  LinearStreamConfig c;
  c.y = p.y;
  c.k = p.k;
  c.x = p.x;
  c.w = p.w;
  c.norm = p.fused.norm;
  c.p = p.fused.gain;
  c.best = p.fused.best;
  c.rows = powerOfTwoRows(p);
  // As many warps as end at about the same time.
  const int64_t tiles = divideCeilSigned(p.n, 16);
  auto turns = [&](int64_t warps) {
    return divideCeilSigned(tiles, warps * p.target.multiprocessors) * warps;
  };
  for (int warps : {12, 16})
    if (turns(warps) <= turns(c.warps))
      c.warps = warps;
  // 32 rows by the tuner: 24 to 30 us with 16 warps, 33 to 46 with 12.
  LinearStreamConfig most = c;
  most.warps = 16;
  if (c.rows == 32 && p.w == p.x && streamSharedBytes(most) <= p.target.sharedBytes)
    return most;
  return c;
}

std::vector<LinearStreamConfig> configs(const LinearProblem &p) {
  LinearStreamConfig c = config(p);
  ConfigList list(c);
  for (int warps : {8, 12, 16}) {
    c.warps = warps;
    list.add(c);
  }
  return list.take();
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0 || p.k % (isQuantised(p.w) ? 64 : 32) != 0
             ? "K is no multiple of 32, or 64 with weights of a byte"
         : p.rows > 64                                         ? "more than 64 rows"
         : streamSharedBytes(config(p)) > p.target.sharedBytes ? "no room for the rows"
                                                               : "";
}
std::string slower(const LinearProblem &p) { return wideRefusal(p); }
bool rivals(const LinearProblem &, llvm::StringRef leader) {
  return leader == "linear_stream_ring";
}
llvm::Error emit(LinearLaunch &l, const LinearStreamConfig &c) {
  if (llvm::Error e = l.addNorm())
    return e;
  if (c.best)
    l.addLargest(l.processors());
  return l.launch(linearStream(l.name("linear_stream"), c, l.call.epilogue), c);
}
} // namespace linear_stream

const LinearKernel &linearStreamKernel() {
  using namespace linear_stream;
  static const LinearKernelOf<LinearStreamConfig> kernel({
      .name = "linear_stream",
      .summary = "a vocabulary for up to 64 rows: rows stay in shared memory, weights pass by, "
                 "norm and largest elements with them",
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::F16Bytes,
              LinearAbility::FloatSteps, LinearAbility::Norm, LinearAbility::NormBySums,
              LinearAbility::NormByStatistics, LinearAbility::NormGain, LinearAbility::Best},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
