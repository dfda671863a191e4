// Both products of an MLP for few rows in one launch: templates/linear/mlp_cluster/mlp_cluster.cuh.
#include "templates/linear/mlp_cluster/MlpCluster.h"

#include "codegen/KernelWriter.h"
#include "schedule/Problems.h"
#include "templates/linear/Kernels.h"

#include "llvm/Support/Parallel.h"

#include <cmath>
#include <tuple>
#include <utility>

namespace gpt2c {

/// Columns of the hidden value that a cluster has.
static constexpr int64_t ofCluster = 256;
/// For 16 rows two launches are faster; the kernel takes 32.
static constexpr int64_t fewestRows = 17, mostRows = 32;

std::string nameOf(const MlpClusterConfig &) { return "mlp_cluster"; }

/// Powers of two f32[D] that a column of `output` is counted in: with norm(x), whose length is at
/// most sqrt(D), no hidden column is larger than sqrt(D) |w1| + |b1|, or 1, for a bounded
/// activation, so no part of a sum is larger than 2^29 of them.
static Tensor unitsOf(const Tensor &w1, const Tensor &b1, const Tensor &w2) {
  auto row = [](const Tensor &w, int64_t i) {
    std::vector<double> values(w.dim(1));
    w.load(i * w.dim(1), values);
    return values;
  };
  const int64_t width = w1.dim(1);
  std::vector<double> largest(w1.dim(0));
  llvm::parallelFor(0, largest.size(), [&](size_t i) {
    double squares = 0;
    for (double v : row(w1, int64_t(i)))
      squares += v * v;
    largest[i] =
        std::max(1.0, std::sqrt(double(width) * squares) + std::fabs(b1.asDouble(int64_t(i))));
  });
  std::vector<float> units(w2.dim(0));
  llvm::parallelFor(0, units.size(), [&](size_t n) {
    const std::vector<double> weights = row(w2, int64_t(n));
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i)
      sum += std::fabs(weights[i]) * largest[i];
    // What rounding adds to either operand and to the contributions is less than a hundredth.
    units[n] = float(std::exp2(std::ceil(std::log2(std::max(sum * 1.01, 1e-20))) - 29));
  });
  const int64_t count = int64_t(units.size());
  return Tensor::of<float>(units, {count});
}

KernelSource mlpCluster(llvm::StringRef name, const MlpClusterConfig &c) {
  KernelWriter w(name, "templates/linear/mlp_cluster/mlp_cluster.cuh", "tile::mlpCluster");
  w.type("P", c.p);
  w.constant("D", c.d);
  w.constant("Hidden", c.hidden);
  w.constant("Heads", c.heads);
  w.constant("HeadDim", c.headDim);
  const std::string function = infoOf(c.activation).functionForHalves.str();
  w.member("template <int V> static __device__ __forceinline__ void activate(float (&v)[V]) {" +
           (function.empty() ? "" : " epilogue::" + function + "(v); ") + "}");
  w.cluster(8, 1);
  w.in("x", Scalar::F16);
  w.in("w1", Scalar::F16);
  w.in("sums1", Scalar::F32);
  w.in("b1", c.p);
  w.f32("epsilon");
  w.in("w2", Scalar::F16);
  w.in("units", Scalar::F32);
  w.in("b2", c.p);
  w.in("residual", Scalar::F16);
  w.out("y", Scalar::F16);
  w.value("u64 *", "words");
  w.i32("m");
  std::string ahead = w.declare("const __half *", "kv");
  for (const char *name : {"past", "tables"})
    ahead += ", " + w.declare("const int *", name);
  for (const char *name : {"layer", "batch", "batchMax", "context", "tableStride"})
    ahead += ", " + w.declare("int", name);
  w.pass("StateAhead{" + ahead + "}");
  w.pass("blockIdx.x, blockIdx.y, dynamicShared");
  w.include("templates/linear/parts/epilogue.cuh");
  w.checkSizes("MlpCluster");
  return w.finish(mlpThreads, mlpSharedBytes(c), 1);
}

Grid gridOf(const MlpClusterConfig &c) { return blocks(8, c.hidden / ofCluster); }

