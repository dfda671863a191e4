// How each op of the fused form becomes a launch: template, configuration, arguments, grid.
#include "codegen/GenericLowerings.h"

#include "ir/Error.h"
#include "runtime/Expr.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static plan::ExprT ceilDivExpr(StepBuilder &b, const Dim &d, int64_t by) {
  return rt::combineExpr(rt::ExprOp::CeilDiv, b.expr(d), rt::constantExpr(by));
}
static plan::ExprT one() { return rt::constantExpr(1); }

static Dim leading(const Value *v) {
  return elementCount(llvm::ArrayRef(v->type.shape).drop_back());
}
static int64_t lastDim(const Value *v) { return *v->type.shape.back().constant(); }
static Dim bytesOf(const Value *v) {
  return elementCount(v->type.shape) * Dim(byteSize(v->type.dtype));
}

/// Whether all floating-point operands and results are stored as the fused kernels store them.
static bool hasKernelTypes(const Op &op) {
  auto known = [](const Value *v) {
    return !v || !isFloat(v->type.dtype) || v->type.dtype == DType::F32 ||
           v->type.dtype == DType::F16;
  };
  return llvm::all_of(op.operands(), known) && llvm::all_of(op.results(), known);
}
static bool isI32(const Value *v) { return !v || v->type.dtype == DType::I32; }

static bool isNorm(const Op &op) { return op.is(OpCode::LayerNorm) || op.is(OpCode::RmsNorm); }

/// A norm over the last axis with one gain and bias per element.
static bool isRowNorm(const Op &op) {
  const Type &x = op.operand(0)->type, &gain = op.operand(1)->type;
  bool lastAxis = op.is(OpCode::RmsNorm) || op.intAttr("axis") == -1 ||
                  op.intAttr("axis") == int64_t(x.rank()) - 1;
  bool vectors = gain.rank() == 1 && gain.shape[0] == x.shape.back() &&
                 (!op.operand(2) || op.operand(2)->type == gain);
  return lastAxis && vectors && x.shape.back().isConstant() && hasKernelTypes(op);
}

/// Arguments by kernel parameter name; the first error wins.
class ArgList {
public:
  explicit ArgList(StepBuilder &b) : b_(b) {}
  ArgList &in(llvm::StringRef name, Value *v) { return add(name, b_.read(v)); }
  ArgList &out(llvm::StringRef name, Value *v) { return add(name, b_.write(v)); }
  ArgList &i32(llvm::StringRef name, const Dim &d) { return add(name, b_.i32(d)); }
  ArgList &set(llvm::StringRef name, plan::ArgT a) { return add(name, std::move(a)); }
  llvm::Expected<StepBuilder::Args> take() {
    if (error_)
      return std::move(error_);
    llvm::consumeError(std::move(error_));
    return std::move(args_);
  }

private:
  ArgList &add(llvm::StringRef name, llvm::Expected<plan::ArgT> a) {
    if (a)
      args_[name] = std::move(*a);
    else
      error_ = llvm::joinErrors(std::move(error_), a.takeError());
    return *this;
  }
  StepBuilder &b_;
  StepBuilder::Args args_;
  llvm::Error error_ = llvm::Error::success();
};

//===-- linear
//------------------------------------------------------------------------------------===//

/// The multiprocessors that a grid should fill.
constexpr int64_t processors = 132;

static bool isHalf(const Op &linear) {
  return linear.operand(0)->type.dtype == DType::F16 && linear.operand(1)->type.dtype == DType::F16;
}

/// The kernel families of linear by the number of rows, fastest first where they overlap.
enum class LinearKind { RowDot, Skinny, Tiles };
static LinearKind linearKind(const Op &op, int64_t rows) {
  int64_t n = lastDim(op.result()), k = lastDim(op.operand(0));
  bool wide = n >= 16384; // a vocabulary: as many tiles as anyone can use
  if (k > 0 && isHalf(op) && k % 8 == 0 && rows > 1 && rows <= (wide ? 16 : 64))
    return LinearKind::Skinny;
  return k > 0 && rows <= 8 ? LinearKind::RowDot : LinearKind::Tiles;
}

