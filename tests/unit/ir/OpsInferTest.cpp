// Inference of symbolic shapes and contents. Every case is also executed at several sizes, and what
// was inferred must hold for what was computed. A list of cases.
#include "ir/Builder.h"
#include "ir/Executor.h"

#include <gtest/gtest.h>

#include <utility>

using namespace gpt2c;

namespace {

Dim sym(llvm::StringRef name) { return Dim::symbol(name); }

class OpsInfer : public testing::Test {
protected:
  Function function{"main"};
  Builder b{function};
  Dim batch = sym("batch"), seq = sym("seq"), past = sym("past");

  Value *argument(DType dtype, Shape shape) {
    return function.addArgument({dtype, std::move(shape)},
                                "x" + std::to_string(function.numArguments()));
  }
  Value *op(OpCode code, std::vector<Value *> operands, const std::vector<NamedAttr> &attrs = {}) {
    auto v = b.value(code, operands, attrs);
    if (!v) {
      ADD_FAILURE() << llvm::toString(v.takeError());
      return operands.front();
    }
    return *v;
  }
  Value *ints(const std::vector<int64_t> &v) {
    return b.constant(Tensor::of<int64_t>(v, {int64_t(v.size())}));
  }
  Value *scalar(int64_t v) { return b.constant(Tensor::scalar<int64_t>(v)); }
  Value *dims(Dims v) { return op(OpCode::DimValues, {}, {{"values", v}}); }
  Value *number(Dim v) {
    return op(OpCode::DimValues, {}, {{"values", Dims{std::move(v)}}, {"scalar", true}});
  }
  Value *unsqueezed(Value *v) { return op(OpCode::Unsqueeze, {v}, {{"axes", Dims{0}}}); }
  Value *concat(std::vector<Value *> v) {
    return op(OpCode::Concat, std::move(v), {{"axis", int64_t(0)}});
  }
  Value *slice(Value *x, Dim start, Dim end, int64_t axis) {
    return op(OpCode::Slice, {x, dims({std::move(start)}), dims({std::move(end)}), ints({axis})});
  }
  /// Dimension `i` of `x` as exporters compute it.
  Value *size(Value *x, int64_t i) {
    return op(OpCode::Gather, {op(OpCode::Shape, {x}), scalar(i)});
  }

  /// The content as text, which a failure can show; "none" when it is not known.
  static std::string content(const Value *v) { return v->content ? text(*v->content) : "none"; }
  static std::string text(const Dims &dims) {
    std::string out;
    for (const Dim &d : dims)
      out += (out.empty() ? "" : ", ") + d.str();
    return out;
  }

  static std::string failure(llvm::Expected<Value *> v) {
    return v ? "" : llvm::toString(v.takeError());
  }

  /// Runs the function at several sizes and compares every value with its inferred type and
  /// content.
  void expectHolds(int64_t leastPast = 0) {
    std::vector<Value *> values;
    for (auto &o : function.ops())
      for (Value *v : o->results())
        values.push_back(v);
    b.ret(values);
    for (int64_t p : {leastPast, int64_t(1), int64_t(5)})
      for (int64_t s : {1, 2, 4})
        for (int64_t n : {1, 3}) {
          SymbolMap symbols;
          symbols["batch"] = n;
          symbols["seq"] = s;
          symbols["past"] = p;
          std::vector<Tensor> arguments;
          for (unsigned i = 0; i < function.numArguments(); ++i) {
            std::vector<int64_t> shape;
            for (const Dim &d : function.argument(i)->type.shape)
              shape.push_back(*d.evaluate(symbols));
            arguments.push_back(Tensor::zeros(function.argument(i)->type.dtype, shape));
          }
          auto results = Executor(function).run(arguments, symbols);
          ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());
          for (size_t i = 0; i < values.size(); ++i)
            expectHolds(*values[i], (*results)[i], symbols);
        }
  }

private:
  static void expectHolds(const Value &v, const Tensor &t, const SymbolMap &symbols) {
    std::string what = v.def()->describe() + " : " + v.type.str();
    ASSERT_EQ(v.type.rank(), t.rank()) << what;
    for (unsigned i = 0; i < t.rank(); ++i)
      if (auto d = v.type.shape[i].evaluate(symbols)) {
        EXPECT_EQ(*d, t.dim(i)) << what << ", axis " << i;
      }
    if (!v.content)
      return;
    ASSERT_EQ(int64_t(v.content->size()), t.count()) << what;
    for (int64_t i = 0; i < t.count(); ++i)
      if (auto d = (*v.content)[i].evaluate(symbols)) {
        EXPECT_EQ(*d, t.asInt(i)) << what << ", content " << (*v.content)[i].str();
      }
  }
};

