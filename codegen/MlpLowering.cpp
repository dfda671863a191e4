// Both products of an MLP for few rows in one launch: templates/linear/mlp_cluster/mlp_cluster.cuh.
#include "codegen/KernelWriter.h"
#include "codegen/LinearCandidates.h"
#include "codegen/PersistentConfig.h"

#include "llvm/Support/Parallel.h"

#include <cmath>
#include <tuple>
#include <utility>

namespace gpt2c {

/// Columns of the hidden value that a cluster has.
static constexpr int64_t ofCluster = 256;
/// For 16 rows two launches are faster; the kernel takes 32.
static constexpr int64_t fewestRows = 17, mostRows = 32;

static bool isConstant(const Value *v) { return v && v->def() && v->def()->is(OpCode::Constant); }

Op *mlpHidden(StepBuilder &b, const Op &output) {
  Op *hidden = output.operand(0)->def();
  if (!b.pool().hopper || !output.is(OpCode::Linear) || !hidden || !hidden->is(OpCode::Linear) ||
      hidden->result()->uses().size() != 1 || !isConstant(hidden->operand(1)) ||
      !isConstant(output.operand(1)))
    return nullptr;
  const LinearShape first = linearShape(b, *hidden), second = linearShape(b, output);
  for (const LinearShape &s : {first, second})
    if (!s.isHalf() || s.y != Scalar::F16 || s.rows < fewestRows || s.rows > mostRows ||
        linearKind(s) != LinearKind::Rows)
      return nullptr;
  const Value *bias1 = hidden->operand(2), *bias2 = output.operand(2),
              *residual = output.operand(3);
  if (second.n != first.k || first.k % ofCluster != 0 || first.k > 1024 ||
      first.n % ofCluster != 0 || first.n > 16 * ofCluster || hidden->operand(3) || !residual ||
      isReadInPlace(residual) || residual->type.dtype != DType::F16 || !isConstant(bias1) ||
      !isConstant(bias2) || bias1->type.dtype != bias2->type.dtype ||
      output.stringAttr("activation") != "none" ||
      !persistent::activationNamed(hidden->stringAttr("activation")))
    return nullptr;
  const Op *norm = fusedNorm(b, *hidden);
  return norm && isFoldedNorm(*norm) ? hidden : nullptr;
}

bool isMlpHidden(StepBuilder &b, const Op &op) {
  return op.result()->uses().size() == 1 && op.result()->uses()[0].operand == 0 &&
         mlpHidden(b, *op.result()->uses()[0].op) == &op;
}

/// Powers of two f32[D] that a column of `output` is counted in: with norm(x), whose length is at
/// most sqrt(D), no hidden column is larger than sqrt(D) |w1| + |b1|, or 1, for any activation that
/// there is, so no part of a sum is larger than 2^29 of them.
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
  KernelWriter w(name, "templates/linear/mlp_cluster/mlp_cluster.cuh");
  w.type("P", c.p);
  w.constant("D", c.d);
  w.constant("Hidden", c.hidden);
  w.constant("Heads", c.heads);
  w.constant("HeadDim", c.headDim);
  std::string function;
  for (auto [activation, name, f] : persistent::activations)
    if (name == c.activation)
      function = activation == persistent::Activation::GeluTanh ? "geluTanhHalf" : f.str();
  w.member("template <int V> static __device__ __forceinline__ void activate(float (&v)[V]) {" +
           (function.empty() ? "" : " epilogue::" + function + "(v); ") + "}");
  w.cluster(8, 1);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(Scalar::F16, "w1");
  w.param("const float *", "sums1");
  w.constPointer(c.p, "b1");
  w.param("float", "epsilon");
  w.constPointer(Scalar::F16, "w2");
  w.param("const float *", "units");
  w.constPointer(c.p, "b2");
  w.constPointer(Scalar::F16, "residual");
  w.pointer(Scalar::F16, "y");
  w.param("u64 *", "words");
  w.param("int", "m");
  w.constPointer(Scalar::F16, "kv");
  w.param("const int *", "past");
  w.params("int", {"layer", "batch", "batchMax", "context"});
  const std::string t = "MlpCluster<" + w.config() + ">";
  KernelSource kernel = w.finish(
      mlpThreads, mlpSharedBytes(c), KernelWriter::sizesCheck(t, mlpThreads, mlpSharedBytes(c)),
      "tile::mlpCluster<" + w.config() +
          ">(x, w1, sums1, b1, epsilon, w2, units, b2, residual, y, words, m, "
          "StateAhead{kv, past, layer, batch, batchMax, context}, blockIdx.x, blockIdx.y, "
          "dynamicShared);",
      1);
  kernel.headers.push_back("templates/linear/parts/epilogue.cuh");
  return kernel;
}

