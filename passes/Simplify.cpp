// simplify: algebraic rules that leave fewer or cheaper ops.
//
// Termination: every rule removes an op or a use of one (where-of-not), or turns squeeze, unsqueeze
// or a transpose that moves no data into reshape, or moves a reshape or a transpose below an op
// that is neither; each lowers (ops, uses of not, ops that are not reshape, reshapes and transposes
// above other ops) in lexicographic order.
#include "ir/Activations.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using P = Pattern;

static Dims shapeOf(const Value *v) { return Dims(v->type.shape.begin(), v->type.shape.end()); }

static llvm::Expected<Value *> reshapeTo(Builder &b, Value *x, Dims shape) {
  llvm::SmallVector<NamedAttr, 2> attrs;
  if (llvm::is_contained(shape, Dim(0))) // is no request to copy a dimension
    attrs.push_back({"allowzero", true});
  attrs.push_back({"shape", std::move(shape)});
  return b.value(OpCode::Reshape, {x}, attrs);
}

/// A rule whose replacement is one captured value, when types agree.
static Rule drop(llvm::StringRef name, llvm::StringRef formula, Pattern pattern,
                 std::function<bool(const Match &)> guard = nullptr) {
  return {name, formula, std::move(pattern),
          [guard = std::move(guard)](const Match &m) {
            return m.value("x")->type == m.root()->result()->type && (!guard || guard(m));
          },
          [](const Match &m, Builder &) -> llvm::Expected<Value *> { return m.value("x"); }};
}

static bool hasShapeAttr(const Match &m) { return m.root()->hasAttr("shape"); }

/// True when the permutation keeps the order of all axes that are not 1.
static bool movesNoData(const Op &transpose) {
  int64_t last = -1;
  for (int64_t axis : transpose.intsAttr("perm")) {
    if (transpose.operand(0)->type.shape[axis] == Dim(1))
      continue;
    if (axis < last)
      return false;
    last = axis;
  }
  return true;
}

/// True when the reshape keeps the last dimension and only regroups the others.
static bool keepsLastDim(const Op &reshape) {
  const Shape &from = reshape.operand(0)->type.shape, &to = reshape.result()->type.shape;
  return !from.empty() && !to.empty() && from.back() == to.back() && from != to;
}

/// Whether integers of a type hold every place of a table; in a byte they wrap to negative ones.
static bool holdsPlaces(DType t) { return isInteger(t) && byteSize(t) >= 4; }

/// Whether `v` is a copy of a, a + 1, a + 2, .. with a >= 0.
static bool countsUp(const Value *v) {
  const Op *op = v->def();
  while (op && (op->is(OpCode::Reshape) || op->is(OpCode::Unsqueeze) || op->is(OpCode::Expand) ||
                (op->is(OpCode::Cast) && holdsPlaces(op->result()->type.dtype))))
    op = op->operand(0)->def();
  auto constant = [&](llvm::StringRef name) {
    return op->hasAttr(name) ? op->dimsAttr(name)[0].constant() : std::nullopt;
  };
  return op && op->is(OpCode::Range) && constant("start").value_or(-1) >= 0 &&
         constant("delta") == 1;
}

/// Whether a slice of one axis begins at its beginning, in steps of one.
static bool isHeadOf(const Op &slice, int64_t axis) {
  const auto rank = int64_t(slice.result()->type.rank());
  auto only = [&](llvm::StringRef name, int64_t value) {
    return slice.hasAttr(name) && slice.dimsAttr(name).size() == 1 &&
           slice.dimsAttr(name)[0] == Dim(value);
  };
  return only("starts", 0) && (only("axes", axis) || only("axes", axis - rank)) &&
         (!slice.hasAttr("steps") || only("steps", 1));
}

/// Integers hold those of fewer bytes, floats those of fewer bytes.
static bool holdsAll(DType wide, DType narrow) {
  return isFloat(wide) == isFloat(narrow) && byteSize(wide) > byteSize(narrow);
}