TEST_F(OpsInfer, SplittingHeadsByComputedShape) {
  Value *x = argument(DType::F32, {batch, seq, 768});
  Value *width = op(OpCode::Div, {size(x, 2), scalar(12)});
  Value *shape =
      concat({unsqueezed(size(x, 0)), unsqueezed(size(x, 1)), ints({12}), unsqueezed(width)});
  EXPECT_EQ(content(shape), text(Dims{batch, seq, 12, 64}));
  Value *split = op(OpCode::Reshape, {x, shape});
  EXPECT_EQ(split->type.str(), "f32[batch, seq, 12, 64]");
  Value *heads = op(OpCode::Transpose, {split}, {{"perm", Dims{0, 2, 1, 3}}});
  EXPECT_EQ(heads->type.str(), "f32[batch, 12, seq, 64]");
  expectHolds();
}

TEST_F(OpsInfer, ReshapeInfersTheMissingDimension) {
  Value *x = argument(DType::F32, {batch, seq, 768});
  EXPECT_EQ(op(OpCode::Reshape, {x, ints({-1, 768})})->type.str(), "f32[batch*seq, 768]");
  EXPECT_EQ(op(OpCode::Reshape, {x, dims({-1, seq, 12, 64})})->type.str(),
            "f32[batch, seq, 12, 64]");
  EXPECT_EQ(op(OpCode::Reshape, {x, ints({0, 0, 12, -1})})->type.str(), "f32[batch, seq, 12, 64]");
  Value *unknown = op(OpCode::Reshape, {x, ints({-1, 5, 768})});
  EXPECT_EQ(unknown->type.shape[0].str(), "floordiv(batch*seq, 5)");
  EXPECT_NE(failure(b.value(OpCode::Reshape, {x, ints({-1, -1})})).find("more than one -1"),
            std::string::npos);
  Value *y = argument(DType::F32, {2, 3});
  EXPECT_NE(failure(b.value(OpCode::Reshape, {y, ints({4, 2})})).find("do not fit"),
            std::string::npos);
  EXPECT_NE(failure(b.value(OpCode::Reshape, {y, ints({4, -1})})).find("do not divide"),
            std::string::npos);
}

TEST_F(OpsInfer, SlicingTheCausalMaskByComputedBounds) {
  ASSERT_TRUE(function.limits.atMost(past + seq, 1024));
  Value *bias = argument(DType::U8, {1, 1, 1024, 1024});
  Value *rows = slice(bias, past, past + seq, 2);
  EXPECT_EQ(rows->type.str(), "u8[1, 1, seq, 1024]");
  EXPECT_EQ(slice(rows, 0, past + seq, 3)->type.str(), "u8[1, 1, seq, past + seq]");
  expectHolds();
}

