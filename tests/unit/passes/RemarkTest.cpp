// What a remark says an unfused pattern costs.
#include "passes/Remark.h"
#include "ir/Builder.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

struct Chain {
  Module module;
  Function &f = *module.addFunction("main");
  Value *x, *y;
  llvm::SmallVector<Op *> ops;

  /// y = relu(exp(x)) with 4 elements for each token, of which exp(x) may be returned, too.
  explicit Chain(bool returnsInner) {
    Dim b = Dim::symbol("b"), s = Dim::symbol("s");
    f.addArgument({DType::I64, {b, s}}, "ids");
    x = f.addArgument({DType::F32, {b, s, 4}}, "x");
    Builder builder(f);
    Value *inner = llvm::cantFail(builder.value(OpCode::Exp, {x}));
    Value *view = llvm::cantFail(
        builder.value(OpCode::Reshape, {inner}, {{"shape", Dims{b, s, Dim(2), Dim(2)}}}));
    y = llvm::cantFail(builder.value(OpCode::Relu, {view}));
    ops.assign(builder.created().begin(), builder.created().end());
    builder.ret(returnsInner ? llvm::ArrayRef<Value *>{y, inner} : llvm::ArrayRef<Value *>{y});
  }
};

TEST(Remark, CostsAreWhatOneOpWouldSave) {
  // Apart: read x, write and read the inner value, write y. One op reads x and writes y.
  Chain chain(false);
  Remark remark;
  remark.costing(chain.ops);
  EXPECT_EQ(remark.launches, 1); // a view is no launch
  EXPECT_EQ(remark.bytes.str(), "32*batch*seq");
  EXPECT_EQ(bytesAt(remark.bytes, {3, 0}), 96);
}

TEST(Remark, AnInnerValueThatIsUsedOutsideIsWrittenAnyway) {
  // The view passes it on inside, so one write of it is saved and one remains.
  Chain chain(true);
  Remark remark;
  remark.costing(chain.ops);
  EXPECT_EQ(remark.launches, 1);
  EXPECT_EQ(remark.bytes.str(), "16*batch*seq");
}

TEST(Remark, NothingCostsNothing) {
  Remark remark;
  remark.costing({});
  EXPECT_EQ(remark.launches, 0);
  EXPECT_EQ(remark.bytes, Dim());
}

TEST(Remark, AStepIsOneTokenBehindTheOthersOrAllOfThem) {
  Chain chain(false);
  StepSizes whole = StepSizes::of(chain.module, 0);
  EXPECT_EQ(whole.seq, 1024);
  EXPECT_EQ(whole.past, 0);
  chain.module.addFunction("decode");
  StepSizes step = StepSizes::of(chain.module, 64);
  EXPECT_EQ(step.seq, 1);
  EXPECT_EQ(step.past, 63);
  // Other lengths are those of all tokens.
  EXPECT_EQ(bytesAt(Dim::symbol("total"), step), 64);
}

TEST(Remark, FieldsOfANearMiss) {
  Chain chain(false);
  Remark remark;
  remark.of("gelu").after("a function of one value").stoppedBy({"", chain.ops[0], "constant"});
  EXPECT_EQ(remark.pattern, "gelu");
  EXPECT_EQ(remark.matched, "a function of one value");
  EXPECT_EQ(remark.op, "exp");
  EXPECT_EQ(remark.attribute, "constant");
  remark.stoppedBy({"no op"});
  EXPECT_EQ(remark.op, "");
  EXPECT_EQ(remark.attribute, "");
}

} // namespace