static std::vector<Rule> shapeRules() {
  std::vector<Rule> rules;
  rules.push_back(drop("reshape-to-same", "reshape(x, shape(x)) = x",
                       P::op(OpCode::Reshape, {P::any("x")}), hasShapeAttr));
  rules.push_back({"reshape-of-reshape", "reshape(reshape(x, s), t) = reshape(x, t)",
                   P::op(OpCode::Reshape, {P::op(OpCode::Reshape, {P::any("x")})}), hasShapeAttr,
                   [](const Match &m, Builder &b) {
                     return reshapeTo(b, m.value("x"), shapeOf(m.root()->result()));
                   }});
  for (OpCode code : {OpCode::Unsqueeze, OpCode::Squeeze})
    rules.push_back({code == OpCode::Squeeze ? "squeeze-is-reshape" : "unsqueeze-is-reshape",
                     "unsqueeze(x) = reshape(x), squeeze(x) = reshape(x)",
                     P::op(code, {P::any("x")}), nullptr, [](const Match &m, Builder &b) {
                       return reshapeTo(b, m.value("x"), shapeOf(m.root()->result()));
                     }});
  rules.push_back(drop("expand-to-same", "expand(x, shape(x)) = x",
                       P::op(OpCode::Expand, {P::any("x")}), hasShapeAttr));
  rules.push_back({"transpose-of-transpose", "transpose(transpose(x, p), q) = transpose(x, p[q])",
                   P::op(OpCode::Transpose, {P::op(OpCode::Transpose, {P::any("x")}, "inner")}),
                   nullptr, [](const Match &m, Builder &b) {
                     auto p = m.op("inner")->intsAttr("perm"), q = m.root()->intsAttr("perm");
                     Dims perm;
                     for (int64_t axis : q)
                       perm.push_back(p[axis]);
                     return b.value(OpCode::Transpose, {m.value("x")}, {{"perm", perm}});
                   }});
  rules.push_back({"transpose-of-ones",
                   "a transpose that keeps the order of axes above 1 = reshape",
                   P::op(OpCode::Transpose, {P::any("x")}),
                   [](const Match &m) { return movesNoData(*m.root()); },
                   [](const Match &m, Builder &b) {
                     return reshapeTo(b, m.value("x"), shapeOf(m.root()->result()));
                   }});
  // A slice of step one that is as long as its axis is the axis, however its bounds are written.
  rules.push_back(
      drop("slice-of-all", "x[0:n] = x", P::op(OpCode::Slice, {P::any("x")}), [](const Match &m) {
        return !m.root()->hasAttr("steps") ||
               llvm::all_of(m.root()->dimsAttr("steps"), [](const Dim &d) { return d == Dim(1); });
      }));
  rules.push_back({"gather-nd-of-rows", "gather_nd(x, i[.., 1]) = gather(x, i[..])",
                   P::op(OpCode::GatherND, {P::any("x"), P::any("i")}),
                   [](const Match &m) {
                     return m.root()->intAttr("batch_dims") == 0 && m.value("i")->type.rank() > 0 &&
                            m.value("i")->type.shape.back() == Dim(1);
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     Dims shape = shapeOf(m.value("i"));
                     shape.pop_back();
                     auto rows = reshapeTo(b, m.value("i"), std::move(shape));
                     if (!rows)
                       return rows;
                     return b.value(OpCode::Gather, {m.value("x"), *rows}, {{"axis", int64_t(0)}});
                   }});
  rules.push_back(
      {"rows-of-head", "gather(x[0:n], i) = gather(x, i) for i of a, a + 1, ..",
       P::op(OpCode::Gather, {P::op(OpCode::Slice, {P::any("x")}, "head"), P::any("i")}),
       [](const Match &m) {
         const auto rank = int64_t(m.value("x")->type.rank());
         const int64_t axis = m.root()->intAttr("axis");
         return countsUp(m.value("i")) && isHeadOf(*m.op("head"), axis < 0 ? axis + rank : axis);
       },
       [](const Match &m, Builder &b) {
         return b.value(OpCode::Gather, {m.value("x"), m.value("i")}, m.root()->givenAttrs());
       }});
  rules.push_back(drop("concat-of-one", "concat(x) = x", P::op(OpCode::Concat, {P::any("x")})));
  rules.push_back(
      drop("cast-to-same", "cast(x, dtype(x)) = x", P::op(OpCode::Cast, {P::any("x")})));
  rules.push_back(drop("cast-there-and-back", "cast(cast(x, wider), dtype(x)) = x",
                       P::op(OpCode::Cast, {P::op(OpCode::Cast, {P::any("x")}, "wide")}),
                       [](const Match &m) {
                         return holdsAll(m.value("wide")->type.dtype, m.value("x")->type.dtype);
                       }));
  return rules;
}

/// f(reshape(x), ..) = reshape(f(x, ..))
static llvm::Expected<Value *> sinkReshapes(const Match &m, Builder &b) {
  llvm::SmallVector<Value *> operands;
  for (Value *v : m.root()->operands())
    operands.push_back(v->def()->operand(0));
  auto y = b.value(m.root()->code(), operands, m.root()->givenAttrs());
  if (!y)
    return y.takeError();
  return reshapeTo(b, *y, shapeOf(m.root()->result()));
}