TEST_F(OpsInfer, SliceBounds) {
  argument(DType::I64, {batch, seq}); // there is a text
  Value *x = argument(DType::F32, {past + seq, 10});
  auto dim0 = [&](Dim start, Dim end) {
    return slice(x, std::move(start), std::move(end), 0)->type.shape[0];
  };
  EXPECT_EQ(dim0(0, INT64_MAX), past + seq);
  EXPECT_EQ(dim0(0, INT32_MAX), past + seq);
  EXPECT_EQ(dim0(past, INT64_MAX), seq);
  EXPECT_EQ(dim0(-1, INT64_MAX), Dim(1));
  EXPECT_EQ(dim0(Dim(0) - seq, INT64_MAX), seq);
  EXPECT_EQ(dim0(0, past + seq + batch), past + seq);
  EXPECT_EQ(dim0(0, 1), Dim(1));
  EXPECT_EQ(dim0(past, past), Dim(0));
  EXPECT_EQ(dim0(0, 1000).str(), "min(past + seq, 1000)");
  EXPECT_EQ(dim0(1000, INT64_MAX).str(), "max(past + seq - 1000, 0)");
  EXPECT_EQ(dim0(-8, INT64_MAX).str(), "min(past + seq, 8)");
  EXPECT_EQ(dim0(0, -8).str(), "max(past + seq - 8, 0)");
  EXPECT_EQ(dim0(-9, -3).str(), "min(max(past + seq - 3, 0), 6)");
  EXPECT_EQ(dim0(past + seq - Dim(8), INT64_MAX) + dim0(0, past + seq - Dim(8)), past + seq);
  auto dim1 = [&](Dim start, Dim end) {
    return slice(x, std::move(start), std::move(end), 1)->type.shape[1];
  };
  EXPECT_EQ(dim1(2, 100), Dim(8));
  EXPECT_EQ(dim1(-100, -2), Dim(8));
  EXPECT_EQ(dim1(7, 3), Dim(0));
  Value *every = op(OpCode::Slice, {x, ints({0}), ints({INT64_MAX}), ints({1}), ints({3})});
  EXPECT_EQ(every->type.shape[1], Dim(4));
  Value *reversed = op(OpCode::Slice, {x, ints({-1}), ints({INT64_MIN}), ints({0}), ints({-1})});
  EXPECT_EQ(reversed->type.shape[0], past + seq);
  Value *second = op(OpCode::Slice, {x, ints({0}), ints({INT64_MAX}), ints({0}), ints({2})});
  EXPECT_EQ(second->type.shape[0].str(), "floordiv(past + seq + 1, 2)");
  expectHolds();
}

TEST_F(OpsInfer, ShapeArithmetic) {
  Value *total = op(OpCode::Add, {number(past), number(seq)});
  EXPECT_EQ(content(total), text(Dims{past + seq}));
  EXPECT_EQ(content(op(OpCode::Sub, {total, number(seq)})), text(Dims{past}));
  EXPECT_EQ(content(op(OpCode::Mul, {number(batch), number(seq)})), text(Dims{batch * seq}));
  EXPECT_EQ(content(op(OpCode::Div, {number(Dim(12) * seq), scalar(4)})), text(Dims{Dim(3) * seq}));
  EXPECT_EQ(content(op(OpCode::Div, {number(seq), scalar(2)})), "floordiv(seq, 2)");
  Value *towardZero = op(OpCode::Div, {number(seq - Dim(3)), scalar(2)});
  for (int64_t n : {0, 2, 3, 6}) {
    SymbolMap symbols;
    symbols["seq"] = n;
    EXPECT_EQ(towardZero->content->front().evaluate(symbols), (n - 3) / 2);
  }
  EXPECT_EQ(content(op(OpCode::Mod, {number(seq), scalar(2)})), "seq - 2*floordiv(seq, 2)");
  EXPECT_EQ(content(op(OpCode::Max, {total, number(seq)})), text(Dims{past + seq}));
  EXPECT_EQ(content(op(OpCode::Min, {total, number(seq)})), text(Dims{seq}));
  EXPECT_EQ(content(op(OpCode::Max, {number(batch), number(seq)})), "seq + max(batch - seq, 0)");
  EXPECT_EQ(content(op(OpCode::Min, {number(seq), scalar(8)})), "min(seq, 8)");
  EXPECT_EQ(content(op(OpCode::Mod, {number(Dim(8) * seq), scalar(4)})), text(Dims{0}));
  EXPECT_EQ(content(op(OpCode::Neg, {number(seq)})), text(Dims{Dim(0) - seq}));
  EXPECT_EQ(content(op(OpCode::Cast, {total}, {{"to", DType::I32}})), text(Dims{past + seq}));
  EXPECT_EQ(content(op(OpCode::ReduceProd, {dims({batch, seq, 3})}, {{"keepdims", false}})),
            text(Dims{Dim(3) * batch * seq}));
  EXPECT_EQ(content(op(OpCode::ReduceSum, {dims({past, seq})})), text(Dims{past + seq}));
  EXPECT_EQ(content(op(OpCode::ReduceMax, {dims({past + seq, seq})})), text(Dims{past + seq}));
  expectHolds();
}

