// The record of linear_wgmma.
#include "templates/linear/wgmma/LinearWgmma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

std::string nameOf(const LinearWgmmaConfig &c) { return tileName("linear_wgmma", c); }

Grid gridOf(const LinearWgmmaConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

KernelSource linearWgmma(llvm::StringRef name, const LinearWgmmaConfig &c,
                         const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/wgmma/linear_wgmma.cuh", "tile::linearWgmma");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  passOperandsAndK(w, c.x, c.x, c.y);
  passSplitK(w, c.splitK);
  passTileIndex(w);
  passShared(w, cudaType(c.x));
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearWgmma");
  return w.finish(c.bm / 64 * 128, wgmmaSharedBytes(c));
}

namespace linear_wgmma {

/// The largest tile that still gives every multiprocessor about one; where even small tiles do not,
/// K is split.
LinearWgmmaConfig wgmmaConfig(const LinearProblem &s) {
  LinearWgmmaConfig c;
  c.y = s.y;
  c.x = s.x;
  const int64_t n = s.n, k = s.k, rows = s.rows, processors = s.target.multiprocessors;
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
  };
  if (tiles(128, 128) >= processors) {
    // One wave of 128 x 192 is shorter than one and a half of two 128 x 128 on each multiprocessor.
    LinearWgmmaConfig wide = {c.y, 128, 192, 3, 1, c.x};
    if (tiles(128, 192) <= processors && tiles(128, 128) > processors &&
        wgmmaSharedBytes(wide) <= s.target.sharedBytes)
      return wide;
    return c;
  }
  // More blocks, each with as many k-tiles on their way as shared memory holds twice on a
  // multiprocessor.
  if (tiles(64, 128) >= processors)
    return {c.y, 64, 128, 4, 1, c.x};
  c.bm = c.bn = 64;
  c.stages = 6;
  // Parts that pay for few rows alone are none that all numbers of rows have.
  while (!s.batchInvariant && c.splitK < 4 && tiles(c.bm, c.bn) * c.splitK * 2 <= processors &&
         k >= 1536 * c.splitK)
    c.splitK *= 2;
  return c;
}

std::vector<LinearWgmmaConfig> configs(const LinearProblem &p) {
  const LinearWgmmaConfig model = wgmmaConfig(p);
  if (p.target.has(wgmmaTiles)) // beside linear_tma
    return {model};
  ConfigList list(model);
  const int64_t rows = p.rows, n = p.n, k = p.k, processors = p.target.multiprocessors;
  for (auto [bm, bn, stages] : {std::tuple(128, 192, 3),
                                {128, 128, 3},
                                {128, 64, 4},
                                {64, 192, 3},
                                {64, 128, 4},
                                {64, 64, 6},
                                {64, 64, 4}})
    for (int split : {1, 2, 4}) {
      LinearWgmmaConfig c{model.y, bm, bn, stages, split, model.x};
      const int64_t tiles = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
      if (wgmmaSharedBytes(c) > p.target.sharedBytes || (bm == 128 && rows <= 64) ||
          (split > 1 && (tiles >= processors || k < 256 * split)))
        continue;
      list.add(c);
    }
  return list.take();
}

std::string refusal(const LinearProblem &p) { return p.k % 8 != 0 ? "K is no multiple of 8" : ""; }
bool rivals(const LinearProblem &, llvm::StringRef leader) {
  return leader == "linear_tma" || leader == "linear_tma_persistent";
}
llvm::Error emit(LinearLaunch &l, const LinearWgmmaConfig &c) {
  return l.launchTiles(linearWgmma(l.name("linear_wgmma"), c, l.call.epilogue), c);
}
} // namespace linear_wgmma

const LinearKernel &linearWgmmaKernel() {
  using namespace linear_wgmma;
  static const LinearKernelOf<LinearWgmmaConfig> kernel({
      .name = "linear_wgmma",
      .summary = "many rows in fp16 or bf16 on any architecture: wgmma on sm_90a, mma elsewhere, "
                 "parts of K meet in memory",
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::Gate, LinearAbility::Rotation,
              LinearAbility::AnyRows},
      .refusal = refusal,
      .rivals = rivals,
      .configs = configs,
      .emit = emit,
      // Where there is no wgmma, all tiles are linear_mma's.
      .sumOrder = [](const LinearWgmmaConfig &c,
                     const LinearProblem &) { return inParts("linear_wgmma", c.splitK); },
  });
  return kernel;
}

} // namespace gpt2c
