// Products with weights: which kernel computes one, and in which configuration.
#include "codegen/FusedLowerings.h"
#include "codegen/LinearTiles.h"

#include "ir/ops/QuantizedProduct.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

static int rowsOf(const LinearShape &s) {
  int rows = 8;
  while (rows < s.rows)
    rows *= 2;
  return rows;
}

static LinearStreamConfig streamConfig(const LinearShape &s) {
  LinearStreamConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.rows = rowsOf(s);
  // As many warps as end at about the same time.
  const int64_t tiles = (s.n + 15) / 16;
  auto turns = [&](int64_t warps) {
    return (tiles + warps * processors - 1) / (warps * processors) * warps;
  };
  for (int warps : {12, 16})
    if (turns(warps) <= turns(c.warps))
      c.warps = warps;
  return c;
}

/// Whether linear_rows computes it.
static bool hasRows(const LinearShape &s) {
  return s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.k > 0 && s.k % 8 == 0 &&
         s.wGroup % 32 == 0 && s.rows <= 64;
}

/// Whether linear_cluster computes it.
static bool hasCluster(const LinearShape &s) {
  return s.hopper && s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.wGroup == 0 &&
         s.k > 0 && s.k % 8 == 0;
}

static LinearStreamWgmmaConfig streamWgmmaConfig(const LinearShape &s) {
  LinearStreamWgmmaConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.rows = rowsOf(s);
  c.best = true; // for its shared memory
  const int64_t loads = s.k / (s.w == Scalar::I8 ? 64 : 32);
  c.depth = 0;
  for (int depth : {2, 3, 4})
    if (loads % depth == 0)
      c.depth = depth;
  return c;
}

/// The kernel families of linear by the number of rows, fastest first where they overlap.
enum class LinearKind { RowDot, Cluster, Rows, Stream, StreamWgmma, Skinny, Tiles };
static LinearKind linearKind(const LinearShape &s) {
  const bool wide = s.n >= 16384; // a vocabulary: as many tiles as anyone can use
  if (!wide && hasCluster(s) && s.w == Scalar::I8 && s.rows > 32 && s.rows <= 128 &&
      !clusterConfigs(s.rows, s.n, s.k).empty())
    return LinearKind::Cluster;
  if (!wide && hasRows(s) && (s.rows > 1 || s.w == Scalar::I8))
    return LinearKind::Rows;
  if (wide && hasCluster(s) && s.rows > 32 && s.rows <= 128 &&
      s.k % (s.w == Scalar::I8 ? 64 : 32) == 0 && streamWgmmaConfig(s).depth > 0 &&
      streamSharedBytes(streamWgmmaConfig(s)) <= s.sharedLimit)
    return LinearKind::StreamWgmma;
  if (wide && s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.wGroup == 0 &&
      s.k > 0 && s.k % (s.w == Scalar::I8 ? 64 : 32) == 0 && s.rows <= 64 &&
      streamSharedBytes(streamConfig(s)) <= s.sharedLimit)
    return LinearKind::Stream;
  if (s.w == Scalar::I8 && s.x == Scalar::F16 && s.k > 0 && s.k % 16 == 0 &&
      s.rows <= (s.xGroup >= 0 ? 16 : 64) && s.wGroup % 64 == 0)
    return LinearKind::Skinny;
  if (s.k > 0 && s.isHalf() && s.k % 8 == 0 && s.rows > 1 && s.rows <= (wide ? 16 : 64))
    return LinearKind::Skinny;
  return s.k > 0 && s.rows <= (s.tf32 && wide ? 4 : 8) ? LinearKind::RowDot : LinearKind::Tiles;
}

static bool isOnes(const Value *v) {
  const Op *c = v->def();
  if (!c || !c->is(OpCode::Constant) || !c->constant.valid())
    return false;
  for (int64_t i = 0; i < c->constant.count(); ++i)
    if (c->constant.asDouble(i) != 1)
      return false;
  return true;
}