TEST_F(OpsInfer, ArithmeticThatCouldOverflowHasNoContent) {
  EXPECT_FALSE(op(OpCode::Add, {scalar(INT64_MAX), scalar(1)})->content);
  EXPECT_FALSE(op(OpCode::Mul, {scalar(INT64_MIN), number(seq)})->content);
  EXPECT_EQ(content(op(OpCode::Less, {scalar(INT64_MIN), scalar(INT64_MAX)})), text(Dims{1}));
  EXPECT_EQ(content(op(OpCode::Less, {number(seq), scalar(INT64_MIN)})), text(Dims{0}));
  expectHolds();
}

TEST_F(OpsInfer, DecidableComparisons) {
  Value *shape = dims({batch, seq, -1});
  EXPECT_EQ(content(op(OpCode::Equal, {shape, ints({-1})})), text(Dims{0, 0, 1}));
  EXPECT_FALSE(op(OpCode::Equal, {number(seq), scalar(1)})->content);
  EXPECT_EQ(content(op(OpCode::LessEqual, {number(past), number(past + seq)})), text(Dims{1}));
  EXPECT_FALSE(op(OpCode::Less, {number(past), number(past + seq)})->content); // seq may be 0
  EXPECT_EQ(content(op(OpCode::Greater, {number(past), number(past + seq + 1)})), text(Dims{0}));
  EXPECT_EQ(content(op(OpCode::GreaterEqual, {number(seq), scalar(0)})), text(Dims{1}));
  Value *never = op(OpCode::Equal, {number(seq), scalar(-1)});
  EXPECT_EQ(content(op(OpCode::Not, {never})), text(Dims{1}));
  EXPECT_EQ(content(op(OpCode::Or, {never, op(OpCode::Not, {never})})), text(Dims{1}));
  EXPECT_EQ(content(op(OpCode::Cast, {never}, {{"to", DType::I64}})), text(Dims{0}));
  EXPECT_EQ(content(op(OpCode::Cast, {number(seq + 1)}, {{"to", DType::Bool}})), text(Dims{1}));
  EXPECT_FALSE(op(OpCode::Cast, {number(seq)}, {{"to", DType::Bool}})->content);
  expectHolds();
}

TEST_F(OpsInfer, ExpandTheWayTorchWritesIt) {
  // expand(x, where(shape == -1, ones, shape))
  Value *x = argument(DType::F32, {1, 1, seq});
  Value *shape = dims({batch, 1, -1});
  Value *ones = op(OpCode::ConstantOfShape, {op(OpCode::Shape, {shape})},
                   {{"value", 1.0}, {"dtype", DType::I64}});
  EXPECT_EQ(content(ones), text(Dims{1, 1, 1}));
  Value *target = op(OpCode::Where, {op(OpCode::Equal, {shape, ints({-1})}), ones, shape});
  EXPECT_EQ(content(target), text(Dims{batch, 1, 1}));
  EXPECT_EQ(op(OpCode::Expand, {x, target})->type.str(), "f32[batch, 1, seq]");
  expectHolds();
}