static LinearRowDotConfig rowDotConfig(const Op &op, int64_t rows) {
  LinearRowDotConfig c;
  c.x = scalarOf(op.operand(0)->type.dtype);
  c.w = scalarOf(op.operand(1)->type.dtype);
  c.y = scalarOf(op.result()->type.dtype);
  c.k = lastDim(op.operand(0));
  for (c.rows = 1; c.rows < rows;)
    c.rows *= 2;
  // Warps share columns until there are two blocks for each multiprocessor, as long as each lane
  // still has two loads in flight.
  int64_t n = lastDim(op.result()), vector = 16 / scalarBytes(c.w);
  while (c.kSplit < c.warps && n / rowDotColumns(c) < 2 * processors &&
         c.k >= 64 * vector * c.kSplit)
    c.kSplit *= 2;
  return c;
}

static LinearSkinnyConfig skinnyConfig(const Op &op, int64_t rows) {
  LinearSkinnyConfig c;
  c.y = scalarOf(op.result()->type.dtype);
  c.k = lastDim(op.operand(0));
  for (c.rows = 8; c.rows < rows;)
    c.rows *= 2;
  // With few blocks, more warps a block, unless each has many loads in flight already.
  if (lastDim(op.result()) < 16 * processors && c.k <= 1024 && c.rows <= 32)
    c.kSplit = c.warps = 16;
  return c;
}

/// The norm that a linear with few rows computes itself while its weights are on their way; null
/// when there is none.
static Op *fusedNorm(StepBuilder &b, const Op &linear) {
  Op *norm = linear.operand(0)->def();
  if (!norm || !isNorm(*norm) || !isRowNorm(*norm) ||
      norm->operand(0)->type.dtype != norm->result()->type.dtype)
    return nullptr;
  int64_t rows = b.maximum(leading(linear.operand(0)));
  switch (linearKind(linear, rows)) {
  case LinearKind::RowDot:
    return norm;
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(linear, rows);
    return c.rows <= 16 && skinnyRowBytes(c.rows, c.k) <= 32 * 1024 ? norm : nullptr;
  }
  case LinearKind::Tiles:
    return nullptr;
  }
  return nullptr;
}