static LinearRowDotConfig rowDotConfig(const LinearShape &s) {
  LinearRowDotConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.k = s.k;
  for (c.rows = 1; c.rows < s.rows;)
    c.rows *= 2;
  if (s.isHalf() && c.rows == 1) { // a column a warp, by the tuner
    c.cols = 1;
    return c;
  }
  // Warps share columns until there are two blocks for each multiprocessor, as long as each lane
  // still has two loads in flight.
  int64_t vector = 16 / scalarBytes(c.w);
  while (c.kSplit < c.warps && s.n / rowDotColumns(c) < 2 * processors &&
         c.k >= 64 * vector * c.kSplit)
    c.kSplit *= 2;
  return c;
}

static LinearSkinnyConfig skinnyConfig(const LinearShape &s) {
  LinearSkinnyConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.wGroup = s.wGroup;
  c.xGroup = s.xGroup;
  c.rows = rowsOf(s);
  if (c.w == Scalar::I8) {
    // A chunk of 64 k for each warp at least; fewer warps where each has many rows to load.
    const bool narrow = s.n < 16 * processors;
    int warps = s.n >= 16384 ? (c.rows <= 16 ? 4 : 6)
                : c.k > 1024 ? (c.rows <= 16   ? 16
                                : c.rows == 32 ? 12
                                               : 8)
                             : (c.rows <= 16 || (narrow && c.rows == 32) ? 12 : 6);
    c.kSplit = c.warps = std::min<int64_t>(warps, (c.k + 63) / 64);
    return c;
  }
  // With few blocks, more warps a block, unless each has many loads in flight already.
  if (s.n < 16 * processors && c.k <= 1024 && c.rows <= 32)
    c.kSplit = c.warps = 16;
  return c;
}

static LinearRowsConfig rowsConfig(const LinearShape &s, bool norm) {
  LinearRowsConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.wGroup = s.wGroup;
  c.pairs = s.n % 2 == 0;
  c.rows = rowsOf(s);
  // Every block reads its part of all rows: more columns a block where there are more than enough.
  if (s.n >= (c.rows >= 32 ? 16 : 20) * processors)
    c.groups = 2;
  while (s.hopper && !norm && c.splits < 4 && s.k >= 1536 * c.splits)
    c.splits *= 2;
  return c;
}

static LinearClusterConfig clusterConfig(const LinearShape &s) {
  LinearClusterConfig c = bestClusterConfig(s.rows, s.n, s.k);
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.pairs = s.n % 2 == 0;
  return c;
}

LinearShape linearShape(StepBuilder &b, const Op &op) {
  const Value *x = op.operand(0), *w = op.operand(1);
  LinearShape s{scalarOf(x->type.dtype),
                scalarOf(w->type.dtype),
                scalarOf(op.result(0)->type.dtype),
                *w->type.shape[0].constant(),
                *w->type.shape[1].constant(),
                b.maximum(leading(x))};
  s.tf32 = b.pool().tf32 && s.x == Scalar::F32 && s.w == Scalar::F32 && s.k > 0 && s.k % 4 == 0;
  s.hopper = b.pool().hopper;
  s.sharedLimit = b.pool().sharedLimit;
  if (!op.is(OpCode::Linear) && lastDim(op.operand(WScale)) > 1)
    s.wGroup = s.k / lastDim(op.operand(WScale));
  if (!op.is(OpCode::Linear))
    s.xGroup = op.intAttr("x_group") == s.k ? 0 : op.intAttr("x_group");
  return s;
}

bool hasWeightsKernel(const LinearShape &s) {
  const LinearKind kind = linearKind(s);
  if (kind == LinearKind::Cluster || kind == LinearKind::Rows || kind == LinearKind::Stream ||
      kind == LinearKind::StreamWgmma)
    return true;
  const bool skinny = kind == LinearKind::Skinny;
  if (s.xGroup >= 0)
    return skinny && (s.xGroup == 0 || s.xGroup == 64 || s.xGroup == 128 || s.xGroup == 256) &&
           skinnyRowBytes(skinnyConfig(s)) <= 64 * 1024;
  if (skinny)
    return true;
  return s.wGroup == 0 && (linearKind(s) == LinearKind::RowDot || s.x == Scalar::F32);
}