TEST_F(OpsInfer, Ranges) {
  Value *positions = op(OpCode::Range, {number(past), number(past + seq), scalar(1)});
  EXPECT_EQ(positions->type.str(), "i64[seq]");
  EXPECT_EQ(content(op(OpCode::Range, {scalar(1), scalar(8), scalar(3)})), text(Dims{1, 4, 7}));
  EXPECT_EQ(content(op(OpCode::Range, {scalar(3), scalar(0), scalar(-2)})), text(Dims{3, 1}));
  EXPECT_EQ(op(OpCode::Range, {scalar(3), scalar(0), scalar(1)})->type.str(), "i64[0]");
  auto upTo = [&](Dim limit, int64_t delta) {
    return op(OpCode::Range, {scalar(0), number(std::move(limit)), scalar(delta)})->type.str();
  };
  EXPECT_EQ(upTo(seq - Dim(8), 1), "i64[max(seq - 8, 0)]");
  EXPECT_EQ(upTo(seq, 2), "i64[floordiv(seq + 1, 2)]");
  EXPECT_EQ(upTo(Dim(8) - seq, -1), "i64[max(seq - 8, 0)]");
  Value *attributes =
      op(OpCode::Range, {}, {{"start", Dims{0}}, {"limit", Dims{seq}}, {"delta", Dims{1}}});
  EXPECT_EQ(attributes->type.str(), "i64[seq]");
  EXPECT_NE(failure(b.value(OpCode::Range, {scalar(0), scalar(3), scalar(0)})).find("delta of 0"),
            std::string::npos);
  expectHolds();
}

TEST_F(OpsInfer, MovedContents) {
  Value *v = dims({batch, past, seq, 7});
  EXPECT_EQ(content(op(OpCode::Slice, {v, ints({1}), ints({3}), ints({0})})),
            text(Dims{past, seq}));
  EXPECT_EQ(content(op(OpCode::Slice, {v, ints({-1}), ints({INT64_MIN}), ints({0}), ints({-2})})),
            text(Dims{7, past}));
  EXPECT_EQ(content(op(OpCode::Gather, {v, ints({2, -1, 0})})), text(Dims{seq, 7, batch}));
  EXPECT_EQ(content(op(OpCode::Expand, {number(seq), ints({2})})), text(Dims{seq, seq}));
  EXPECT_EQ(content(op(OpCode::Tile, {dims({batch, seq}), ints({2})})),
            text(Dims{batch, seq, batch, seq}));
  Value *square = op(OpCode::Reshape, {v, ints({2, 2})});
  EXPECT_EQ(content(op(OpCode::Transpose, {square}, {{"perm", Dims{1, 0}}})),
            text(Dims{batch, seq, past, 7}));
  EXPECT_EQ(
      *op(OpCode::GatherND, {square, op(OpCode::Reshape, {ints({1, 0}), ints({1, 2})})})->content,
      Dims{seq});
  EXPECT_EQ(content(concat({v, ints({5}), ints({})})), text(Dims{batch, past, seq, 7, 5}));
  EXPECT_EQ(content(op(OpCode::Squeeze, {dims({seq})}, {{"axes", Dims{0}}})), text(Dims{seq}));
  expectHolds();
}

TEST_F(OpsInfer, APartOfOneElementIsThatOne) {
  Value *x = argument(DType::F32, {1, seq, 4}), *from = argument(DType::I64, {2}),
        *to = argument(DType::I64, {2});
  Value *y = op(OpCode::Slice, {x, from, to, ints({0, 1})});
  EXPECT_EQ(y->type.shape[0], Dim(1));
  EXPECT_NE(y->type.shape[1], seq);
  EXPECT_EQ(y->type.shape[2], Dim(4));
}

TEST_F(OpsInfer, BroadcastsOfPartsAreWhatTheyAreWhereTheyFit) {
  argument(DType::I64, {batch, seq});
  Value *x = argument(DType::F32, {seq}), *first = slice(x, 0, 8, 0),
        *rest = slice(x, 7, INT64_MAX, 0);
  EXPECT_EQ(op(OpCode::Add, {x, first})->type.str(), "f32[seq]");
  // As long as seq = 8, where the rest is one element.
  SymbolMap symbols;
  symbols["seq"] = 8;
  EXPECT_EQ(op(OpCode::Add, {x, rest})->type.shape[0].evaluate(symbols), 8);
  symbols["seq"] = 1; // one element and none: none
  EXPECT_EQ(op(OpCode::Add, {first, rest})->type.shape[0].evaluate(symbols), 0);
}

