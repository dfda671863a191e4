// Products with weights: their norms, epilogues and launches.
#include "codegen/LinearCandidates.h"

#include "ir/ops/QuantizedProduct.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

static bool isOnes(const Value *v) {
  const Op *c = v->def();
  if (!c || !c->is(OpCode::Constant) || !c->constant.valid())
    return false;
  for (int64_t i = 0; i < c->constant.count(); ++i)
    if (c->constant.asDouble(i) != 1)
      return false;
  return true;
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

static bool isConstant(const Value *v) { return v->def() && v->def()->is(OpCode::Constant); }
/// Whether the sums of its weights, times gain and shift, are known.
static bool hasNormSums(const Op &product, const Op &norm) {
  return isConstant(product.operand(1)) && isConstant(norm.operand(1)) &&
         (product.is(OpCode::Linear) || isConstant(product.operand(WScale))) &&
         (norm.is(OpCode::RmsNorm) || !norm.operand(2) || isConstant(norm.operand(2)));
}

/// Whether linear_tma or linear_tma_persistent does.
static bool takesTma(const LinearShape &s) {
  const LinearKind kind = linearKind(s);
  return kind == LinearKind::TilesInt8Weights || (hasTma(s) && kind == LinearKind::Tiles);
}

bool isFoldedNorm(const Op &op) {
  return op.is(OpCode::LayerNorm) && isRowNorm(op) && !op.operand(2) && isOnes(op.operand(1));
}

/// Whether its rows are multiplied as they are, with int8 weights.
static bool takesInt8Weights(const Op &product) {
  return product.is(OpCode::QuantizedLinear) && product.operand(0)->type.dtype != DType::I8 &&
         !product.operand(XScale);
}

/// Whether the product can take the norm before it out of its sums.
static bool takesNormOut(StepBuilder &b, const Op &product) {
  const Op *norm = product.operand(0)->def();
  if (!b.pool().fuseNorm || !norm || !norm->is(OpCode::LayerNorm) || !isRowNorm(*norm) ||
      norm->operand(0)->type.dtype != DType::F16 || !product.operand(1)->type.isStatic() ||
      !isConstant(product.operand(1)))
    return false;
  if (product.is(OpCode::Linear))
    return isFoldedNorm(*norm) && takesTma(linearShape(b, product));
  return takesInt8Weights(product) && hasNormSums(product, *norm) &&
         linearKind(linearShape(b, product)) == LinearKind::TilesInt8Weights;
}

/// The type of the weights of the product that takes a norm of `v` out of its sums; null: none
/// does.
static const Type *normedWeights(StepBuilder &b, Value *v) {
  for (const Use &norm : v->uses())
    if (norm.operand == 0 && isNorm(*norm.op))
      for (const Use &product : norm.op->result()->uses())
        if (product.operand == 0 && takesNormOut(b, *product.op))
          return &product.op->operand(1)->type;
  return nullptr;
}

bool wantsStatistics(StepBuilder &b, Value *v) { return normedWeights(b, v) != nullptr; }

int64_t statisticsWidthOfPeers(StepBuilder &b, Value *v) {
  const Type *weights = normedWeights(b, v);

  for (const auto &op : v->function()->ops()) {
    if (!weights || !op->is(OpCode::Linear) || op->result()->type != v->type)
      continue;
    const Type *others = normedWeights(b, op->result());
    if (!others || *others != *weights)
      continue;
    const LinearShape s = linearShape(b, *op);
    if (!takesTma(s))
      continue;
    const LinearConfig c = linearCandidates(s, {.statistics = true}).front();
    if (auto *tma = std::get_if<LinearTmaConfig>(&c); tma && tma->statistics)
      return statisticsWidth(*tma);
  }
  return lastDim(v);
}

/// Whether a product that differs from `op` in its operands alone wants statistics of its result:
/// to leave some that nobody reads costs less than a kernel without them.
static bool twinWantsStatistics(StepBuilder &b, const Op &op) {
  auto sameTypes = [](const Value *a, const Value *v) {
    return !a || !v ? a == v : a->type == v->type;
  };
  return llvm::any_of(op.function()->ops(), [&](const auto &other) {
    return other->is(op.code()) && other->numOperands() == op.numOperands() &&
           llvm::all_of_zip(other->operands(), op.operands(), sameTypes) &&
           other->stringAttr("activation") == op.stringAttr("activation") &&
           wantsStatistics(b, other->result());
  });
}

Op *fusedNorm(StepBuilder &b, const Op &product) {
  if (!product.is(OpCode::Linear) &&
      !(takesInt8Weights(product) && hasWeightsKernel(linearShape(b, product))))
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
    return hasNormSums(product, *norm) ? norm : nullptr;
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(s);
    return c.rows <= 16 && skinnyRowBytes(c) <= 32 * 1024 ? norm : nullptr;
  }
  case LinearKind::Tiles:
  case LinearKind::TilesInt8Weights:
    return takesNormOut(b, product) && b.statistics(norm->operand(0)) ? norm : nullptr;
  case LinearKind::StreamTma:
    return nullptr;
  }
  return nullptr;
}

/// The value that a product adds to its rows.
static const Value *residualOf(const Op &op) {
  return op.is(OpCode::Linear)            ? op.operand(3)
         : op.is(OpCode::QuantizedLinear) ? op.operand(Residual)
                                          : nullptr;
}