static bool isConstant(const Value *v) { return v->def() && v->def()->is(OpCode::Constant); }
/// Whether the sums of its weights, times gain and shift, are known.
static bool hasNormSums(const Op &product, const Op &norm) {
  return isConstant(product.operand(1)) && isConstant(norm.operand(1)) &&
         (product.is(OpCode::Linear) || isConstant(product.operand(WScale))) &&
         (norm.is(OpCode::RmsNorm) || !norm.operand(2) || isConstant(norm.operand(2)));
}

/// Whether linear_tma or linear_tma_persistent can compute it.
static bool hasTma(const LinearShape &s) {
  return s.hopper && s.isHalf() && s.k > 0 && s.k % 8 == 0;
}
/// Whether one of them does.
static bool takesTma(const LinearShape &s) {
  return hasTma(s) && linearKind(s) == LinearKind::Tiles;
}

/// A layer norm without gain and shift.
static bool isFoldedNorm(const Op &op) {
  return op.is(OpCode::LayerNorm) && isRowNorm(op) && !op.operand(2) && isOnes(op.operand(1));
}

/// Whether the product can take the norm before it out of its sums.
static bool takesNormOut(StepBuilder &b, const Op &product) {
  const Op *norm = product.operand(0)->def();
  return b.pool().fuseNorm && product.is(OpCode::Linear) && norm && isFoldedNorm(*norm) &&
         norm->operand(0)->type.dtype == DType::F16 && product.operand(1)->type.isStatic() &&
         takesTma(linearShape(b, product)) && isConstant(product.operand(1));
}

bool wantsStatistics(StepBuilder &b, Value *v) {
  return llvm::any_of(v->uses(), [&](const Use &u) {
    return u.operand == 0 && isNorm(*u.op) &&
           llvm::any_of(u.op->result()->uses(), [&](const Use &product) {
             return product.operand == 0 && takesNormOut(b, *product.op);
           });
  });
}

Op *fusedNorm(StepBuilder &b, const Op &product) {
  const bool int8 = product.is(OpCode::QuantizedLinear) &&
                    product.operand(0)->type.dtype != DType::I8 && !product.operand(XScale) &&
                    hasWeightsKernel(linearShape(b, product));
  if (!product.is(OpCode::Linear) && !int8)
    return nullptr;
  Op *norm = product.operand(0)->def();
  if (!b.pool().fuseNorm || !norm || !isNorm(*norm) || !isRowNorm(*norm) ||
      norm->operand(0)->type.dtype != norm->result()->type.dtype)
    return nullptr;
  const LinearShape s = linearShape(b, product);
  switch (linearKind(s)) {
  case LinearKind::RowDot:
  case LinearKind::Stream:
    return norm;
  case LinearKind::Rows:
  case LinearKind::Cluster:
  case LinearKind::StreamWgmma:
    return hasNormSums(product, *norm) ? norm : nullptr;
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(s);
    return c.rows <= 16 && skinnyRowBytes(c) <= 32 * 1024 ? norm : nullptr;
  }
  case LinearKind::Tiles:
    return takesNormOut(b, product) && b.statistics(norm->operand(0)) ? norm : nullptr;
  }
  return nullptr;
}

/// The largest tile that still gives every multiprocessor about one; where even small tiles do not,
/// K is split.
static LinearWgmmaConfig wgmmaConfig(const LinearShape &s) {
  LinearWgmmaConfig c;
  c.y = s.y;
  const int64_t n = s.n, k = s.k, rows = s.rows;
  auto tiles = [&](int64_t bm, int64_t bn) { return (rows + bm - 1) / bm * ((n + bn - 1) / bn); };
  if (tiles(128, 128) >= processors) {
    // One wave of 128 x 192 is shorter than one and a half of two 128 x 128 on each multiprocessor.
    LinearWgmmaConfig wide = {c.y, 128, 192, 3, 1};
    if (tiles(128, 192) <= processors && tiles(128, 128) > processors &&
        wgmmaSharedBytes(wide) <= s.sharedLimit)
      return wide;
    return c;
  }
  // More blocks, each with as many slabs on their way as shared memory holds twice on a
  // multiprocessor.
  if (tiles(64, 128) >= processors)
    return {c.y, 64, 128, 4, 1};
  c.bm = c.bn = 64;
  c.stages = 6;
  while (c.splitK < 4 && tiles(c.bm, c.bn) * c.splitK * 2 <= processors && k >= 1536 * c.splitK)
    c.splitK *= 2;
  return c;
}