TEST_F(OpsInfer, ConcatOfPartsThatAreEqualForSomeLengthsIsKnownWhenItRuns) {
  argument(DType::I64, {batch, seq});
  Value *x = argument(DType::F32, {2, seq}), *first = slice(x, 0, 8, 1),
        *rest = slice(x, 8, INT64_MAX, 1);
  Value *rows = op(OpCode::Concat, {first, rest}, {{"axis", int64_t(0)}});
  EXPECT_EQ(rows->type.shape[0], Dim(4));
  EXPECT_TRUE(rows->type.shape[1].asSymbol());
  EXPECT_NE(rows->type.shape[1], seq);
  EXPECT_EQ(op(OpCode::Concat, {rest, first}, {{"axis", int64_t(1)}})->type.str(), "f32[2, seq]");
}

TEST_F(OpsInfer, ReshapesOfEmptyParts) {
  argument(DType::I64, {batch, seq});
  Value *x = argument(DType::F32, {batch, seq, 4}), *rest = slice(x, 8, INT64_MAX, 1);
  Value *same =
      op(OpCode::Reshape, {rest, dims({batch, size(rest, 1)->content->front(), Dim(-1)})});
  EXPECT_EQ(same->type.str(), "f32[batch, max(seq - 8, 0), 4]");
  // What may be -1 is known when it runs.
  Value *either = op(OpCode::Reshape, {x, dims({batch, seq - Dim(3)})});
  EXPECT_TRUE(either->type.shape[1].asSymbol());
  Value *pairs = op(OpCode::Reshape, {x, ints({-1, 8})});
  EXPECT_EQ(pairs->type.shape[0].str(), "floordiv(batch*seq, 2)");
}

TEST_F(OpsInfer, BroadcastTakesSymbolsForEqualAndTellsSo) {
  std::vector<std::pair<Dim, Dim>> equalities;
  inferredEqualities = &equalities;
  Value *x = argument(DType::F32, {batch, past + seq}),
        *y = argument(DType::F32, {batch, sym("total")});
  EXPECT_EQ(op(OpCode::Add, {x, y})->type.str(), "f32[batch, past + seq]");
  inferredEqualities = nullptr;
  ASSERT_EQ(equalities.size(), 1u);
  EXPECT_EQ(equalities[0], std::pair(past + seq, sym("total")));
}

TEST_F(OpsInfer, ReshapeTakesSymbolsForEqualAndTellsSo) {
  std::vector<std::pair<Dim, Dim>> equalities;
  inferredEqualities = &equalities;
  Value *mask = argument(DType::I64, {sym("rows"), sym("total")});
  Value *y = op(OpCode::Reshape, {mask, dims({batch, Dim(-1)})});
  EXPECT_EQ(y->type.str(), "i64[batch, total]");
  ASSERT_EQ(equalities.size(), 1u);
  EXPECT_EQ(equalities[0], std::pair(sym("rows"), batch));
  y = op(OpCode::Reshape, {mask, dims({batch, Dim(2), Dim(-1)})}); // regroups
  EXPECT_NE(y->type.shape[2], sym("total"));
  inferredEqualities = nullptr;
}

TEST_F(OpsInfer, AttentionAndItsState) {
  Value *q = argument(DType::F32, {batch, seq, 32});
  Value *pastKv = argument(DType::F32, {batch, 4, past, 8}),
        *mask = argument(DType::I64, {batch, past + seq});
  Value *y = op(OpCode::Attention, {q, q, q, pastKv, pastKv, mask},
                {{"num_heads", int64_t(4)}, {"scale", 0.5}, {"causal", true}});
  EXPECT_EQ(y->type.str(), "f32[batch, seq, 32]");
  Value *bias = argument(DType::F32, {1, 4, seq, past + seq});
  y = op(OpCode::Attention, {q, q, q, pastKv, pastKv, nullptr, bias},
         {{"num_heads", int64_t(4)}, {"scale", 0.5}, {"causal", true}});
  EXPECT_EQ(y->type.str(), "f32[batch, seq, 32]");
  Value *length = argument(DType::I32, {batch});
  EXPECT_EQ(op(OpCode::Positions, {length}, {{"seq", Dims{seq}}})->type.str(), "i64[batch, seq]");
  Value *w = argument(DType::F32, {50, 32});
  EXPECT_EQ(op(OpCode::Linear, {y, w})->type.str(), "f32[batch, seq, 50]");
  expectHolds();
}

