// The sources of products with weights in tiles.
#include "codegen/LinearParams.h"

using namespace llvm;

namespace gpt2c {

namespace {
void splitKParams(KernelWriter &w, int splitK) {
  if (splitK <= 1)
    return;
  w.param("float *", "partial");
  w.param("unsigned *", "counters");
}
const char *splitKArguments(int splitK) {
  return splitK > 1 ? "partial, counters" : "nullptr, nullptr";
}

/// Scales of the groups of quantised operands and results.
void groupMembers(KernelWriter &w, int xGroup, int yGroup) {
  w.constant("XGroup", xGroup);
  w.constant("YGroup", yGroup);
}
void groupParams(KernelWriter &w, int xGroup, int yGroup) {
  if (xGroup > 0)
    w.param("const float *", "xScale");
  if (yGroup > 0)
    w.param("float *", "yScale");
}
std::string groupArguments(int xGroup, int yGroup) {
  return std::string(xGroup > 0 ? "xScale" : "nullptr") + (yGroup > 0 ? ", yScale" : ", nullptr");
}
} // namespace

KernelSource linearMma(StringRef name, const LinearMmaConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/mma/linear_mma.cuh");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("WarpsM", c.warpsM);
  w.constant("WarpsN", c.warpsN);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  w.constPointer(c.x, "x");
  w.constPointer(c.x, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  groupParams(w, c.xGroup, c.yGroup);
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warpsM * c.warpsN, width = scalarBytes(c.x);
  unsigned shared = c.stages * (c.bm + c.bn) * (c.bk * width + 16);
  std::string t = "LinearMma<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::linearMma<" + w.config() + ">(x, w, y, m, n, k, " +
                      groupArguments(c.xGroup, c.yGroup) + ", " + splitKArguments(c.splitK) +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, (" + cudaType(c.x) +
                      " *)dynamicShared, " + e + ");");
}

KernelSource linearInt8(StringRef name, const LinearInt8Config &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/int8/linear_int8.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  w.constPointer(Scalar::I8, "x");
  w.constPointer(Scalar::I8, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  groupParams(w, c.xGroup, c.yGroup);
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / 64 * 128, shared = int8SharedBytes(c);
  std::string t = "LinearInt8<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::linearInt8<" + w.config() + ">(x, w, y, m, n, k, " +
                      groupArguments(c.xGroup, c.yGroup) + ", " + splitKArguments(c.splitK) +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, (signed char *)dynamicShared, " + e +
                      ");",
                  c.xGroup == 0             ? (c.bn <= 128 ? 2 : 0)
                  : c.bm * c.bn <= 64 * 128 ? 3
                                            : 0);
}

KernelSource linearWgmma(StringRef name, const LinearWgmmaConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/wgmma/linear_wgmma.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(Scalar::F16, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / 64 * 128, shared = wgmmaSharedBytes(c);
  std::string t = "LinearWgmma<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::linearWgmma<" + w.config() + ">(x, w, y, m, n, k, " +
                      splitKArguments(c.splitK) +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, (__half *)dynamicShared, " + e + ");");
}

bool takesResidualByMap(const LinearTmaConfig &c, const Epilogue &epilogue) {
  auto isBias = [](const EpilogueStage &stage) { return stage.kind == EpilogueStage::AddBias; };
  return storesLines(c) && c.normParts == 0 && !epilogue.empty() &&
         epilogue.back().kind == EpilogueStage::AddMatrix &&
         epilogue.back().operand == Scalar::F16 && llvm::all_of(llvm::drop_end(epilogue), isBias);
}

/// The parts of the statistics that a norm is taken out of the sums with, as template arguments.
static std::string normParts(const LinearTmaConfig &c) {
  return "<" + std::to_string(c.normParts) + ", " + std::to_string(c.normWidth) + ">";
}
/// What becomes of the statistics of y.
static std::string statisticsParam(KernelWriter &w, const LinearTmaConfig &c) {
  if (!c.statistics)
    return "NoStatistics{}";
  w.param("float2 *", "yStatistics");
  return "RowStatistics{yStatistics}";
}

/// Whether rows of a block with a single tile leave in lines: nothing of y's shape is read with
/// them, of which a thread would need other elements than it has.
static bool leavesInLines(const LinearTmaConfig &c, const Epilogue &epilogue) {
  auto isMatrix = [](const EpilogueStage &stage) {
    return stage.kind == EpilogueStage::AddMatrix || stage.kind == EpilogueStage::MulMatrix ||
           stage.kind == EpilogueStage::AddLastRows;
  };
  return c.splitK == 1 && c.y == Scalar::F16 && c.n % c.bn == 0 &&
         llvm::none_of(epilogue, isMatrix);
}

static KernelSource linearTmaInt8Weights(StringRef name, const LinearTmaConfig &c,
                                         const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tma_int8_weights/linear_tma_int8_weights.cuh");
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RawStages", c.rawStages);
  w.constant("SplitK", c.splitK);
  w.flag("Lines", leavesInLines(c, epilogue));
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  w.params("const __grid_constant__ TensorMap", {"xMap", "wMap"});
  w.pointer(c.y, "y");
  w.param("int", "m");
  std::string gain = std::string("(const ") + cudaType(c.p) + " *)nullptr";
  std::string norm = "NoNorm{}";
  if (c.normParts > 0) {
    w.constPointer(c.p, "gain");
    w.param("const float2 *", "xStatistics");
    w.params("const float *", {"rowSums", "shiftSums"});
    w.param("float", "epsilon");
    gain = "gain";
    norm = "FoldedNormShift" + normParts(c) + "{{xStatistics, rowSums, epsilon}, shiftSums}";
  }
  std::string e = w.epilogue(epilogue, std::to_string(c.n));
  const std::string statistics = statisticsParam(w, c);
  unsigned threads = 2 * c.bm + 320, shared = tmaSharedBytes(c);
  std::string t = "LinearTmaInt8Weights<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::linearTmaInt8Weights<" + w.config() + ">(xMap, wMap, y, m, " + gain +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, dynamicShared, " + e + ", " + norm +
                      ", " + statistics + ");");
}

KernelSource linearTma(StringRef name, const LinearTmaConfig &c, const Epilogue &epilogue) {
  if (c.w == Scalar::I8)
    return linearTmaInt8Weights(name, c, epilogue);
  const bool residual = takesResidualByMap(c, epilogue);
  KernelWriter w(name, c.persistent ? "templates/linear/tma_persistent/linear_tma_persistent.cuh"
                                    : "templates/linear/tma/linear_tma.cuh");
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  if (!c.persistent) {
    w.constant("BM", c.bm);
    w.constant("SplitK", c.splitK);
    w.flag("Lines", leavesInLines(c, epilogue));
  } else {
    w.flag("Residual", residual);
  }
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  w.params("const __grid_constant__ TensorMap", {"xMap", "wMap"});
  if (residual)
    w.param("const __grid_constant__ TensorMap", "residualMap");
  w.pointer(c.y, "y");
  w.param("int", "m");
  if (c.persistent)
    w.param("int", "backwards");
  std::string e = w.epilogue(residual ? Epilogue(epilogue.begin(), epilogue.end() - 1) : epilogue,
                             std::to_string(c.n));
  std::string norm = "NoNorm{}";
  if (c.normParts > 0) {
    w.param("const float2 *", "xStatistics");
    w.param("const float *", "rowSums");
    w.param("float", "epsilon");
    norm = "FoldedNorm" + normParts(c) + "{xStatistics, rowSums, epsilon}";
  }
  const std::string statistics = statisticsParam(w, c);
  unsigned threads = c.persistent ? 384 : c.bm / 64 * 128 + 32, shared = tmaSharedBytes(c);
  std::string t = (c.persistent ? "LinearTmaPersistent<" : "LinearTma<") + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  (c.persistent ? "tile::linearTmaPersistent<" : "tile::linearTma<") + w.config() +
                      (!c.persistent ? ">(xMap, wMap, y, m, "
                       : residual    ? ">(xMap, wMap, residualMap, y, m, "
                                     : ">(xMap, wMap, xMap, y, m, ") +
                      (c.persistent     ? "backwards, blockIdx.x, gridDim.x"
                       : c.columnsFirst ? "blockIdx.y, blockIdx.x, blockIdx.z"
                                        : "blockIdx.x, blockIdx.y, blockIdx.z") +
                      ", dynamicShared, " + e + ", " + norm + ", " + statistics + ");",
                  c.blocks);
}

