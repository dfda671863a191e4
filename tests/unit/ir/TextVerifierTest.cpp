// What the verifier must notice in functions that no text can express.
#include "ir/Builder.h"
#include "ir/Text.h"
#include "ir/Verifier.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

struct VerifierTest : ::testing::Test {
  Function f{"main"};
  Value *x = f.addArgument({DType::F32, {Dim::symbol("n")}}, "x");
  Builder b{f};

  Op *unary(OpCode code, Value *operand) {
    auto op = b.create(code, {operand});
    EXPECT_TRUE(!!op);
    return *op;
  }
  void expectError(llvm::StringRef part) {
    std::string message = llvm::toString(verify(f));
    EXPECT_NE(message.find(part.str()), std::string::npos) << "found: " << message;
  }
};

} // namespace

TEST_F(VerifierTest, AcceptsWhatTheBuilderMakes) {
  b.ret(unary(OpCode::Tanh, unary(OpCode::Exp, x)->result())->result());
  EXPECT_EQ(llvm::toString(verify(f)), "");
}

TEST_F(VerifierTest, MissingReturn) {
  unary(OpCode::Exp, x);
  expectError("does not end with return");
}

TEST_F(VerifierTest, UseBeforeDefinition) {
  Op *first = unary(OpCode::Exp, x), *second = unary(OpCode::Tanh, first->result());
  b.ret(second->result());
  f.moveBefore(second, first);
  expectError("operand 0 is defined by a later op, exp");
}

TEST_F(VerifierTest, ValueOfAnotherFunction) {
  Function other("other");
  Value *y = other.addArgument(x->type, "y");
  Op *op = unary(OpCode::Exp, x);
  b.ret(op->result());
  op->setOperand(0, y);
  expectError("operand 0 is no value of this function");
  op->setOperand(0, x);
  EXPECT_EQ(llvm::toString(verify(f)), "");
}

TEST_F(VerifierTest, WrongType) {
  Op *op = unary(OpCode::Exp, x);
  b.ret(op->result());
  op->result()->type.shape[0] = Dim(3);
  expectError("result 0 has the type f32[3], inference gives f32[n]");
}

TEST_F(VerifierTest, OneWrongTypeIsReportedOnce) {
  Op *op = unary(OpCode::Exp, x);
  Op *next = unary(OpCode::Tanh, op->result());
  b.ret(next->result());
  op->result()->type.shape[0] = next->result()->type.shape[0] = Dim(3);
  std::string message = llvm::toString(verify(f));
  EXPECT_NE(message.find("op 0 exp"), std::string::npos) << message;
  EXPECT_EQ(message.find("op 1"), std::string::npos) << message;
}

TEST_F(VerifierTest, SignatureErrorsAreAllListed) {
  f.insert(OpCode::Softmax, {}, 2, nullptr)->setAttr("axes", int64_t(1));
  b.ret(x);
  expectError("has 0 operands, takes 1");
  expectError("has 2 results, gives 1");
  expectError("has no attribute 'axes': did you mean 'axis'?");
}

TEST_F(VerifierTest, AttributeKindAndPresence) {
  Op *op = f.insert(OpCode::Softmax, {x}, 1, nullptr);
  op->setAttr("axis", std::string("last"));
  f.insert(OpCode::Cast, {x}, 1, nullptr);
  b.ret(x);
  expectError("attribute 'axis' is of kind string, not int");
  expectError("needs the attribute 'to'");
}

TEST_F(VerifierTest, MissingOperand) {
  f.insert(OpCode::Add, {x, nullptr}, 1, nullptr);
  b.ret(x);
  expectError("operand 1 'b' may not be none");
}

TEST_F(VerifierTest, OpAfterReturn) {
  b.ret(x);
  unary(OpCode::Exp, x);
  expectError("stands before the end of the function");
  expectError("does not end with return");
}

TEST_F(VerifierTest, InPlaceOperandUsedLater) {
  auto symbol = [](const char *name) { return Dim::symbol(name); };
  Value *kv = f.addArgument({DType::F32, {1, 2, 8, 2, symbol("context"), 4}}, "kv");
  Value *k = f.addArgument({DType::F32, {symbol("batch"), symbol("seq"), 8}}, "k");
  Value *past = f.addArgument({DType::I32, {symbol("batch")}}, "past");
  auto append = b.create(OpCode::KvAppend, {kv, k, k, past}, {{"layer", int64_t(0)}});
  ASSERT_TRUE(!!append) << llvm::toString(append.takeError());
  b.ret((*append)->result());
  EXPECT_EQ(llvm::toString(verify(f)), "");
  f.terminator()->setOperands({(*append)->result(), kv});
  expectError("takes over operand 0, which is used again by op 1 return");
}

TEST_F(VerifierTest, FunctionsOfOneName) {
  Module m;
  for (int i = 0; i < 2; ++i)
    Builder(*m.addFunction("main")).ret({});
  EXPECT_NE(llvm::toString(verify(m)).find("two functions are named @main"), std::string::npos);
}
