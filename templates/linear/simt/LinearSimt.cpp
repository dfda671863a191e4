// The record of linear_simt.
#include "templates/linear/simt/LinearSimt.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearSimtConfig &c) {
  return llvm::formatv("linear_simt {0}x{1}x{2} thread={3}x{4} split={5}", c.bm, c.bn, c.bk, c.tm,
                       c.tn, c.splitK)
      .str();
}

Grid gridOf(const LinearSimtConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

KernelSource linearSimt(llvm::StringRef name, const LinearSimtConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/simt/linear_simt.cuh", "tile::linearSimt");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("TM", c.tm);
  w.constant("TN", c.tn);
  w.constant("SplitK", c.splitK);
  passOperandsAndK(w, c.x, c.w, c.y);
  passSplitK(w, c.splitK);
  passTileIndex(w);
  w.pass(writeEpilogue(w, epilogue));
  const unsigned threads = c.bm / c.tm * (c.bn / c.tn);
  w.check("LinearSimt", "threads", threads);
  return w.finish(threads);
}

namespace linear_simt {

LinearSimtConfig simtConfig(const LinearProblem &s) {
  LinearSimtConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.bk = 16;
  const int64_t n = s.n, k = s.k, rows = s.rows, processors = s.target.multiprocessors;
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
  };
  if (tiles(128, 64) >= 2 * processors) {
    c.bm = 128;
    c.bn = 64;
  } else {
    c.bm = rows <= 32 ? 32 : 64;
    c.bn = 64;
    c.tm = c.bm == 64 && tiles(64, 64) >= processors ? 8 : 4;
    c.tn = 4;
    // As linear_wgmma.
    while (!s.batchInvariant && c.splitK < 8 && tiles(c.bm, c.bn) < processors &&
           c.splitK * tiles(c.bm, c.bn) < 2 * processors && k >= 384 * c.splitK &&
           c.splitK * rows <= 4096)
      c.splitK *= 2;
  }
  return c;
}

std::vector<LinearSimtConfig> configs(const LinearProblem &p) {
  const LinearSimtConfig model = simtConfig(p);
  ConfigList list(model);
  const int64_t rows = p.rows, n = p.n, k = p.k, processors = p.target.multiprocessors;
  for (auto [bm, bn, tm, tn] : {std::tuple(128, 128, 8, 8),
                                {128, 64, 8, 8},
                                {64, 64, 8, 4},
                                {64, 64, 4, 4},
                                {32, 64, 4, 4}})
    for (int split : {1, 2, 4}) {
      LinearSimtConfig c = model;
      c.bm = bm;
      c.bn = bn;
      c.bk = 16;
      c.tm = tm;
      c.tn = tn;
      c.splitK = split;
      const int64_t tiles = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
      if ((bm > 32 && bm >= 2 * rows) || (split > 1 && (tiles >= processors || k < 256 * split)))
        continue;
      list.add(c);
    }
  return list.take();
}

std::string refusal(const LinearProblem &p) {
  return p.hasPairs() && p.n % 4 != 0 ? "pairs of columns that are no multiple of 4" : "";
}
llvm::Error emit(LinearLaunch &l, const LinearSimtConfig &c) {
  return l.launchTiles(linearSimt(l.name("linear_simt"), c, l.call.epilogue), c);
}
} // namespace linear_simt

const LinearKernel &linearSimtKernel() {
  using namespace linear_simt;
  static const LinearKernelOf<LinearSimtConfig> kernel({
      .name = "linear_simt",
      .summary = "any rows, types and K but int8 rows, by fused multiply-adds",
      .can = {LinearAbility::F32, LinearAbility::Tf32, LinearAbility::F16, LinearAbility::BF16,
              LinearAbility::F32Bytes, LinearAbility::FloatSteps, LinearAbility::MixedTypes,
              LinearAbility::Gate, LinearAbility::Rotation, LinearAbility::AnyRows},
      .refusal = refusal,
      .configs = configs,
      .emit = emit,
      .sumOrder =
          [](const LinearSimtConfig &c, const LinearProblem &) {
            return inParts(llvm::formatv("linear_simt k={0}", c.bk).str(), c.splitK);
          },
  });
  return kernel;
}

} // namespace gpt2c
