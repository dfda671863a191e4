// What the lowerings of the fused ops share: arguments by name, sizes, and products with weights.
#pragma once

#include "codegen/GenericLowerings.h"

#include "ir/Error.h"
#include "runtime/Expr.h"

#include "llvm/Support/MathExtras.h"

namespace gpt2c {

inline plan::ExprT ceilDivExpr(StepBuilder &b, const Dim &d, int64_t by) {
  return rt::combineExpr(rt::ExprOp::CeilDiv, b.expr(d), rt::constantExpr(by));
}
inline plan::ExprT one() { return rt::constantExpr(1); }

inline Dim leading(const Value *v) {
  return elementCount(llvm::ArrayRef(v->type.shape).drop_back());
}
inline int64_t lastDim(const Value *v) { return *v->type.shape.back().constant(); }
inline Dim bytesOf(const Value *v) {
  return elementCount(v->type.shape) * Dim(byteSize(v->type.dtype));
}

/// Whether all floating-point operands and results are stored as the fused kernels store them.
bool hasKernelTypes(const Op &op);
inline bool isNorm(const Op &op) { return op.is(OpCode::LayerNorm) || op.is(OpCode::RmsNorm); }
/// A norm over the last axis with one gain and bias per element.
bool isRowNorm(const Op &op);
/// Threads of a block that has one row of that width.
inline int rowThreads(int64_t width) { return width >= 4096 ? 256 : width >= 512 ? 128 : 64; }

/// How a norm shares its rows of that width: a warp for each, which has no barriers, as long as it
/// holds the row in registers.
inline void shareRows(LayerNormConfig &c, int64_t width) {
  c.d = width;
  c.threads = width <= 2048 ? 32 : rowThreads(width);
  c.rows = width <= 2048 ? 4 : 1;
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

using llvm::divideCeilSigned;

/// Multiprocessors that a grid should fill.
constexpr int64_t processors = 132;
/// Shared memory of a multiprocessor of sm_90 in bytes, and what two blocks may have each.
constexpr unsigned wholeShared = 227 * 1024, halfShared = 113 * 1024;

/// Whether `v` is a gather_last that nothing but products adds to their rows: they read it where it
/// comes from, and it has no step.
bool isReadInPlace(const Value *v);

//===-- products with weights ---------------------------------------------------------------===//

/// What decides about the kernel of a product. `rows` is the most there can be.
struct LinearShape {
  Scalar x, w, y;
  int64_t n, k, rows;
  int64_t wGroup = 0;  ///< int8 w: elements of K that share a scale, when that is not all of them
  int64_t xGroup = -1; ///< elements of x that share a scale when the product quantises it; 0: a row
  bool tf32 = false;   ///< both operands in fp32, and tensor cores may multiply them
  bool hopper = false; ///< see PlanPool
  unsigned sharedLimit = 0; ///< see PlanPool

  bool isHalf() const { return x == Scalar::F16 && w == Scalar::F16; }
};
LinearShape linearShape(StepBuilder &b, const Op &op);

/// What a kernel does beside the product.
struct LinearDuties {
  FusedNorm norm = FusedNorm::None; ///< of x
  Scalar gain = Scalar::F32;        ///< type of its gain and shift
  bool normSums = true;             ///< of the weights, times gain and shift, are known
  int normParts = 0, normWidth = 0; ///< the statistics that it is taken out of the sums with
  bool statistics = false;          ///< it leaves those of y
  bool best = false;                ///< it leaves the largest elements of y
};
/// Every kernel and configuration that may compute such a product of floating-point rows; the first
/// is the choice of the cost model.
std::vector<LinearConfig> linearCandidates(const LinearShape &s, const LinearDuties &duties = {});

/// A product on its way to a launch: x, w, y, m, n, k and the operands of the epilogue are in
/// `args`.
struct LinearCall {
  LinearShape shape;
  Dim m;
  StepBuilder::Args args;
  Epilogue epilogue;
  std::string what;
  Dim bytes, flops;
};

/// The operands, sizes and epilogue of a product (a linear or one of its quantised forms). `first`
/// comes in front of the epilogue, its operands are e0, e1, ... of `args`.
llvm::Expected<LinearCall> linearCall(StepBuilder &b, Op &op, ArgList &args, Value *x, Value *bias,
                                      Value *residual, Epilogue first = {});
/// Whether a kernel multiplies floating-point rows with int8 weights of this shape as they are, or
/// quantises them itself for xGroup >= 0.
bool hasWeightsKernel(const LinearShape &s);
/// Whether the result has the rows of the operand, maybe in a wider type: the largest element of
/// each is at the same place.
bool keepsRows(const Op &op);
/// The norm before a product that its kernel computes itself while the weights are on their way, or
/// takes out of its sums; null when there is none.
Op *fusedNorm(StepBuilder &b, const Op &product);
/// Whether products take a norm of `v` out of their sums where its statistics are known.
bool wantsStatistics(StepBuilder &b, Value *v);
/// Columns of a part of the statistics that products leave for readers like those of `v`, so that
/// one kernel reads both; the whole row where there are none.
int64_t statisticsWidthOfPeers(StepBuilder &b, Value *v);
/// Launches a product of floating-point rows with a kernel that suits its shape; with the `norm`
/// that fusedNorm gave x is that norm's.
llvm::Error launchLinear(StepBuilder &b, Op &op, LinearCall call, Op *norm = nullptr);
/// What tuning files call a product: all that the choice of its kernel depends on.
std::string choiceKey(const LinearCall &call, const Op &op);
/// A block for each tile and part of K, or with `persistent` as many as there are multiprocessors.
template <typename Config>
std::array<plan::ExprT, 3> tileGrid(StepBuilder &b, const LinearCall &call, const Config &c,
                                    bool persistent) {
  std::array<plan::ExprT, 3> grid = {ceilDivExpr(b, call.m, c.bm),
                                     rt::constantExpr(divideCeilSigned(call.shape.n, c.bn)),
                                     rt::constantExpr(c.splitK)};
  if (persistent) {
    plan::ExprT tiles = rt::combineExpr(rt::ExprOp::Mul, grid[0], grid[1]);
    grid = {rt::combineExpr(rt::ExprOp::Min, tiles, rt::constantExpr(processors)), one(), one()};
  }
  return grid;
}
/// Launches a product as a grid of tiles that may split K.
template <typename Config, typename Make>
llvm::Error launchTiles(StepBuilder &b, Op &op, LinearCall &call, const Config &c, Make make,
                        llvm::StringRef stem) {
  const LinearShape &s = call.shape;
  if (c.splitK > 1) {
    int64_t partial = c.splitK * s.rows * s.n * 4,
            tiles = divideCeilSigned(s.rows, c.bm) * divideCeilSigned(s.n, c.bn);
    call.args["partial"] = b.sharedScratch("linear-partial-" + std::to_string(partial), partial);
    call.args["counters"] = b.sharedScratch("linear-counters-" + std::to_string(tiles), tiles * 4);
  }
  return b.launch(op, call.what, make(b.pool().nextKernelName(stem), c, call.epilogue), call.args,
                  tileGrid(b, call, c, false), call.bytes, call.flops);
}

llvm::Error lowerLinear(StepBuilder &b, Op &op);

/// A layer norm without gain and shift.
bool isFoldedNorm(const Op &op);
/// The first product of an MLP whose second one is `output`, where one launch computes both and the
/// norm before them; null: none does.
Op *mlpHidden(StepBuilder &b, const Op &output);
/// Whether `op` is such a first product.
bool isMlpHidden(StepBuilder &b, const Op &op);
llvm::Error launchMlp(StepBuilder &b, Op &output, Op &hidden);

//===-- results in int8 by a scale that is given ---------------------------------------------===//

/// A scale that is known when a plan is made, as kernels are told it.
struct GivenScale {
  Given kind = Given::None;
  float inverse = 1, zero = 0;

  explicit operator bool() const { return kind != Given::None; }
  /// Sets the kernel's parameters.
  void tell(StepBuilder::Args &args) const {
    if (kind != Given::None)
      args["yInverse"] = StepBuilder::f32(inverse);
    if (kind == Given::ScaleAndZero)
      args["yZero"] = StepBuilder::f32(zero);
  }
};

//===-- attention ---------------------------------------------------------------------------===//

/// Where attention writes its value: in the type of qkv, or with `scale` or `given` as int8.
struct AttentionOutput {
  plan::ArgT out;
  std::optional<plan::ArgT> scale; ///< one for each query and head
  GivenScale given;
};
/// Whether the kernel of append_attention can find a scale for each head of its value.
bool attentionQuantises(StepBuilder &b, const Op &op);
llvm::Error launchAttention(StepBuilder &b, Op &op, AttentionOutput to);

//===-- int8 --------------------------------------------------------------------------------===//

llvm::Error lowerQuantize(StepBuilder &b, Op &op);
llvm::Error lowerDequantize(StepBuilder &b, Op &op);
/// quantized_linear and requantized_linear.
llvm::Error lowerQuantizedLinear(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedLayerNorm(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op);

} // namespace gpt2c