KernelSource linearInt8Tma(StringRef name, const LinearInt8TmaConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, c.stationary ? "templates/linear/int8_stationary/linear_int8_stationary.cuh"
                                    : "templates/linear/int8_tma/linear_int8_tma.cuh");
  w.type("Y", c.y);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.flag("RowScale", c.rowScale);
  w.constant("YGroup", c.yGroup);
  w.flag("Gelu", c.gelu);
  w.constant("N", c.n);
  w.constant("K", c.k);
  if (!c.stationary) {
    w.constant("BM", c.bm);
    w.constant("SplitK", c.splitK);
    w.constant("XGroup", c.xGroup);
    w.flag("Residual", c.residual);
  }
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  w.params("const __grid_constant__ TensorMap", {"xMap", "wMap"});
  if (c.residual)
    w.param("const __grid_constant__ TensorMap", "rMap");
  w.pointer(c.y, "y");
  w.param("int", "m");
  const bool scales = c.rowScale || c.xGroup > 0;
  groupParams(w, scales, c.yGroup);
  std::string e = w.epilogue(epilogue, std::to_string(c.n));
  if (c.given != Given::None)
    e += ", " + w.given(c.given);
  unsigned threads = c.stationary || c.bm == 128 ? 384 : 160, shared = int8TmaSharedBytes(c);
  std::string t = (c.stationary ? "LinearInt8Stationary<" : "LinearInt8Tma<") + w.config() + ">";
  KernelSource kernel =
      w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
               (c.stationary ? "tile::linearInt8Stationary<" : "tile::linearInt8Tma<") +
                   w.config() + ">(xMap, wMap, " +
                   (c.stationary ? ""
                    : c.residual ? "rMap, "
                                 : "xMap, ") +
                   "y, m, " + groupArguments(scales, c.yGroup) + ", " +
                   (c.stationary ? "blockIdx.x, blockIdx.y, gridDim.y"
                                 : "blockIdx.x, blockIdx.y, blockIdx.z") +
                   ", dynamicShared, " + e + ");",
               c.blocks);
  if (c.alone)
    kernel.sharedBytes =
        std::max(kernel.sharedBytes, 114u * 1024); // more than half of what there is
  return kernel;
}

