// lower-precision: weights that functions share stay shared.
#include "ir/Builder.h"
#include "passes/Pipeline.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

/// A function that adds `c` to its argument; the constant.
Op *addConstant(Module &m, std::string name, const Tensor &c) {
  Function *f = m.addFunction(std::move(name));
  Value *x = f->addArgument({DType::F32, {Dim::symbol("batch"), Dim(c.count())}}, "x");
  Builder b(*f);
  Value *constant = b.constant(c);
  b.ret({llvm::cantFail(b.value(OpCode::Add, {x, constant}))});
  return constant->def();
}

TEST(LowerPrecision, FunctionsShareConvertedConstants) {
  Module module;
  Tensor shared = Tensor::of<float>({0.1f, 2, 3}, {3}),
         other = Tensor::of<float>({0.1f, 2, 3}, {3});
  Op *prefill = addConstant(module, "prefill", shared),
     *decode = addConstant(module, "decode", shared), *third = addConstant(module, "third", other);
  auto lower = [&](DType to) {
    PassOptions options;
    options.precision = to;
    std::vector<Remark> remarks;
    PassContext context(module, options, remarks);
    EXPECT_FALSE(bool(runPass(*findPass("lower-precision"), context, {})));
  };
  for (DType to : {DType::F16, DType::F32}) {
    lower(to);
    EXPECT_EQ(prefill->constant.dtype(), to);
    EXPECT_EQ(prefill->constant.raw(), decode->constant.raw());
    EXPECT_NE(prefill->constant.raw(), third->constant.raw());
    EXPECT_NEAR(prefill->constant.asDouble(0), 0.1, 1e-4);
    EXPECT_EQ(module.functions[0]->returned()[0]->type.dtype, to);
  }
  EXPECT_EQ(shared.dtype(), DType::F32);
  EXPECT_EQ(shared.asDouble(0), double(0.1f)) << "the exporter's bytes are not written to";
}

} // namespace
