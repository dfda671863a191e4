// The record of linear_int8.
#include "templates/linear/int8/LinearInt8.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

std::string nameOf(const LinearInt8Config &c) { return tileName("linear_int8", c); }

Grid gridOf(const LinearInt8Config &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

KernelSource linearInt8(llvm::StringRef name, const LinearInt8Config &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/int8/linear_int8.cuh", "tile::linearInt8");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  passOperandsAndK(w, Scalar::I8, Scalar::I8, c.y);
  passGroups(w, c.xGroup, c.yGroup);
  passSplitK(w, c.splitK);
  passTileIndex(w);
  passShared(w, "signed char");
  w.pass(writeEpilogue(w, epilogue));
  const unsigned blocks = c.xGroup == 0 ? (c.bn <= 128 ? 2 : 0) : c.bm * c.bn <= 64 * 128 ? 3 : 0;
  w.checkSizes("LinearInt8");
  return w.finish(c.bm / 64 * 128, int8SharedBytes(c), blocks);
}

namespace linear_int8 {

/// The largest tile that still gives every multiprocessor about one; K is never split, since few
/// tiles end sooner than their parts are added. With groups of x three blocks share a
/// multiprocessor: sums of one are scaled while another multiplies.
LinearInt8Config int8Config(const LinearProblem &s) {
  const int64_t processors = s.target.multiprocessors;
  const int64_t xGroup = std::max<int64_t>(s.int8.group, 0), yGroup = s.int8.yGroup;
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(s.rows, bm) * divideCeilSigned(s.n, bn);
  };
  LinearInt8Config c{.y = s.y, .xGroup = int(xGroup), .yGroup = int(yGroup)};
  if (xGroup > 0 && yGroup == 0) {
    c.bm = 64;
    c.bn = tiles(64, 128) < processors ? 64 : 128;
    c.stages = 3;
  } else if (xGroup > 0 || tiles(128, 128) < processors) {
    c.bm = 64;
    c.stages = xGroup > 0 ? 3 : 4;
    if (xGroup == 0 && yGroup == 0 && tiles(64, 128) < processors) {
      c.bn = 64;
      c.stages = 6;
    }
  }
  return c;
}

std::vector<LinearInt8Config> configs(const LinearProblem &p) {
  const LinearInt8Config model = int8Config(p);
  ConfigList list(model);
  for (auto [bm, bn, stages] : {std::tuple(128, 128, 3), {64, 128, 3}, {64, 128, 4}, {64, 64, 6}}) {
    LinearInt8Config c = model;
    c.bm = bm;
    c.bn = bn;
    c.stages = stages;
    if (c.yGroup == 0 || bn % c.yGroup == 0)
      list.add(c);
  }
  return list.take();
}

llvm::Error emit(LinearLaunch &l, const LinearInt8Config &c) {
  return l.launchTiles(linearInt8(l.name("linear_int8"), c, l.call.epilogue), c);
}
} // namespace linear_int8

const LinearKernel &linearInt8Kernel() {
  using namespace linear_int8;
  static const LinearKernelOf<LinearInt8Config> kernel({
      .name = "linear_int8",
      .summary =
          "int8 rows and weights on any architecture, scales of rows or of groups of 64 or 128",
      .can = {LinearAbility::I8, LinearAbility::I8ToBF16, LinearAbility::RowGroups,
              LinearAbility::ResultGroups, LinearAbility::AnyRows},
      .refusal = int8TilesRefusal,
      .configs = configs,
      .emit = emit,
      .sumOrder =
          [](const LinearInt8Config &c, const LinearProblem &) {
            return c.xGroup == 0
                       ? std::string("linear_int8 of integers, exact")
                       : inParts("linear_int8 groups=" + std::to_string(c.xGroup), c.splitK);
          },
  });
  return kernel;
}

} // namespace gpt2c