TEST_F(OpsInfer, OperandsThatDoNotFitAreRefused) {
  Value *x = argument(DType::F32, {2, 3}), *half = argument(DType::F16, {2, 3}),
        *ids = argument(DType::I64, {2});
  auto refused = [&](OpCode code, const std::vector<Value *> &operands,
                     const std::vector<NamedAttr> &attrs, const char *why) {
    size_t before = function.ops().size();
    std::string message = failure(b.value(code, operands, attrs));
    EXPECT_NE(message.find(why), std::string::npos)
        << opInfo(code).mnemonic.str() << ": " << message;
    EXPECT_EQ(function.ops().size(), before) << "nothing is left behind";
  };
  refused(OpCode::Add, {x, half}, {}, "differ in element type");
  refused(OpCode::Add, {x, argument(DType::F32, {4})}, {}, "dimensions 3 and 4 differ");
  refused(OpCode::Tanh, {ids}, {}, "floating-point");
  refused(OpCode::Not, {x}, {}, "bool");
  refused(OpCode::Where, {x, x, x}, {}, "condition must be bool");
  refused(OpCode::MatMul, {x, x}, {}, "dimensions 3 and 2 differ");
  refused(OpCode::Transpose, {x}, {{"perm", Dims{0, 0}}}, "permutation");
  refused(OpCode::Unsqueeze, {x}, {{"axes", Dims{7}}}, "out of range");
  refused(OpCode::Squeeze, {x}, {{"axes", Dims{0}}}, "has size 2, not 1");
  refused(OpCode::Concat, {x, half}, {{"axis", int64_t(0)}}, "differ in element type or rank");
  refused(OpCode::Softmax, {x}, {{"axis", int64_t(2)}}, "out of range");
  refused(OpCode::Slice, {x}, {}, "starts");
  refused(OpCode::Gather, {x, x}, {}, "indices must be");
  refused(OpCode::Gelu, {x}, {{"approximate", std::string("fast")}}, "approximate must be");
  refused(OpCode::Linear, {x, x}, {{"activation", std::string("swish")}}, "unknown activation");
  refused(OpCode::Attention, {x, x, x},
          {{"num_heads", int64_t(1)}, {"scale", 1.0}, {"causal", true}}, "expects q");
  Value *q = argument(DType::F32, {2, 3, 4});
  for (auto &[bias, why] : {std::pair(x, "expects bias"),
                            {argument(DType::F32, {2, 5, 3, 3}), "dimensions 4 and 5 differ"},
                            {argument(DType::F16, {1, 1, 3, 3}), "expects bias"}})
    refused(OpCode::Attention, {q, q, q, nullptr, nullptr, nullptr, bias},
            {{"num_heads", int64_t(4)}, {"scale", 1.0}, {"causal", true}}, why);
}