KernelSource linearSimt(StringRef name, const LinearSimtConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/simt/linear_simt.cuh");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("TM", c.tm);
  w.constant("TN", c.tn);
  w.constant("SplitK", c.splitK);
  w.constPointer(c.x, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / c.tm * (c.bn / c.tn);
  return w.finish(threads, 0, "LinearSimt<" + w.config() + ">::threads == " + Twine(threads),
                  "tile::linearSimt<" + w.config() + ">(x, w, y, m, n, k, " +
                      splitKArguments(c.splitK) + ", blockIdx.x, blockIdx.y, blockIdx.z, " + e +
                      ");");
}

KernelSource linearTf32(StringRef name, const LinearTf32Config &c, const Epilogue &epilogue) {
  KernelWriter w(name, c.wgmma ? "templates/linear/tf32_wgmma/linear_tf32_wgmma.cuh"
                               : "templates/linear/tf32/linear_tf32.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  if (!c.wgmma) {
    w.constant("WarpsM", c.warpsM);
    w.constant("WarpsN", c.warpsN);
  }
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  if (c.wgmma) {
    w.params("const __grid_constant__ TensorMap", {"xMap", "wMap"});
  } else {
    w.constPointer(Scalar::F32, "x");
    w.constPointer(Scalar::F32, "w");
  }
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  if (!c.wgmma)
    splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue), config = w.config();
  unsigned threads = c.wgmma ? 2 * c.bm + 128 : 32 * c.warpsM * c.warpsN;
  unsigned shared = tf32SharedBytes(c);
  std::string t = (c.wgmma ? "LinearTf32Wgmma<" : "LinearTf32<") + config + ">";
  std::string call = c.wgmma ? "tile::linearTf32Wgmma<" + config + ">(xMap, wMap, y, m, n, k, "
                             : "tile::linearTf32<" + config + ">(x, w, y, m, n, k, " +
                                   splitKArguments(c.splitK) + ", ";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  call + "blockIdx.x, blockIdx.y, blockIdx.z, " +
                      (c.wgmma ? "dynamicShared, " : "(float *)dynamicShared, ") + e + ");",
                  c.blocks);
}

} // namespace gpt2c