/// The largest tile that still gives every multiprocessor about one; where even small tiles do not,
/// K is split.
static LinearWgmmaConfig wgmmaConfig(const Op &op, int64_t rows, unsigned sharedLimit) {
  LinearWgmmaConfig c;
  c.y = scalarOf(op.result()->type.dtype);
  int64_t n = lastDim(op.result()), k = lastDim(op.operand(0));
  auto tiles = [&](int64_t bm, int64_t bn) { return (rows + bm - 1) / bm * ((n + bn - 1) / bn); };
  if (tiles(128, 128) >= processors) {
    // One wave of 128 x 192 is shorter than one and a half of two 128 x 128 on each multiprocessor.
    LinearWgmmaConfig wide = {c.y, 128, 192, 3, 1};
    if (tiles(128, 192) <= processors && tiles(128, 128) > processors &&
        wgmmaSharedBytes(wide) <= sharedLimit)
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

static LinearSimtConfig simtConfig(const Op &op, int64_t rows) {
  LinearSimtConfig c;
  c.x = scalarOf(op.operand(0)->type.dtype);
  c.w = scalarOf(op.operand(1)->type.dtype);
  c.y = scalarOf(op.result()->type.dtype);
  c.bk = 16;
  int64_t n = lastDim(op.result()), k = lastDim(op.operand(0));
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

static llvm::Error lowerLinear(StepBuilder &b, Op &op) {
  Value *x = op.operand(0), *w = op.operand(1), *bias = op.operand(2), *residual = op.operand(3),
        *y = op.result();
  if (!hasKernelTypes(op))
    return noKernel(op, "products with weights are in f32 or f16");
  if (!w->type.isStatic())
    return noKernel(op, "the size of its weights is not constant");
  Epilogue epilogue;
  std::string what = "linear";
  ArgList args(b);
  Op *norm = fusedNorm(b, op);
  if (norm) {
    what = (norm->info().mnemonic + "+linear").str();
    x = norm->operand(0);
    args.in("gain", norm->operand(1)).in("shift", norm->operand(2));
    args.set("epsilon", StepBuilder::f32(norm->floatAttr("epsilon")));
  }
  auto operandName = [n = 0]() mutable { return "e" + std::to_string(n++); };
  if (bias) {
    epilogue.push_back({EpilogueStage::AddBias, scalarOf(bias->type.dtype)});
    args.in(operandName(), bias);
    what += "+bias";
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
    epilogue.push_back({it->second});
    what += "+" + activation;
  }
  if (residual) {
    epilogue.push_back({EpilogueStage::AddMatrix, scalarOf(residual->type.dtype)});
    args.in(operandName(), residual);
    what += "+residual";
  }
  Dim m = leading(x);
  int64_t n = lastDim(y), k = lastDim(x), rows = b.maximum(m);
  args.in("x", x).in("w", w).out("y", y).i32("m", m).i32("n", n).i32("k", k);
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  Dim bytes = bytesOf(x) + bytesOf(w) + bytesOf(y), flops = m * Dim(2 * n * k);
  for (Value *v : {bias, residual})
    if (v)
      bytes = bytes + bytesOf(v);

  auto name = [&](llvm::StringRef stem) { return b.pool().nextKernelName(stem); };
  auto blocks = [&](int64_t each) { return rt::constantExpr((n + each - 1) / each); };
  auto tiled = [&](auto c, auto &&make, llvm::StringRef stem) {
    if (c.splitK > 1) {
      int64_t partial = c.splitK * rows * n * 4,
              tiles = (rows + c.bm - 1) / c.bm * ((n + c.bn - 1) / c.bn);
      (*taken)["partial"] = b.sharedScratch("linear-partial-" + std::to_string(partial), partial);
      (*taken)["counters"] = b.sharedScratch("linear-counters-" + std::to_string(tiles), tiles * 4);
    }
    return b.launch(op, what, make(name(stem), c, epilogue), *taken,
                    {ceilDivExpr(b, m, c.bm), blocks(c.bn), rt::constantExpr(c.splitK)}, bytes,
                    flops);
  };
  FusedNorm fused = !norm                       ? FusedNorm::None
                    : norm->is(OpCode::RmsNorm) ? FusedNorm::Rms
                                                : FusedNorm::Layer;
  Scalar gain = norm ? scalarOf(norm->operand(1)->type.dtype) : Scalar::F32;
  switch (linearKind(op, rows)) {
  case LinearKind::RowDot: {
    LinearRowDotConfig c = rowDotConfig(op, rows);
    c.norm = fused;
    c.p = gain;
    return b.launch(op, what, linearRowDot(name("linear_rowdot"), c, epilogue), *taken,
                    {blocks(rowDotColumns(c)), one(), one()}, bytes, flops);
  }
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(op, rows);
    c.norm = fused;
    c.p = gain;
    return b.launch(op, what, linearSkinny(name("linear_skinny"), c, epilogue), *taken,
                    {blocks(skinnyColumns(c)), one(), one()}, bytes, flops);
  }
  case LinearKind::Tiles:
    break;
  }
  if (isHalf(op) && k % 8 != 0) {
    LinearMmaConfig c = {scalarOf(y->type.dtype), 64, 128, 32, 2, 4, 4, 1};
    return tiled(c, linearMma, "linear_mma");
  }
  if (isHalf(op))
    return tiled(wgmmaConfig(op, rows, b.pool().sharedLimit), linearWgmma, "linear_wgmma");
  return tiled(simtConfig(op, rows), linearSimt, "linear_simt");
}

//===-- rows
//----------------------------------------------------------------------------------------===//

static int rowThreads(int64_t width) { return width >= 4096 ? 256 : width >= 512 ? 128 : 64; }

static llvm::Error lowerNorm(StepBuilder &b, Op &op) {
  Value *x = op.operand(0);
  // Every use may compute the norm itself.
  if (llvm::all_of(op.result()->uses(), [&](const Use &u) {
        return u.op->is(OpCode::Linear) && u.operand == 0 && fusedNorm(b, *u.op) == &op;
      }))
    return llvm::Error::success();
  if (!isRowNorm(op))
    return lowerGenericNorm(b, op);
  LayerNormConfig c;
  c.x = scalarOf(x->type.dtype);
  c.y = scalarOf(op.result()->type.dtype);
  c.p = scalarOf(op.operand(1)->type.dtype);
  c.d = lastDim(x);
  c.threads = rowThreads(c.d);
  c.rms = op.is(OpCode::RmsNorm);
  auto args = ArgList(b)
                  .in("x", x)
                  .in("gain", op.operand(1))
                  .in("shift", op.operand(2))
                  .out("y", op.result())
                  .set("residual", StepBuilder::null())
                  .set("sum", StepBuilder::null())
                  .set("epsilon", StepBuilder::f32(op.floatAttr("epsilon")))
                  .take();
  if (!args)
    return args.takeError();
  Dim rows = leading(x);
  llvm::StringRef what = op.info().mnemonic;
  return b.launch(op, what, layerNorm(b.pool().nextKernelName(what), c), *args,
                  {b.expr(rows), one(), one()}, bytesOf(x) + bytesOf(op.result()),
                  rows * Dim(8 * int64_t(c.d)));
}

static llvm::Error lowerEmbed(StepBuilder &b, Op &op) {
  Value *ids = op.operand(0), *tokens = op.operand(1), *positions = op.operand(2), *y = op.result();
  if (!hasKernelTypes(op) || !isI32(ids) || !isI32(op.operand(3)) || !isI32(op.operand(4)) ||
      !y->type.shape.back().isConstant())
    return lowerGenericEmbed(b, op);
  EmbeddingConfig c;
  c.w = scalarOf(tokens->type.dtype);
  c.y = scalarOf(y->type.dtype);
  c.d = lastDim(y);
  c.threads = rowThreads(c.d);
  c.position = positions != nullptr;
  Dim seq = ids->type.shape[1];
  auto args = ArgList(b)
                  .in("ids", ids)
                  .in("positions", op.operand(4))
                  .in("past", op.operand(3))
                  .in("wte", tokens)
                  .in("wpe", positions)
                  .out("y", y)
                  .i32("seq", seq)
                  .i32("positionCount", positions ? positions->type.shape[0] : Dim(0))
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "embed", embedding(b.pool().nextKernelName("embedding"), c), *args,
                  {b.expr(elementCount(ids->type.shape)), one(), one()}, bytesOf(y) * Dim(3),
                  elementCount(y->type.shape));
}

static llvm::Error lowerGatherLast(StepBuilder &b, Op &op) {
  Value *x = op.operand(0), *y = op.result();
  if (!hasKernelTypes(op) || !isI32(op.operand(1)) || !x->type.shape.back().isConstant())
    return lowerGenericGatherLast(b, op);
  GatherLastConfig c;
  c.x = scalarOf(x->type.dtype);
  c.d = lastDim(x);
  c.threads = rowThreads(c.d);
  auto args = ArgList(b)
                  .in("x", x)
                  .in("length", op.operand(1))
                  .out("y", y)
                  .i32("seq", x->type.shape[1])
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "gather_last", gatherLast(b.pool().nextKernelName("gather_last"), c), *args,
                  {b.expr(y->type.shape[0]), one(), one()}, bytesOf(y) * Dim(2), 0);
}