/// The arguments of StateAhead, for attention of one query of each sequence that has the kernel's
/// heads. Launches without have the same kernel, so that layers and functions share it.
static void addStateAhead(StepBuilder &b, ArgList &args, const MlpClusterConfig &c,
                          const Op *next) {
  using enum ops::AppendAttention::Operand;
  if (!next || headsOf(*next) != std::pair(c.heads, c.headDim) ||
      b.maximum(next->operand(Qkv)->type.shape[1]) > 1) {
    for (const char *name : {"kv", "past", "tables"})
      args.set(name, StepBuilder::null());
    for (const char *name : {"layer", "batch", "batchMax", "context", "tableStride"})
      args.i32(name, Dim(0));
    return;
  }
  Value *kv = next->operand(Kv);
  const StepBuilder::Pages *pages = b.pages();
  args.in("kv", kv)
      .in("past", next->operand(Past))
      .set("tables", pages ? b.tables() : StepBuilder::null())
      .i32("layer", next->intAttr("layer"), rt::LayerArg::Ahead)
      .i32("batch", next->operand(Qkv)->type.shape[0])
      .i32("batchMax", pages ? pages->layers : kv->type.shape[2])
      .i32("context", pages ? Dim(pages->tokens) : kv->type.shape[4])
      .i32("tableStride", Dim(pages ? pages->columns : 0));
}

namespace mlp_cluster {

std::string refusal(const MlpProblem &p) {
  for (const LinearProblem *product : {&p.hidden, &p.output}) {
    if (product->rows > mostRows)
      return "more than 32 rows";
    const LinearKernel *kernel = linearLeader(*product);
    if (!kernel || (kernel->name() != "linear_rows" && kernel->name() != "linear_tma"))
      return "products that linear_rows does not compute";
    if (product->isHeavy())
      return "weights of 5 MB and more";
  }
  if (p.output.n != p.hidden.k || p.output.k != p.hidden.n || p.hidden.k % ofCluster != 0 ||
      p.hidden.k > 1024 || p.hidden.n % ofCluster != 0 || p.hidden.n > 16 * ofCluster)
    return "widths that are no multiple of 256, or more than 1024 and 4096";
  return "";
}
std::string slower(const MlpProblem &p) {
  return p.hidden.rows < fewestRows ? "fewer than 17 rows: a launch for each product" : "";
}

std::vector<MlpClusterConfig> configs(const MlpProblem &p) {
  MlpClusterConfig c;
  c.d = int(p.hidden.k);
  c.hidden = int(p.hidden.n);
  c.p = p.biasType;
  c.activation = p.activation;
  c.heads = p.heads;
  c.headDim = p.headDim;
  return {c};
}

llvm::Error emit(MlpLaunch &l, const MlpClusterConfig &c) {
  StepBuilder &b = l.b;
  Op &output = l.output, &hidden = l.hidden;
  using enum ops::Linear::Operand;
  const Op &norm = *hidden.operand(X)->def();
  Value *x = norm.operand(ops::LayerNorm::X), *w1 = hidden.operand(W), *b1 = hidden.operand(Bias),
        *w2 = output.operand(W), *residual = output.operand(Residual);
  const Dim m = leading(x);
  ArgList list(b);
  addStateAhead(b, list, c, l.ahead);
  auto args =
      list.in("x", x)
          .in("w1", w1)
          .set("sums1", b.rowSums(w1))
          .in("b1", b1)
          .set("epsilon", StepBuilder::f32(norm.floatAttr("epsilon")))
          .in("w2", w2)
          .set("units", b.derived("mlp-units", {w1, b1, w2},
                                  [&] {
                                    return unitsOf(w1->def()->constant, b1->def()->constant,
                                                   w2->def()->constant);
                                  }))
          .in("b2", output.operand(Bias))
          .in("residual", residual)
          .out("y", output.result())
          .set("words", b.sharedScratch("mlp-words-" + std::to_string(c.d), mostRows * c.d / 2 * 8))
          .i32("m", m)
          .take();
  if (!args)
    return args.takeError();
  llvm::SmallVector<llvm::StringRef> nodes(hidden.locations.begin(), hidden.locations.end());
  nodes.append(output.locations.begin(), output.locations.end());
  std::string what = norm.info().mnemonic.str() + "+linear+bias";
  if (c.activation != Activation::None)
    what += ("+" + infoOf(c.activation).name).str();
  b.launch(nodes, what + "+linear+bias+residual",
           mlpCluster(b.pool().nextKernelName("mlp_cluster"), c), *args, gridOf(c),
           bytesOf(x) + bytesOf(w1) + bytesOf(w2) + bytesOf(residual) + bytesOf(output.result()),
           m * Dim(4 * int64_t(c.d) * c.hidden));
  return llvm::Error::success();
}

} // namespace mlp_cluster

const MlpKernel &mlpClusterKernel() {
  using namespace mlp_cluster;
  static const MlpKernelOf<MlpClusterConfig> kernel({
      .name = "mlp_cluster",
      .summary = "17 to 32 rows in fp16 on Hopper: the norm and both products in one launch, the "
                 "hidden rows in clusters",
      .needs = wholeClusters,
      .can = {MlpAbility::F16, MlpAbility::Norm, MlpAbility::Biases, MlpAbility::Residual,
              MlpAbility::Bounded},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
