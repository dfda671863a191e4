// What must hold for every entry of the op table, and the costs of the ops that dominate a model.
#include "ir/Builder.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

TEST(OpsTable, EntriesMatchTheIndex) {
  struct Entry {
    OpCode code;
    const char *mnemonic;
  };
  const Entry index[] = {
#define OP(Name, mnemonic, ...) {OpCode::Name, #mnemonic},
#include "ir/Ops.def"
  };
  ASSERT_EQ(allOps().size(), std::size(index));
  for (const Entry &e : index) {
    const OpInfo &info = opInfo(e.code);
    EXPECT_EQ(info.code, e.code) << e.mnemonic;
    EXPECT_EQ(info.mnemonic, e.mnemonic);
    EXPECT_EQ(findOp(e.mnemonic), &info);
    EXPECT_FALSE(info.summary.empty()) << e.mnemonic;
  }
  EXPECT_EQ(findOp("no_such_op"), nullptr);
}

/// "(X, KeyMask)" as the signature of an op spells it, "(x, key_mask)".
std::string spelled(llvm::StringRef list) {
  std::string out;
  for (char c : list) {
    if (llvm::isUpper(c) && !out.empty() && llvm::isAlpha(out.back()))
      out += '_';
    out += llvm::toLower(c);
  }
  return out;
}

/// "(kv', y): ..." begins with the results of an op that has several: "(next_kv, y)".
std::string resultsOf(llvm::StringRef summary) {
  llvm::SmallVector<llvm::StringRef> parts;
  summary.drop_front().split(')').first.split(parts, ", ");
  std::vector<std::string> names;
  for (llvm::StringRef part : parts)
    names.push_back((part.consume_back("'") ? "next_" + part : part).str());
  return "(" + llvm::join(names, ", ") + ")";
}

TEST(OpsTable, NamesMatchTheSignatures) {
  struct Entry {
    OpCode code;
    const char *operands, *results;
  };
  const Entry index[] = {
#define OP(Name, mnemonic, operands, ...) {OpCode::Name, #operands, #__VA_ARGS__},
#include "ir/Ops.def"
  };
  for (const Entry &e : index) {
    const OpInfo &info = opInfo(e.code);
    auto names = llvm::map_range(info.operands, [](const OperandSpec &o) { return o.name; });
    EXPECT_EQ(spelled(e.operands), "(" + llvm::join(names, ", ") + ")") << info.mnemonic.str();
    const bool several = info.numResults > 1;
    EXPECT_EQ(spelled(e.results), several ? resultsOf(info.summary) : "") << info.mnemonic.str();
    EXPECT_EQ(llvm::StringRef(e.results).count(','), several ? info.numResults - 1 : 0)
        << info.mnemonic.str();
  }
  EXPECT_EQ(ops::QuantizedAppendAttention::Length, 6u);
  EXPECT_EQ(ops::QuantizedAppendAttention::S, 2u);
}

TEST(OpsTable, SignaturesAreWellFormed) {
  for (const OpInfo *info : allOps()) {
    std::string name = info->mnemonic.str();
    bool terminator = info->has(Terminator);
    EXPECT_EQ(info->infer == nullptr, terminator) << name;
    EXPECT_EQ(info->eval == nullptr, terminator) << name;
    llvm::StringSet<> seen;
    OperandSpec::Kind last = OperandSpec::Required;
    for (const OperandSpec &o : info->operands) {
      EXPECT_TRUE(seen.insert(o.name).second) << name << " repeats operand " << o.name.str();
      EXPECT_GE(o.kind, last) << name << ": required operands come first";
      last = o.kind;
    }
    llvm::StringSet<> attrs;
    for (const AttrSpec &a : info->attrs) {
      EXPECT_TRUE(attrs.insert(a.name).second) << name << " repeats attribute " << a.name.str();
      if (a.defaultValue) {
        EXPECT_EQ(kindOf(*a.defaultValue), a.kind) << name << "." << a.name.str();
        EXPECT_FALSE(a.optional) << name << "." << a.name.str()
                                 << " has a default and may be absent";
      }
    }
    EXPECT_FALSE(info->has(Commutative) && info->operands.size() < 2) << name;
    EXPECT_FALSE(info->has(Idempotent) && info->operands.size() != 1) << name;
  }
}

class OpsCost : public testing::Test {
protected:
  Function function{"main"};
  Builder b{function};
  Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");

  Value *argument(DType dtype, const Shape &shape) {
    return function.addArgument({dtype, shape}, "x" + std::to_string(function.numArguments()));
  }
  Cost cost(OpCode code, llvm::ArrayRef<Value *> operands, llvm::ArrayRef<NamedAttr> attrs = {}) {
    Op *op = llvm::cantFail(b.create(code, operands, attrs));
    return op->info().cost(*op);
  }
  static void expect(const Cost &c, const Dim &flops, const Dim &bytes) {
    EXPECT_EQ(c.flops.str(), flops.str());
    EXPECT_EQ(c.bytes.str(), bytes.str());
  }
};

TEST_F(OpsCost, Products) {
  Value *x = argument(DType::F32, {batch, seq, 8}), *w = argument(DType::F32, {5, 8});
  Dim rows = batch * seq;
  expect(cost(OpCode::Linear, {x, w}), Dim(2 * 8 * 5) * rows, Dim(4) * (Dim(8 + 5) * rows + 40));
  Value *half = argument(DType::F16, {seq, 8}), *other = argument(DType::F16, {8, 5});
  expect(cost(OpCode::MatMul, {half, other}), Dim(80) * seq, Dim(2) * (Dim(13) * seq + 40));
  // q and y once, k and v once; two products over seq keys per query
  Value *q = argument(DType::F16, {batch, seq, 32});
  expect(cost(OpCode::Attention, {q, q, q},
              {{"num_heads", int64_t(4)}, {"scale", 1.0}, {"causal", true}}),
         Dim(4 * 32) * batch * seq * seq, Dim(2 * 4 * 32) * rows);
}

TEST_F(OpsCost, MemoryBoundOps) {
  Value *x = argument(DType::F32, {batch, 8}), *v = argument(DType::F32, {8});
  expect(cost(OpCode::Add, {x, v}), Dim(8) * batch, Dim(4) * (Dim(16) * batch + 8));
  expect(cost(OpCode::LayerNorm, {x, v, v}), Dim(64) * batch, Dim(4) * (Dim(16) * batch + 16));
  // Of a table only the rows that are read count, not its size.
  Value *table = argument(DType::F16, {50257, 8}), *ids = argument(DType::I32, {seq});
  expect(cost(OpCode::Gather, {table, ids}), 0, Dim(2 * 2 * 8 + 4) * seq);
  Value *kv = argument(DType::F16, {12, 2, 4, 2, 1024, 16}),
        *k = argument(DType::F32, {batch, seq, 32});
  expect(cost(OpCode::KvAppend, {kv, k, k, argument(DType::I32, {batch})}, {{"layer", int64_t(0)}}),
         0, Dim(2 * 32 * (2 + 4)) * batch * seq);
}

} // namespace