static llvm::Error lowerArgMax(StepBuilder &b, Op &op) {
  Value *x = op.operand(0), *y = op.result();
  bool lastAxis = op.intAttr("axis") == -1 || op.intAttr("axis") == int64_t(x->type.rank()) - 1;
  bool half = x->type.dtype == DType::F16, single = x->type.dtype == DType::F32;
  if (!lastAxis || !isI32(y) || !(half || single) || x->type.rank() != 2 ||
      op.boolAttr("select_last_index"))
    return lowerGenericArgMax(b, op);
  ArgmaxConfig c;
  c.x = scalarOf(x->type.dtype);
  Dim rows = x->type.shape[0];
  constexpr int parts = 16; // blocks that share a row
  int64_t most = b.maximum(rows);
  auto args = ArgList(b)
                  .in("logits", x)
                  .out("next", y)
                  .set("best", b.sharedScratch("argmax-best", most * 8))
                  .set("arrived", b.sharedScratch("argmax-arrived", most * 4))
                  .i32("n", x->type.shape[1])
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "arg_max", argmax(b.pool().nextKernelName("argmax"), c), *args,
                  {rt::constantExpr(parts), b.expr(rows), one()}, bytesOf(x),
                  elementCount(x->type.shape));
}

//===-- attention
//-----------------------------------------------------------------------------------===//

/// Queries per sequence up to which the split-key kernel is used.
constexpr int64_t decodeQueries = 4;