bool isReadInPlace(const Value *v) {
  const Op *op = v->def();
  return op && op->is(OpCode::GatherLast) && hasKernelTypes(*op) &&
         op->operand(1)->type.dtype == DType::I32 && !v->uses().empty() &&
         llvm::all_of(v->uses(), [&](const Use &u) {
           return residualOf(*u.op) == v && llvm::count(u.op->operands(), v) == 1;
         });
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
    const std::string name = operandName();
    const bool inPlace = isReadInPlace(residual);
    call.epilogue.push_back({inPlace ? EpilogueStage::AddLastRows : EpilogueStage::AddMatrix,
                             scalarOf(residual->type.dtype)});
    if (inPlace) {
      const Op &gather = *residual->def();
      args.in(name, gather.operand(0))
          .in(name + "Length", gather.operand(1))
          .i32(name + "Seq", gather.operand(0)->type.shape[1]);
    } else {
      args.in(name, residual);
    }
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
    return rt::constantExpr(divideCeilSigned(s.n, columns));
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
  llvm::Error operator()(const LinearStreamTmaConfig &c) const {
    const int64_t columns = divideCeilSigned(s.n, c.bn);
    addLargest(c.best, columns);
    addMaps(c, s.k, s.k * scalarBytes(c.w) / 2);
    plan::ExprT tiles =
        rt::combineExpr(rt::ExprOp::Mul, ceilDivExpr(b, call.m, c.bm), rt::constantExpr(columns));
    return launch(
        linearStreamTma(name("linear_stream_tma"), c, call.epilogue),
        {rt::combineExpr(rt::ExprOp::Min, tiles, rt::constantExpr(processors)), one(), one()});
  }
  llvm::Error operator()(const LinearStreamConfig &c) const {
    addLargest(c.best, processors);
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
    addMaps(c, s.k, s.k * scalarBytes(c.w) / 2);
    if (c.persistent)
      call.args["backwards"] = b.backwards();
    if (takesResidualByMap(c, call.epilogue)) {
      const auto residual = llvm::count_if(call.epilogue, hasOperand) - 1;
      call.args["residualMap"] =
          b.tensorMap(call.args["e" + std::to_string(residual)], call.m, s.n, c.bm);
    }
    std::array<plan::ExprT, 3> grid = tiles(c, c.persistent);
    if (c.columnsFirst)
      std::swap(grid[0], grid[1]);
    return launch(linearTma(name("linear_tma"), c, call.epilogue), grid);
  }
  llvm::Error operator()(const LinearTf32Config &c) const {
    if (!c.wgmma)
      return launchTiles(b, op, call, c, linearTf32, "linear_tf32");
    addMaps(c, 2 * s.k, 2 * s.k);
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
  /// Where the largest elements of that many parts of each row are left; y is optional then.
  void addLargest(bool best, int64_t parts) const {
    if (!best)
      return;
    call.bytes = call.bytes - bytesOf(op.result(0));
    call.args["best"] = b.sharedScratch("linear-best-" + std::to_string(parts), s.rows * parts * 8);
    b.setLargest(op.result(0), {call.args["best"], int(parts)});
  }
  /// Maps count in halves: those of a row of x and of w.
  template <typename Config> void addMaps(const Config &c, int64_t ofX, int64_t ofW) const {
    call.args["xMap"] = b.tensorMap(call.args["x"], call.m, ofX, c.bm);
    call.args["wMap"] = b.tensorMap(call.args["w"], s.n, ofW, c.bn);
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
    if (kind == LinearKind::Tiles || kind == LinearKind::TilesInt8Weights) {
      const StepBuilder::RowStatistics &statistics = *b.statistics(norm->operand(0));
      duties.normParts = statistics.parts;
      duties.normWidth = statistics.width;
      call.args["xStatistics"] = b.read(statistics);
      call.args["rowSums"] = b.rowSums(op.operand(1));
    }
  }
  std::string key = choiceKey(call, op);
  if (takesTma(s) && (wantsStatistics(b, op.result(0)) || twinWantsStatistics(b, op))) {
    duties.statistics = true;
    key += " statistics";
  }
  duties.best = (kind == LinearKind::Stream || kind == LinearKind::StreamTma) &&
                hasGreedyChoice(op.result(0));
  const std::vector<LinearConfig> configs = linearCandidates(s, duties);
  if (configs.empty())
    return noKernel(op, "no kernel computes " + key);
  const LinearConfig c = b.choose(std::move(key), configs);
  if (norm) {
    const bool inSums = std::holds_alternative<LinearRowsConfig>(c) ||
                        std::holds_alternative<LinearClusterConfig>(c) ||
                        kind == LinearKind::TilesInt8Weights;
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
  if (isMlpHidden(b, op)) // launched with the second product
    return llvm::Error::success();
  if (Op *hidden = mlpHidden(b, op))
    return launchMlp(b, op, *hidden);
  ArgList args(b);
  Op *norm = fusedNorm(b, op);
  auto call = linearCall(b, op, args, norm ? norm->operand(0) : op.operand(0), op.operand(2),
                         op.operand(3));
  if (!call)
    return call.takeError();
  return launchLinear(b, op, std::move(*call), norm);
}

} // namespace gpt2c