static LinearSimtConfig simtConfig(const LinearShape &s) {
  LinearSimtConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.bk = 16;
  const int64_t n = s.n, k = s.k, rows = s.rows;
  auto tiles = [&](int64_t bm, int64_t bn) { return (rows + bm - 1) / bm * ((n + bn - 1) / bn); };
  if (tiles(128, 64) >= 2 * processors) {
    c.bm = 128;
    c.bn = 64;
  } else {
    c.bm = rows <= 32 ? 32 : 64;
    c.bn = 64;
    c.tm = c.bm == 64 && tiles(64, 64) >= processors ? 8 : 4;
    c.tn = 4;
    while (c.splitK < 8 && tiles(c.bm, c.bn) < processors &&
           c.splitK * tiles(c.bm, c.bn) < 2 * processors && k >= 384 * c.splitK &&
           c.splitK * rows <= 4096)
      c.splitK *= 2;
  }
  return c;
}

static std::vector<LinearTmaConfig> tmaCandidates(const LinearShape &s,
                                                  const LinearDuties &duties) {
  LinearTmaConfig c = bestTmaConfig(s.rows, s.n, s.k, duties.statistics);
  c.y = s.y;
  c.n = s.n;
  c.k = s.k;
  c.normParts = duties.normParts;
  c.normWidth = duties.normWidth;
  c.statistics = duties.statistics && s.n % statisticsWidth(c) == 0;
  return candidates(c, s.rows, s.n, s.k);
}

std::vector<LinearConfig> linearCandidates(const LinearShape &s, const LinearDuties &duties) {
  const bool norm = duties.norm != FusedNorm::None;
  std::vector<LinearConfig> list;
  auto add = [&](const auto &configs) { list.insert(list.end(), configs.begin(), configs.end()); };
  LinearRowsConfig rows = rowsConfig(s, norm);
  rows.norm = duties.norm;
  rows.p = duties.gain;
  auto addTma = [&] {
    auto tma = tmaCandidates(s, duties);
    tma.resize(std::min<size_t>(tma.size(), 3));
    add(tma);
  };
  switch (linearKind(s)) {
  case LinearKind::RowDot: {
    LinearRowDotConfig c = rowDotConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    add(candidates(c, s.n));
    if (hasRows(s) && (!norm || duties.normSums))
      list.emplace_back(rows);
    return list;
  }
  case LinearKind::Rows:
    add(candidates(rows, s.hopper));
    if (!norm && s.rows > 16 && hasTma(s))
      addTma();
    return list;
  case LinearKind::Cluster: {
    LinearClusterConfig c = clusterConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    c.statistics = duties.statistics;
    add(candidates(c, s.rows, s.n));
    if (hasRows(s) && !duties.statistics)
      list.emplace_back(rows);
    if (!norm && hasTma(s))
      addTma();
    return list;
  }
  case LinearKind::StreamWgmma: {
    LinearStreamWgmmaConfig c = streamWgmmaConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    c.best = duties.best;
    add(candidates(c));
    return list;
  }
  case LinearKind::Stream: {
    LinearStreamConfig c = streamConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    c.best = duties.best;
    add(candidates(c));
    return list;
  }
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    add(candidates(c));
    return list;
  }
  case LinearKind::Tiles:
    break;
  }
  if (hasTma(s)) {
    add(tmaCandidates(s, duties));
    if (duties.normParts == 0 && !duties.statistics)
      list.emplace_back(wgmmaConfig(s));
  } else if (s.isHalf() && s.k % 8 == 0) {
    add(candidates(wgmmaConfig(s), s.rows, s.n, s.k, s.sharedLimit));
  } else if (s.isHalf()) {
    list.emplace_back(LinearMmaConfig{s.y, 64, 128, 32, 2, 4, 4, 1});
  } else if (s.tf32) {
    LinearTf32Config c = bestTf32Config(s.rows, s.n, s.k, s.sharedLimit, s.hopper);
    c.y = s.y;
    add(candidates(c, s.rows, s.n, s.k, s.sharedLimit, s.hopper));
  } else {
    add(candidates(simtConfig(s), s.rows, s.n, s.k));
  }
  return list;
}