/// Attention over a state in fp16: the first behind `op`, or any of the function.
static const Op *attention(const Op &op, bool behind) {
  bool counts = !behind;
  for (const auto &other : op.function()->ops()) {
    counts |= other.get() == &op;
    if (counts && other->is(OpCode::AppendAttention) &&
        other->operand(0)->type.dtype == DType::F16 && other->operand(2) &&
        other->operand(0)->type.shape[3] == Dim(other->intAttr("num_heads")))
      return other.get();
  }
  return nullptr;
}

/// Heads of attention, and elements of each.
static std::pair<int, int> headsOf(const Op &attention) {
  const int heads = attention.intAttr("num_heads");
  return {heads, int(lastDim(attention.result(1))) / heads};
}

/// The arguments of StateAhead, for attention of one query of each sequence that has the kernel's
/// heads. Launches without have the same kernel, so that layers and functions share it.
static void addStateAhead(StepBuilder &b, ArgList &args, const MlpClusterConfig &c,
                          const Op *next) {
  if (!next || headsOf(*next) != std::pair(c.heads, c.headDim) ||
      b.maximum(next->operand(1)->type.shape[1]) > 1) {
    args.set("kv", StepBuilder::null()).set("past", StepBuilder::null());
    for (const char *name : {"layer", "batch", "batchMax", "context"})
      args.i32(name, Dim(0));
    return;
  }
  Value *kv = next->operand(0);
  args.in("kv", kv)
      .in("past", next->operand(2))
      .i32("layer", next->intAttr("layer"))
      .i32("batch", next->operand(1)->type.shape[0])
      .i32("batchMax", kv->type.shape[2])
      .i32("context", kv->type.shape[4]);
}

llvm::Error launchMlp(StepBuilder &b, Op &output, Op &hidden) {
  const Op &norm = *hidden.operand(0)->def();
  Value *x = norm.operand(0), *w1 = hidden.operand(1), *b1 = hidden.operand(2),
        *w2 = output.operand(1), *residual = output.operand(3);
  const LinearShape s = linearShape(b, hidden);
  MlpClusterConfig c;
  c.d = s.k;
  c.hidden = s.n;
  c.p = scalarOf(b1->type.dtype);
  c.activation = hidden.stringAttr("activation");
  if (const Op *any = attention(output, false))
    std::tie(c.heads, c.headDim) = headsOf(*any);
  const Dim m = leading(x);
  ArgList list(b);
  addStateAhead(b, list, c, attention(output, true));
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
          .in("b2", output.operand(2))
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
  if (!c.activation.empty() && c.activation != "none")
    what += "+" + c.activation;
  b.launch(nodes, what + "+linear+bias+residual",
           mlpCluster(b.pool().nextKernelName("mlp_cluster"), c), *args,
           {rt::constantExpr(8), rt::constantExpr(c.hidden / ofCluster), one()},
           bytesOf(x) + bytesOf(w1) + bytesOf(w2) + bytesOf(residual) + bytesOf(output.result()),
           m * Dim(4 * int64_t(c.d) * c.hidden));
  return llvm::Error::success();
}

} // namespace gpt2c