/// True when the reshape makes rows of one matrix of all tokens.
static bool makesRows(const Op *reshape) {
  return reshape && reshape->is(OpCode::Reshape) && reshape->hasAttr("shape") &&
         keepsLastDim(*reshape) && reshape->operand(0)->type.rank() == 3 &&
         reshape->result()->type.rank() == 2;
}

/// True when the reshape makes one axis of the first two of four.
static bool mergesHeads(const Op *reshape) {
  if (!reshape || !reshape->is(OpCode::Reshape) || !reshape->hasAttr("shape"))
    return false;
  const Shape &from = reshape->operand(0)->type.shape, &to = reshape->result()->type.shape;
  return from.size() == 4 && to.size() == 3 && from[2] == to[1] && from[3] == to[2];
}

/// Products and shares of attention that an exporter has as a batch of all heads.
static std::vector<Rule> batchRules() {
  std::vector<Rule> rules;
  auto heads = [](const Match &m, const char *name) {
    return llvm::ArrayRef(m.op(name)->operand(0)->type.shape).take_front(2);
  };
  rules.push_back({"product-below-reshape", "reshape(x) reshape(y) = reshape(x y)",
                   P::op(OpCode::MatMul, {P::any("x"), P::any("y")}),
                   [=](const Match &m) {
                     return mergesHeads(m.op("x")) && mergesHeads(m.op("y")) &&
                            heads(m, "x") == heads(m, "y");
                   },
                   sinkReshapes});
  rules.push_back({"transpose-below-reshape", "transpose(reshape(x)) = reshape(transpose(x))",
                   P::op(OpCode::Transpose, {P::any("x")}),
                   [](const Match &m) {
                     return mergesHeads(m.op("x")) &&
                            m.root()->intsAttr("perm") == std::vector<int64_t>{0, 2, 1};
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     auto y = b.value(OpCode::Transpose, {m.op("x")->operand(0)},
                                      {{"perm", Dims{0, 1, 3, 2}}});
                     if (!y)
                       return y;
                     return reshapeTo(b, *y, shapeOf(m.root()->result()));
                   }});
  rules.push_back(
      {"softmax-below-reshape", "softmax(reshape(x)) = reshape(softmax(x))",
       P::op(OpCode::Softmax, {P::any("x")}),
       [](const Match &m) { return mergesHeads(m.op("x")) && m.root()->intAttr("axis") == -1; },
       sinkReshapes});
  return rules;
}

/// Activations and residuals of tokens that an exporter has as rows of a matrix between products.
static std::vector<Rule> rowRules() {
  std::vector<Rule> rules;
  for (OpCode code : activationOps())
    rules.push_back({"activation-below-reshape", "f(reshape(x)) = reshape(f(x))",
                     P::op(code, {P::any("x")}),
                     [](const Match &m) { return makesRows(m.op("x")); }, sinkReshapes});
  for (OpCode code : {OpCode::Add, OpCode::Mul})
    rules.push_back({"sum-below-reshape", "reshape(x) + reshape(y) = reshape(x + y)",
                     P::op(code, {P::any("x"), P::any("y")}),
                     [](const Match &m) {
                       return makesRows(m.op("x")) && makesRows(m.op("y")) &&
                              m.op("x")->operand(0)->type == m.op("y")->operand(0)->type;
                     },
                     sinkReshapes});
  return rules;
}

static std::vector<Rule> arithmeticRules() {
  std::vector<Rule> rules;
  rules.push_back(drop("add-zero", "x + 0 = x", P::op(OpCode::Add, {P::any("x"), P::number(0)})));
  rules.push_back(drop("sub-zero", "x - 0 = x", P::op(OpCode::Sub, {P::any("x"), P::number(0)})));
  rules.push_back(drop("mul-one", "x * 1 = x", P::op(OpCode::Mul, {P::any("x"), P::number(1)})));
  rules.push_back(drop("div-one", "x / 1 = x", P::op(OpCode::Div, {P::any("x"), P::number(1)})));
  rules.push_back(
      drop("quantised-again", "quantised(dequantised(x, s, z), s, z) = x",
           P::op(OpCode::AffineQuantize,
                 {P::op(OpCode::AffineDequantize, {P::any("x"), P::any("s"), P::any("z")}),
                  P::any("s"), P::any("z")})));
  rules.push_back(
      {"where-of-not", "where(not(c), x, y) = where(c, y, x)",
       P::op(OpCode::Where, {P::op(OpCode::Not, {P::any("c")}), P::any("x"), P::any("y")}), nullptr,
       [](const Match &m, Builder &b) {
         return b.value(OpCode::Where, {m.value("c"), m.value("y"), m.value("x")});
       }});
  rules.push_back(drop("pow-one", "x ^ 1 = x", P::op(OpCode::Pow, {P::any("x"), P::number(1)})));
  return rules;
}