llvm::Expected<LinearCall> linearCall(StepBuilder &b, Op &op, ArgList &args, Value *x, Value *bias,
                                      Value *residual, Epilogue first) {
  Value *w = op.operand(1), *y = op.result(0);
  LinearCall call;
  call.shape = linearShape(b, op);
  call.epilogue = std::move(first);
  call.what = op.info().mnemonic;
  size_t operands = llvm::count_if(call.epilogue, hasOperand);
  auto operandName = [&] { return "e" + std::to_string(operands++); };
  if (bias) {
    call.epilogue.push_back({EpilogueStage::AddBias, scalarOf(bias->type.dtype)});
    args.in(operandName(), bias);
    call.what += "+bias";
  }
  const std::string &activation = op.stringAttr("activation");
  static const std::pair<const char *, EpilogueStage::Kind> activations[] = {
      {"gelu_tanh", EpilogueStage::GeluTanh},
      {"gelu_erf", EpilogueStage::GeluErf},
      {"relu", EpilogueStage::Relu},
      {"sigmoid", EpilogueStage::Sigmoid},
      {"tanh", EpilogueStage::Tanh}};
  if (activation != "none") {
    auto it = llvm::find_if(activations, [&](auto &a) { return activation == a.first; });
    if (it == std::end(activations))
      return makeError(ExitCode::Unsupported,
                       op.describe() + ": no kernel has the activation " + activation);
    call.epilogue.push_back({it->second});
    call.what += "+" + activation;
  }
  if (residual) {
    call.epilogue.push_back({EpilogueStage::AddMatrix, scalarOf(residual->type.dtype)});
    args.in(operandName(), residual);
    call.what += "+residual";
  }
  const int64_t n = call.shape.n, k = call.shape.k;
  call.m = leading(x);
  args.in("x", x).in("w", w).out("y", y).i32("m", call.m).i32("n", n).i32("k", k);
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  call.args = std::move(*taken);
  call.bytes = bytesOf(x) + bytesOf(w) + bytesOf(y);
  call.flops = call.m * Dim(2 * n * k);
  for (Value *v : {bias, residual})
    if (v)
      call.bytes = call.bytes + bytesOf(v);
  return call;
}

bool keepsRows(const Op &op) {
  if (!op.is(OpCode::Reshape) && !op.is(OpCode::Cast))
    return false;
  const Type &from = op.operand(0)->type, &to = op.result(0)->type;
  return from.rank() > 0 && to.rank() > 0 && from.shape.back() == to.shape.back() &&
         (from.dtype == to.dtype || (from.dtype == DType::F16 && to.dtype == DType::F32));
}

/// Whether the index of the largest element of each row is asked for.
static bool hasGreedyChoice(const Value *v) {
  return llvm::any_of(v->uses(), [](const Use &u) {
    if (keepsRows(*u.op))
      return hasGreedyChoice(u.op->result(0));
    return u.op->is(OpCode::ArgMax);
  });
}

//===-- launches ----------------------------------------------------------------------------===//

namespace {
/// Launches a product with the kernel that a configuration is of.
struct Launcher {
  StepBuilder &b;
  Op &op;
  LinearCall &call;
  const LinearShape &s = call.shape;