TEST_F(OpsInfer, QuantisedOperandsThatDoNotFitAreRefused) {
  Value *x = argument(DType::F32, {batch, 12}), *q = argument(DType::I8, {batch, 12});
  Value *w = argument(DType::I8, {5, 12}), *perRow = argument(DType::F32, {5, 1}),
        *perFour = argument(DType::F32, {5, 3});
  Value *one = argument(DType::F32, {}), *half = argument(DType::F16, {5, 1}),
        *rows = argument(DType::F32, {batch, 1});
  auto refused = [&](OpCode code, const std::vector<Value *> &operands,
                     const std::vector<NamedAttr> &attrs, const char *why) {
    auto made = b.create(code, operands, attrs);
    std::string message = made ? "accepted" : llvm::toString(made.takeError());
    EXPECT_NE(message.find(why), std::string::npos)
        << opInfo(code).mnemonic.str() << ": " << message;
  };
  refused(OpCode::Quantize, {q}, {}, "floating-point");
  refused(OpCode::Quantize, {x}, {{"group", int64_t(5)}}, "do not divide into groups of 5");
  refused(OpCode::Quantize, {x, perRow}, {}, "a given scale is f32[]");
  refused(OpCode::Dequantize, {x, rows}, {}, "rows of i8");
  refused(OpCode::Dequantize, {w, half}, {}, "scales are f32");
  refused(OpCode::Dequantize, {w, argument(DType::F32, {5, 5})}, {}, "5 groups");
  refused(OpCode::QuantizedLinear, {q, w, perRow}, {}, "needs its scales");
  refused(OpCode::QuantizedLinear, {q, w, perRow, rows}, {}, "needs the result's dtype");
  refused(OpCode::QuantizedLinear, {q, w, perRow, rows}, {{"x_group", int64_t(0)}}, "x_group");
  refused(OpCode::QuantizedLinear, {x, w, perRow, rows}, {}, "takes one scale f32[], or x_group");
  refused(OpCode::QuantizedLinear, {x, w, perRow}, {{"x_group", int64_t(5)}}, "groups of 5");
  refused(OpCode::QuantizedLinear, {x, w, perFour}, {{"x_group", int64_t(6)}}, "do not nest");
  refused(OpCode::QuantizedLinear, {x, x, perRow}, {}, "w of i8");
  refused(OpCode::RequantizedLinear, {x, w, perRow}, {{"y_group", int64_t(2)}}, "groups of 2");
  refused(OpCode::QuantizedLayerNorm, {x, one}, {{"group", int64_t(7)}}, "groups of 7");
  const NamedAttr toFp8 = {"to", DType::F8E4M3};
  Value *f8 = argument(DType::F8E4M3, {batch, 12}), *w8 = argument(DType::F8E4M3, {5, 12});
  refused(OpCode::Quantize, {x}, {{"to", DType::U8}}, "to i8 or f8e4m3, not to u8");
  refused(OpCode::QuantizedLayerNorm,
          {x, argument(DType::F32, {12}), nullptr, one, argument(DType::I8, {})}, {toFp8},
          "a zero point is of integers, not of f8e4m3");
  refused(OpCode::QuantizedLinear, {f8, w8, perRow}, {}, "x of f8e4m3 needs its scales");
  refused(OpCode::QuantizedLinear, {f8, w, perRow, rows}, {}, "of its type, not of i8");
  refused(OpCode::QuantizedLinear, {q, w8, perRow, rows}, {}, "of its type, not of f8e4m3");
  Value *kv = argument(DType::I8, {2, 2, 1, 2, 8, 16}),
        *qkv = argument(DType::F32, {batch, seq, 96}), *past = argument(DType::I32, {batch});
  refused(OpCode::AppendAttention, {kv, qkv, past},
          {{"layer", int64_t(0)}, {"num_heads", int64_t(2)}, {"scale", 1.0}}, "72 and 96 differ");
  Value *floats = argument(DType::F32, {2, 2, 1, 2, 8, 16});
  refused(OpCode::AppendAttention, {floats, qkv, past, nullptr, x},
          {{"layer", int64_t(0)}, {"num_heads", int64_t(2)}, {"scale", 1.0}},
          "expects length[b] of integers");
}

TEST_F(OpsInfer, EvaluationReportsWhatInferenceCannotSee) {
  Value *x = argument(DType::F32, {3, 2}), *i = argument(DType::I64, {1});
  Value *n = argument(DType::I64, {1});
  b.ret({op(OpCode::Gather, {x, i}), op(OpCode::Div, {n, i})});
  auto run = [&](int64_t index) {
    auto r =
        Executor(function).run({Tensor::zeros(DType::F32, {3, 2}),
                                Tensor::of<int64_t>({index}, {1}), Tensor::of<int64_t>({4}, {1})});
    return r ? std::string() : llvm::toString(r.takeError());
  };
  EXPECT_EQ(run(2), "");
  EXPECT_EQ(run(-3), "");
  EXPECT_NE(run(3).find("index 3 is out of range"), std::string::npos);
  EXPECT_NE(run(0).find("division by zero"), std::string::npos);
}

} // namespace