/// Reshapes that only regroup leading dimensions move below row-wise ops, where they meet their
/// inverse.
static std::vector<Rule> sinkRules() {
  std::vector<Rule> rules;
  auto regrouped = P::op(OpCode::Reshape, {P::any("x")}, "reshape");
  auto guard = [](const Match &m) { return keepsLastDim(*m.op("reshape")); };
  auto sink = [](OpCode code) {
    return [code](const Match &m, Builder &b) -> llvm::Expected<Value *> {
      llvm::SmallVector<Value *> operands(m.root()->operands());
      operands[0] = m.value("x");
      auto y = b.value(code, operands, m.root()->givenAttrs());
      if (!y)
        return y.takeError();
      return reshapeTo(b, *y, shapeOf(m.root()->result()));
    };
  };
  rules.push_back({"linear-below-reshape", "linear(reshape(x), w, b) = reshape(linear(x, w, b))",
                   P::oneOf({P::op(OpCode::Linear, {regrouped, P::any("w")}),
                             P::op(OpCode::Linear, {regrouped, P::any("w"), P::any("bias")})}),
                   guard, sink(OpCode::Linear)});
  // Norms of heads stand where queries and keys are still rows of tokens.
  auto transposed = P::op(OpCode::Transpose, {P::any("x")}, "transpose");
  rules.push_back(
      {"norm-below-transpose", "norm(transpose(x), scale) = transpose(norm(x, scale))",
       P::oneOf({P::op(OpCode::RmsNorm, {transposed, P::any("scale")}),
                 P::op(OpCode::LayerNorm, {transposed, P::any("scale")}),
                 P::op(OpCode::LayerNorm, {transposed, P::any("scale"), P::any("bias")})}),
       [](const Match &m) {
         const int64_t last = m.value("x")->type.rank() - 1;
         const bool rows = m.root()->is(OpCode::RmsNorm) || m.root()->intAttr("axis") == -1 ||
                           m.root()->intAttr("axis") == last;
         return rows && m.op("transpose")->intsAttr("perm").back() == last &&
                m.value("transpose")->hasOneUse();
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         llvm::SmallVector<Value *> operands(m.root()->operands());
         operands[0] = m.value("x");
         auto y = b.value(m.root()->code(), operands, m.root()->givenAttrs());
         if (!y)
           return y.takeError();
         return b.value(OpCode::Transpose, {*y}, m.op("transpose")->givenAttrs());
       }});
  for (OpCode code : {OpCode::AffineQuantize, OpCode::AffineDequantize})
    rules.push_back(
        {"affine-below-reshape", "quantised(reshape(x)) = reshape(quantised(x))",
         P::op(code, {P::op(OpCode::Reshape, {P::any("x")}, "reshape"), P::any("s"), P::any("z")}),
         [](const Match &m) {
           return m.value("s")->type.rank() == 0 && m.value("z")->type.rank() == 0;
         },
         sink(code)});
  rules.push_back({"gelu-below-reshape", "gelu(reshape(x)) = reshape(gelu(x))",
                   P::op(OpCode::Gelu, {regrouped}), guard, sink(OpCode::Gelu)});
  rules.push_back({"norm-below-reshape",
                   "layer_norm(reshape(x), g, b) = reshape(layer_norm(x, g, b))",
                   P::op(OpCode::LayerNorm, {regrouped, P::any("g"), P::any("b")}),
                   [guard](const Match &m) { return guard(m) && m.root()->intAttr("axis") == -1; },
                   sink(OpCode::LayerNorm)});
  rules.push_back({"rms-norm-below-reshape", "rms_norm(reshape(x), g) = reshape(rms_norm(x, g))",
                   P::op(OpCode::RmsNorm, {regrouped, P::any("g")}), guard, sink(OpCode::RmsNorm)});
  return rules;
}

llvm::Error simplify(PassContext &ctx) {
  std::vector<Rule> rules = shapeRules();
  for (auto &more : {arithmeticRules(), sinkRules(), rowRules(), batchRules()})
    rules.insert(rules.end(), more.begin(), more.end());
  for (auto &f : ctx.module().functions) {
    auto n = applyRules(*f, rules);
    if (!n)
      return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