  std::string name(llvm::StringRef stem) const { return b.pool().nextKernelName(stem); }
  plan::ExprT blocks(int64_t columns) const {
    return rt::constantExpr((s.n + columns - 1) / columns);
  }
  llvm::Error launch(KernelSource kernel, const std::array<plan::ExprT, 3> &grid) const {
    return b.launch(op, call.what, std::move(kernel), call.args, grid, call.bytes, call.flops);
  }

  llvm::Error operator()(const LinearRowDotConfig &c) const {
    return launch(linearRowDot(name("linear_rowdot"), c, call.epilogue),
                  {blocks(rowDotColumns(c)), one(), one()});
  }
  llvm::Error operator()(const LinearRowsConfig &c) const {
    return launch(linearRows(name("linear_rows"), c, call.epilogue),
                  {rt::constantExpr(c.splits), blocks(rowsColumns(c)), one()});
  }
  llvm::Error operator()(const LinearClusterConfig &c) const {
    halveGelu();
    if (c.statistics)
      call.args["yStatistics"] = b.addStatistics(op.result(0), call.m, s.n / 64, 64);
    return launch(
        linearCluster(name("linear_cluster"), c, call.epilogue),
        {rt::constantExpr(c.splits), blocks(clusterColumns(c)), ceilDivExpr(b, call.m, c.rows)});
  }
  llvm::Error operator()(const LinearStreamWgmmaConfig &c) const {
    addLargest(c.best);
    return launch(linearStreamWgmma(name("linear_stream_wgmma"), c, call.epilogue),
                  {rt::constantExpr(processors), one(), one()});
  }
  llvm::Error operator()(const LinearStreamConfig &c) const {
    addLargest(c.best);
    return launch(linearStream(name("linear_stream"), c, call.epilogue),
                  {rt::constantExpr(processors), one(), one()});
  }
  llvm::Error operator()(const LinearSkinnyConfig &c) const {
    return launch(linearSkinny(name("linear_skinny"), c, call.epilogue),
                  {blocks(skinnyColumns(c)), one(), one()});
  }
  llvm::Error operator()(const LinearTmaConfig &c) const {
    halveGelu();
    if (c.statistics)
      call.args["yStatistics"] =
          b.addStatistics(op.result(0), call.m, s.n / statisticsWidth(c), statisticsWidth(c));
    addMaps(c, s.k);
    return launch(linearTma(name("linear_tma"), c, call.epilogue), tiles(c, c.persistent));
  }
  llvm::Error operator()(const LinearTf32Config &c) const {
    if (!c.wgmma)
      return launchTiles(b, op, call, c, linearTf32, "linear_tf32");
    addMaps(c, 2 * s.k); // a float is two halves to a tensor map
    return launch(linearTf32(name("linear_tf32_wgmma"), c, call.epilogue), tiles(c, false));
  }
  llvm::Error operator()(const LinearWgmmaConfig &c) const {
    return launchTiles(b, op, call, c, linearWgmma, "linear_wgmma");
  }
  llvm::Error operator()(const LinearMmaConfig &c) const {
    return launchTiles(b, op, call, c, linearMma, "linear_mma");
  }
  llvm::Error operator()(const LinearSimtConfig &c) const {
    return launchTiles(b, op, call, c, linearSimt, "linear_simt");
  }

private:
  /// GELU as exact as results in fp16 need it.
  void halveGelu() const {
    if (s.y == Scalar::F16)
      for (EpilogueStage &stage : call.epilogue)
        if (stage.kind == EpilogueStage::GeluTanh)
          stage.kind = EpilogueStage::GeluTanhHalf;
  }
  /// Where a block leaves the largest element of each row.
  void addLargest(bool best) const {
    if (!best)
      return;
    call.args["best"] = b.sharedScratch("linear-best", s.rows * processors * 8);
    b.setLargest(op.result(0), {call.args["best"], int(processors)});
  }
  template <typename Config> void addMaps(const Config &c, int64_t halves) const {
    call.args["xMap"] = b.tensorMap(call.args["x"], call.m, halves, c.bm);
    call.args["wMap"] = b.tensorMap(call.args["w"], s.n, halves, c.bn);
  }
  template <typename Config>
  std::array<plan::ExprT, 3> tiles(const Config &c, bool persistent) const {
    return tileGrid(b, call, c, persistent);
  }
};
} // namespace

