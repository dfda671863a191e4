// The sources of products with weights for few rows, whose time is reading the weights.
#include "codegen/LinearParams.h"

#include "llvm/Support/MathExtras.h"

using namespace llvm;

namespace gpt2c {

/// Scales of groups of weights; returns the argument.
static const char *weightScales(KernelWriter &w, int group) {
  if (group <= 0)
    return "nullptr";
  w.param("const float *", "wScale");
  return "wScale";
}
/// Where the largest elements are left, y being optional then; returns the argument.
static const char *largest(KernelWriter &w, bool best) {
  if (!best)
    return "nullptr";
  w.param("u64 *", "best");
  w.optional("y");
  return "best";
}

KernelSource linearRowDot(StringRef name, const LinearRowDotConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/rowdot/linear_rowdot.cuh");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Cols", c.cols);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.norm(c.norm);
  operandParams(w, c.x, c.w, c.y);
  const bool norm = normParams(w, c.norm, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, bytes = c.rows * c.k * scalarBytes(c.x);
  unsigned shared = norm || bytes <= 32 * 1024 ? (bytes + 15) / 16 * 16 : 0;
  std::string t = "RowDot<" + w.config() + ">";
  return w.finish(threads, shared,
                  KernelWriter::sizesCheck(t, threads, shared) + " && " + t +
                      "::colsPerBlock == " + Twine(rowDotColumns(c)),
                  "tile::linearRowDot<" + w.config() + ">(x, w, y, m, n, " + normArguments(norm) +
                      ", blockIdx.x, " + (shared ? "(char *)dynamicShared" : "nullptr") + ", " + e +
                      ");");
}

KernelSource linearSkinny(StringRef name, const LinearSkinnyConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/skinny/linear_skinny.cuh");
  w.type("X", Scalar::F16);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.constant("XGroup", c.xGroup);
  w.norm(c.norm);
  operandParams(w, Scalar::F16, c.w, c.y);
  const std::string scales = weightScales(w, c.wGroup);
  const bool norm = normParams(w, c.norm, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = norm || c.xGroup >= 0 ? skinnyRowBytes(c) : 0;
  std::string t = "Skinny<" + w.config() + ">";
  return w.finish(threads, shared,
                  KernelWriter::sizesCheck(t, threads, shared) + " && " + t +
                      "::columns == " + Twine(skinnyColumns(c)),
                  "tile::linearSkinny<" + w.config() + ">(x, w, y, m, n, " + scales + ", " +
                      normArguments(norm) + ", blockIdx.x, " +
                      (shared ? "(__half *)dynamicShared" : "nullptr") + ", " + e + ");");
}

KernelSource linearRows(StringRef name, const LinearRowsConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/rows/linear_rows.cuh");
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Groups", c.groups);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.constant("V", c.pairs ? 2 : 1);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.norm(c.norm);
  if (c.splits > 1)
    w.cluster(c.splits, 1);
  operandParams(w, Scalar::F16, c.w, c.y);
  const std::string scales = weightScales(w, c.wGroup);
  const bool norm = normSumParams(w, c.norm, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = rowsSharedBytes(c);
  std::string t = "LinearRows<" + w.config() + ">";
  return w.finish(threads, shared,
                  KernelWriter::sizesCheck(t, threads, shared) + " && " + t +
                      "::columns == " + Twine(rowsColumns(c)),
                  "tile::linearRows<" + w.config() + ">(x, w, y, m, n, " + scales + ", " +
                      normSumArguments(norm) +
                      ", blockIdx.x, blockIdx.y, (float *)dynamicShared, " + e + ");");
}

unsigned clusterSharedBytes(const LinearClusterConfig &c) {
  const int slice = divideCeilSigned(divideCeilSigned(c.k, 32), c.parts * c.splits) * c.parts * 32;
  const int copiers = std::max(1, clusterThreads(c) / 8 / c.rows);
  return 1024 + divideCeilSigned(slice, 64) * c.rows * 128 +
         c.parts * c.rows * clusterColumns(c) * 4 +
         (c.norm != FusedNorm::None ? copiers * c.rows * 8 : 0);
}

KernelSource linearCluster(StringRef name, const LinearClusterConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/cluster/linear_cluster.cuh");
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Groups", c.groups);
  w.constant("Parts", c.parts);
  w.constant("Splits", c.splits);
  w.constant("V", c.pairs ? 2 : 1);
  w.constant("K", c.k);
  w.norm(c.norm);
  w.flag("Statistics", c.statistics);
  if (c.splits > 1)
    w.cluster(c.splits, 1);
  operandParams(w, Scalar::F16, c.w, c.y);
  const bool norm = normSumParams(w, c.norm, c.p);
  std::string e = w.epilogue(epilogue);
  if (c.statistics)
    w.param("float2 *", "yStatistics");
  unsigned threads = clusterThreads(c), shared = clusterSharedBytes(c);
  std::string t = "LinearCluster<" + w.config() + ">";
  return w.finish(threads, shared,
                  KernelWriter::sizesCheck(t, threads, shared) + " && " + t +
                      "::columns == " + Twine(clusterColumns(c)),
                  "tile::linearCluster<" + w.config() + ">(x, w, y, m, n, " +
                      normSumArguments(norm) +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, dynamicShared, " + e +
                      (c.statistics ? ", yStatistics" : ", nullptr") + ");");
}

KernelSource linearStream(StringRef name, const LinearStreamConfig &c, const Epilogue &epilogue) {
  const bool ring = c.slots > 0;
  KernelWriter w(name, ring ? "templates/linear/stream_ring/linear_stream_ring.cuh"
                            : "templates/linear/stream/linear_stream.cuh");
  w.type("X", Scalar::F16);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  if (ring) {
    w.constant("Columns", c.columns);
    w.constant("Slots", c.slots);
  }
  w.flag("Best", c.best);
  w.norm(c.norm);
  operandParams(w, Scalar::F16, c.w, c.y);
  const bool norm = normParams(w, c.norm, c.p);
  const std::string best = largest(w, c.best);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = streamSharedBytes(c);
  std::string t = (ring ? "LinearStreamRing<" : "LinearStream<") + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  (ring ? "tile::linearStreamRing<" : "tile::linearStream<") + w.config() +
                      ">(x, w, y, m, n, " + normArguments(norm) + ", " + best +
                      ", blockIdx.x, gridDim.x, (__half *)dynamicShared, " + e + ");");
}

KernelSource linearStreamTma(StringRef name, const LinearStreamTmaConfig &c,
                             const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/stream_tma/linear_stream_tma.cuh");
  w.type("W", c.w);
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RawStages", c.rawStages);
  w.flag("Best", c.best);
  w.params("const __grid_constant__ TensorMap", {"xMap", "wMap"});
  w.pointer(c.y, "y");
  w.param("int", "m");
  const std::string best = largest(w, c.best);
  std::string e = w.epilogue(epilogue, std::to_string(c.n));
  unsigned threads = 2 * c.bm + (c.w == Scalar::I8 ? 192 : 32), shared = streamSharedBytes(c);
  std::string t = "LinearStreamTma<" + w.config() + ">";
  return w.finish(threads, shared, KernelWriter::sizesCheck(t, threads, shared),
                  "tile::linearStreamTma<" + w.config() + ">(xMap, wMap, y, m, " + best +
                      ", blockIdx.x, gridDim.x, dynamicShared, " + e + ");",
                  1);
}

} // namespace gpt2c
