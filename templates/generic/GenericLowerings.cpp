// The table of generic lowerings, and the elementwise ops.
#include "templates/generic/GenericLowerings.h"

#include "ir/Activations.h"
#include "ir/Error.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::Error noKernel(const Op &op, const llvm::Twine &why) {
  return makeError(ExitCode::Unsupported, op.describe() + " has no GPU kernel: " + why);
}

std::optional<Dims> knownList(const Op &op, llvm::StringRef attr, unsigned operand) {
  if (op.hasAttr(attr))
    return op.dimsAttr(attr);
  const Value *v = op.operand(operand);
  return v ? v->content : std::optional(Dims());
}

//===-- elementwise -------------------------------------------------------------------------===//

/// The function of templates/device/elementwise.cuh; empty when it is not one call on equal types.
static std::string scalarFunction(const Op &op) {
  switch (op.code()) {
  case OpCode::Not:
    return "logicalNot";
  case OpCode::And:
    return "logicalAnd";
  case OpCode::Or:
    return "logicalOr";
  case OpCode::Xor:
    return "logicalXor";
  case OpCode::IsNaN:
    return "isNaN";
  case OpCode::IsInf:
    return "isInf";
  case OpCode::LessEqual:
    return "lessEqual";
  case OpCode::GreaterEqual:
    return "greaterEqual";
  case OpCode::AffineQuantize:
    return "affineQuantize";
  case OpCode::AffineDequantize:
    return "affineDequantize";
  case OpCode::Mod:
    return op.boolAttr("fmod") ? "mod<true>" : "mod<false>";
  default:
    break;
  }
  const auto activation = activationOf(op);
  return activation ? infoOf(*activation).function.str() : op.info().mnemonic.str();
}

llvm::Error lowerElementwise(StepBuilder &b, Op &op) {
  Value *y = op.result();
  KernelCall call(b, op, "templates/generic/map.cuh");
  // A choice moves words, whatever they mean.
  bool choice = op.is(OpCode::Where);
  llvm::StringRef word = choice ? cudaWord(y->type.dtype) : "";
  call.out("y", y, word);
  std::string loads;
  for (auto [i, v] : llvm::enumerate(op.operands())) {
    std::string n = std::to_string(i);
    call.in("x" + n, v, choice && i > 0 ? word : "");
    loads += (i ? ", " : "") + ("load(x" + n + " + at.offset[" + std::to_string(i + 1) + "])");
  }
  std::string value;
  if (choice)
    value = "load(x0 + at.offset[1]) ? x1[at.offset[2]] : x2[at.offset[3]]";
  else if (op.is(OpCode::Cast))
    value = "convert<Compute<" + cudaType(y->type.dtype).str() + ">>(" + loads + ")";
  else
    value = "elementwise::" + scalarFunction(op) + "(" + loads + ")";
  return launchMap(call, b, op, broadcastLoop(y, op.operands()),
                   "        store(y + at.offset[0], " + llvm::Twine(value) + ");\n");
}

/// The function of an activation's name; empty for none.
static std::string activationFunction(llvm::StringRef name) {
  const llvm::StringRef function = infoOf(*activationNamed(name)).function;
  return function.empty() ? "" : ("elementwise::" + function).str();
}

llvm::Error lowerGated(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::Gated::X), *y = op.result();
  const Dim &n = y->type.shape.back();
  Dim rows = elementCount(llvm::ArrayRef(y->type.shape).drop_back());
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  call.in("x", x);
  const bool pairs = op.boolAttr("interleaved");
  call.integer("n", n);
  return launchMap(
      call, b, op, {{rows, n}, {{n, Dim(1)}, {Dim(2) * n, Dim(pairs ? 2 : 1)}}},
      "        store(y + at.offset[0], " + activationFunction(op.stringAttr("activation")) +
          "(load(x + at.offset[1])) * load(x + at.offset[1] + " + (pairs ? "1" : "n") + "));\n");
}

//===-- the table ---------------------------------------------------------------------------===//

Lowering genericLoweringOf(OpCode code) {
  switch (code) {
  case OpCode::DimValues:
  case OpCode::Shape:
    return lowerContent;
  case OpCode::Unsqueeze:
  case OpCode::Squeeze:
    return lowerView;
  case OpCode::Transpose:
    return lowerTranspose;
  case OpCode::Expand:
    return lowerExpand;
  case OpCode::Tile:
    return lowerTile;
  case OpCode::Concat:
    return lowerConcat;
  case OpCode::Slice:
    return lowerSlice;
  case OpCode::Gather:
    return lowerGather;
  case OpCode::GatherElements:
    return lowerGatherElements;
  case OpCode::GatherND:
    return lowerGatherND;
  case OpCode::ScatterND:
    return lowerScatterND;
  case OpCode::Trilu:
    return lowerTrilu;
  case OpCode::Range:
    return lowerRange;
  case OpCode::ConstantOfShape:
    return lowerConstantOfShape;
  case OpCode::OneHot:
    return lowerOneHot;
  case OpCode::ReduceSum:
  case OpCode::ReduceMean:
  case OpCode::ReduceMax:
  case OpCode::ReduceMin:
  case OpCode::ReduceProd:
    return lowerReduction;
  case OpCode::ArgMax:
    return lowerGenericArgMax;
  case OpCode::CumSum:
    return lowerCumSum;
  case OpCode::MatMul:
    return lowerMatMul;
  case OpCode::Softmax:
    return lowerSoftmax;
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
    return lowerGenericNorm;
  case OpCode::Attention:
    return lowerAttention;
  case OpCode::MaskedSoftmax:
    return lowerMaskedSoftmax;
  case OpCode::Positions:
    return lowerPositions;
  case OpCode::Rope:
    return lowerRope;
  case OpCode::KvAppend:
    return lowerKvAppend;
  case OpCode::CachedAttention:
    return lowerCachedAttention;
  case OpCode::GatherLast:
    return lowerGenericGatherLast;
  case OpCode::Embed:
    return lowerGenericEmbed;
  default:
    return opInfo(code).has(Elementwise) ? lowerElementwise : nullptr;
  }
}

} // namespace gpt2c