std::string choiceKey(const LinearCall &call, const Op &op) {
  const LinearShape &s = call.shape;
  std::string key =
      llvm::formatv("{0} rows={1} n={2} k={3} {4} x {5}", call.what, s.rows, s.n, s.k,
                    dtypeName(op.operand(0)->type.dtype), dtypeName(op.operand(1)->type.dtype));
  if (s.xGroup > 0)
    key += " x_group=" + std::to_string(s.xGroup);
  if (s.wGroup > 0)
    key += " w_group=" + std::to_string(s.wGroup);
  return key;
}

llvm::Error launchLinear(StepBuilder &b, Op &op, LinearCall call, Op *norm) {
  const LinearShape &s = call.shape;
  const LinearKind kind = linearKind(s);
  LinearDuties duties;
  if (norm) {
    duties.norm = norm->is(OpCode::RmsNorm) ? FusedNorm::Rms : FusedNorm::Layer;
    duties.gain = scalarOf(norm->operand(1)->type.dtype);
    duties.normSums = hasNormSums(op, *norm);
    call.what = (norm->info().mnemonic + llvm::Twine("+") + call.what).str();
    if (kind == LinearKind::Tiles) {
      const StepBuilder::RowStatistics &statistics = *b.statistics(norm->operand(0));
      duties.normParts = statistics.parts;
      duties.normWidth = statistics.width;
      call.args["xStatistics"] = b.read(statistics);
      call.args["rowSums"] = b.rowSums(op.operand(1));
    }
  }
  std::string key = choiceKey(call, op);
  if ((takesTma(s) || (kind == LinearKind::Cluster && s.n % 64 == 0)) &&
      wantsStatistics(b, op.result(0))) {
    duties.statistics = true;
    key += " statistics";
  }
  duties.best = (kind == LinearKind::Stream || kind == LinearKind::StreamWgmma) &&
                hasGreedyChoice(op.result(0));
  const LinearConfig c = b.choose(std::move(key), linearCandidates(s, duties));
  if (norm) {
    const bool inSums = std::holds_alternative<LinearRowsConfig>(c) ||
                        std::holds_alternative<LinearClusterConfig>(c) ||
                        std::holds_alternative<LinearStreamWgmmaConfig>(c);
    // What fold-norms leaves behind.
    const bool ones = inSums && isOnes(norm->operand(1));
    const Value *shift = norm->is(OpCode::RmsNorm) ? nullptr : norm->operand(2);
    auto args = ArgList(b)
                    .in("gain", ones ? nullptr : norm->operand(1))
                    .in("shift", norm->operand(2))
                    .set("epsilon", StepBuilder::f32(norm->floatAttr("epsilon")))
                    .take();
    if (!args)
      return args.takeError();
    for (auto &entry : *args)
      call.args[entry.first()] = entry.second;
    if (inSums) {
      // One scale for a column is a matter of the epilogue.
      const Value *w = op.operand(1), *scales = s.wGroup > 0 ? op.operand(WScale) : nullptr;
      call.args["rowSums"] = b.rowSums(w, ones ? nullptr : norm->operand(1), scales);
      call.args["shiftSums"] = shift ? b.rowSums(w, shift, scales) : StepBuilder::null();
    }
  }
  return std::visit(Launcher{b, op, call}, c);
}

llvm::Error lowerLinear(StepBuilder &b, Op &op) {
  if (!hasKernelTypes(op))
    return noKernel(op, "products with weights are in f32 or f16");
  if (!op.operand(1)->type.isStatic())
    return noKernel(op, "the size of its weights is not constant");
  ArgList args(b);
  Op *norm = fusedNorm(b, op);
  auto call = linearCall(b, op, args, norm ? norm->operand(0) : op.operand(0), op.operand(2),
                         op.operand(3));
  if (!call)
    return call.takeError();
  return launchLinear(b, op, std::move(*call), norm);
}

} // namespace gpt2c