static llvm::Error lowerAppendAttention(StepBuilder &b, Op &op) {
  Value *kv = op.operand(0), *qkv = op.operand(1), *past = op.operand(2), *mask = op.operand(3);
  Value *state = op.result(0), *out = op.result(1);
  if (!hasKernelTypes(op) || !isI32(past) || !isI32(mask))
    return noKernel(op,
                    "attention over the KV state is in f32 or f16, its lengths and mask in i32");
  if (!isFloat(kv->type.dtype))
    return noKernel(op, "an int8 KV state runs on the CPU device");
  if (!out->type.shape.back().isConstant())
    return noKernel(op, "the width of its heads is not constant");
  if (llvm::Error e = takeOver(b, op))
    return e;
  AttentionConfig c;
  c.x = scalarOf(qkv->type.dtype);
  c.kv = scalarOf(kv->type.dtype);
  c.heads = op.intAttr("num_heads");
  c.headDim = lastDim(out) / c.heads;
  c.mask = mask != nullptr;
  Dim batch = qkv->type.shape[0], seq = qkv->type.shape[1], context = kv->type.shape[4];
  ArgList args(b);
  args.in("qkv", qkv)
      .in("kv", state)
      .out("out", out)
      .in("past", past)
      .in("keyMask", mask)
      .i32("layer", op.intAttr("layer"))
      .i32("batchMax", kv->type.shape[2])
      .i32("context", context)
      .i32("seq", seq)
      .i32("maskStride", mask ? mask->type.shape[1] : Dim(0))
      .set("scale", StepBuilder::f32(op.floatAttr("scale")));
  // Of the new tokens, whose queries see each other up to their own position; the tokens in the
  // state are not known at compile time.
  Dim bytes = bytesOf(qkv) + bytesOf(out);
  Dim flops = elementCount(out->type.shape) * Dim(2) * (seq + Dim(1));

  auto name = [&](llvm::StringRef stem) { return b.pool().nextKernelName(stem); };
  KernelSource kernel;
  std::array<plan::ExprT, 3> grid;
  if (b.maximum(seq) <= decodeQueries) {
    // Split the keys over a cluster until there are about two blocks for each multiprocessor.
    int64_t rows = b.maximum(batch * seq);
    while (c.splits < 8 && rows * c.heads * c.splits < 2 * processors)
      c.splits *= 2;
    c.cluster = c.splits > 1;
    c.warps = c.splits == 1 || c.splits == 8 ? 8 : 4;
    args.set("partial", c.splits > 1
                            ? b.sharedScratch("attention-partial",
                                              rows * c.heads * c.splits * (c.headDim + 2) * 4)
                            : StepBuilder::null());
    args.set("counters", c.splits > 1 ? b.sharedScratch("attention-counters", rows * c.heads * 4)
                                      : StepBuilder::null());
    kernel = attentionDecode(name("attention_decode"), c);
    grid = {rt::constantExpr(c.splits), rt::constantExpr(c.heads), b.expr(batch * seq)};
  } else if (c.x == Scalar::F16 && c.kv == Scalar::F16 && c.headDim % 16 == 0 && c.headDim <= 256) {
    c.keys = c.headDim > 128 ? 32 : 64;
    kernel = attentionPrefillMma(name("attention_prefill_mma"), c);
    grid = {ceilDivExpr(b, seq, 16 * c.warps), rt::constantExpr(c.heads), b.expr(batch)};
  } else {
    c.tq = c.tk = c.headDim > 96 ? 2 : 4;
    kernel = attentionPrefillSimt(name("attention_prefill_simt"), c);
    grid = {ceilDivExpr(b, seq, 16 * c.tq), rt::constantExpr(c.heads), b.expr(batch)};
  }
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  llvm::Error launched =
      b.launch(op, "append_attention", std::move(kernel), *taken, std::move(grid), bytes, flops);
  const Dim width(lastDim(out));
  b.addPastCosts(Dim(2 * byteSize(kv->type.dtype)) * width, Dim(4) * width * seq);
  return launched;
}

//===-- no launch
//-------------------------------------------------------------------------------------===//

static llvm::Error lowerConstant(StepBuilder &, Op &) { return llvm::Error::success(); }

static llvm::Error lowerReshape(StepBuilder &b, Op &op) {
  b.alias(op.result(), op.operand(0));
  return llvm::Error::success();
}

Lowering loweringOf(OpCode code) {
  switch (code) {
  case OpCode::Constant:
    return lowerConstant;
  case OpCode::Reshape:
    return lowerReshape;
  case OpCode::Linear:
    return lowerLinear;
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
    return lowerNorm;
  case OpCode::Embed:
    return lowerEmbed;
  case OpCode::GatherLast:
    return lowerGatherLast;
  case OpCode::ArgMax:
    return lowerArgMax;
  case OpCode::AppendAttention:
    return lowerAppendAttention;
  default:
    return genericLoweringOf(code);
  }
}

} // namespace gpt2c
