#include "ir/Text.h"
#include "ir/Builder.h"
#include "ir/Error.h"
#include "ir/Literals.h"
#include "ir/Verifier.h"

#include "llvm/Support/MemoryBuffer.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

using namespace gpt2c;

namespace {

std::unique_ptr<Module> parse(llvm::StringRef text, const ParseOptions &options = {}) {
  auto m = parseModule(text, "test.ir", options);
  if (m)
    return std::move(*m);
  ADD_FAILURE() << llvm::toString(m.takeError()) << "in\n" << text.str();
  return nullptr;
}

std::string text(const Module &m, const PrintOptions &options = {}) {
  std::string out;
  llvm::raw_string_ostream os(out);
  print(m, os, options);
  return out;
}

/// Text that must come back unchanged.
void expectIdentity(llvm::StringRef in) {
  auto m = parse(in);
  ASSERT_TRUE(m);
  EXPECT_EQ(text(*m), in.str());
}

/// The text of a function that returns `t`.
std::string constantText(const Tensor &t) {
  Function f("main");
  Builder b(f);
  b.ret(b.constant(t));
  return toText(f);
}

/// Expects the bytes of `t` to survive the text.
void expectSameBits(const Tensor &t) {
  std::string in = constantText(t);
  auto m = parse(in);
  ASSERT_TRUE(m);
  Tensor back = m->functions[0]->ops().front()->constant;
  ASSERT_TRUE(back.valid()) << in;
  EXPECT_EQ(back.dtype(), t.dtype());
  EXPECT_EQ(back.shape(), t.shape());
  EXPECT_EQ(back.byteArray(), t.byteArray()) << in;
  EXPECT_EQ(constantText(back), in);
}

template <typename Bits> void expectSameBits(DType dtype, const std::vector<Bits> &patterns) {
  constexpr size_t chunk = 61; // written out in full
  for (size_t i = 0; i < patterns.size(); i += chunk) {
    size_t n = std::min(chunk, patterns.size() - i);
    Tensor t(dtype, {static_cast<int64_t>(n)});
    std::memcpy(t.raw(), patterns.data() + i, n * sizeof(Bits));
    expectSameBits(t);
    if (::testing::Test::HasFailure())
      return;
  }
}

} // namespace

TEST(TextTest, EveryOpComesBack) {
  auto file = llvm::MemoryBuffer::getFile(GPT2C_SOURCE_DIR "/tests/lit/ir/every-op.ir");
  ASSERT_TRUE(!!file);
  auto m = parse((*file)->getBuffer());
  ASSERT_TRUE(m);
  std::string once = text(*m);
  expectIdentity(once);
  for (const OpInfo *info : allOps()) {
    bool found = false;
    for (auto &f : m->functions)
      for (auto &op : f->ops())
        found |= op->is(info->code);
    EXPECT_TRUE(found) << "no " << info->mnemonic.str() << " in every-op.ir";
  }
}

TEST(TextTest, EveryHalf) {
  std::vector<uint16_t> all(65536);
  for (unsigned i = 0; i < all.size(); ++i)
    all[i] = static_cast<uint16_t>(i);
  expectSameBits(DType::F16, all);
  expectSameBits(DType::BF16, all);
}

TEST(TextTest, FloatBits) {
  std::mt19937_64 random(1);
  std::vector<uint32_t> f32 = {0x00000000, 0x80000000, 0x7f800000, 0xff800000,
                               0x7fc00000, 0xffc00000, 0x7f800001, 0x00000001,
                               0x007fffff, 0x00800000, 0x7f7fffff};
  std::vector<uint64_t> f64 = {0,
                               0x8000000000000000,
                               0x7ff0000000000000,
                               0xfff0000000000000,
                               0x7ff8000000000000,
                               0xfff8000000000000,
                               0x7ff0000000000001,
                               1,
                               0x000fffffffffffff,
                               0x7fefffffffffffff};
  for (int i = 0; i < 20000; ++i) {
    f32.push_back(static_cast<uint32_t>(random()));
    f64.push_back(random());
  }
  expectSameBits(DType::F32, f32);
  expectSameBits(DType::F64, f64);
}

TEST(TextTest, IntegerBits) {
  expectSameBits(Tensor::of<int64_t>(
      {std::numeric_limits<int64_t>::min(), -1, 0, std::numeric_limits<int64_t>::max()}, {2, 2}));
  expectSameBits(Tensor::of<int32_t>({std::numeric_limits<int32_t>::min(), 7}, {1, 2, 1}));
  expectSameBits(Tensor::of<int8_t>({-128, 127}, {2}));
  expectSameBits(Tensor::zeros(DType::Bool, {3}));
  expectSameBits(Tensor::zeros(DType::U8, {}));
  expectSameBits(Tensor::zeros(DType::F32, {0, 4}));
  expectSameBits(Tensor::zeros(DType::F32, {512, 512})); // one repeated element
}

TEST(TextTest, FloatSpellings) {
  EXPECT_NE(constantText(Tensor::scalar(1e-5f)).find("dense<1e-05>"), std::string::npos);
  EXPECT_NE(constantText(Tensor::scalar(1.0f)).find("dense<1.0>"), std::string::npos);
  EXPECT_NE(constantText(Tensor::scalar(-0.0f)).find("dense<-0.0>"), std::string::npos);
  EXPECT_NE(constantText(Tensor::scalar(0.1f)).find("dense<0.1>"), std::string::npos);
  EXPECT_NE(
      constantText(Tensor::scalar(-std::numeric_limits<double>::infinity())).find("dense<-inf>"),
      std::string::npos);
  EXPECT_EQ(attrText(Attr(0.5)), "0.5");
  EXPECT_EQ(attrText(Attr(std::string("a\"b\n"))), "\"a\\22b\\0A\"");
  EXPECT_EQ(attrText(Attr(Dims{Dim::symbol("batch"), Dim(2) * Dim::symbol("seq") - Dim(1)})),
            "[batch, 2*seq - 1]");
}

TEST(TextTest, NamesThatAreNoIdentifiers) {
  Function f("main");
  Type t{DType::F32, {Dim::symbol("n")}};
  Value *a = f.addArgument(t, "onnx::Add_1"), *b = f.addArgument(t, "12"),
        *c = f.addArgument(t, "");
  Value *d = f.addArgument(t, "x");
  Builder builder(f);
  auto value = [&](OpCode code, llvm::ArrayRef<Value *> operands, std::string name) {
    auto v = builder.value(code, operands);
    EXPECT_TRUE(!!v);
    (*v)->name = std::move(name);
    return *v;
  };
  Value *e = value(OpCode::Add, {a, b}, "x"); // the argument has the name already
  builder.ret({value(OpCode::Add, {e, value(OpCode::Add, {c, d}, "a \"b\"")}, "%")});
  f.resultNames = {"out put"};
  std::string once = toText(f);
  EXPECT_EQ(once, R"(func @main(%"onnx::Add_1": f32[n], %"12": f32[n], %0: f32[n], %x: f32[n]))"
                  R"( -> (%"out put": f32[n]) {
  %1 = add(%"onnx::Add_1", %"12") : f32[n]
  %"a \22b\22" = add(%0, %x) : f32[n]
  %"%" = add(%1, %"a \22b\22") : f32[n]
  return %"%"
}
)");
  auto m = parse(once);
  ASSERT_TRUE(m);
  EXPECT_EQ(text(*m), once);
  EXPECT_EQ(m->functions[0]->argument(0u)->name, "onnx::Add_1");
  EXPECT_EQ(m->functions[0]->argument(1)->name, "12");
  EXPECT_EQ(m->functions[0]->argument(2)->name, "");
  EXPECT_EQ(m->functions[0]->resultNames, f.resultNames);
}

TEST(TextTest, WeightsAreKeptElsewhere) {
  Function f("main");
  Builder b(f);
  Tensor w(DType::F32, {100});
  for (int i = 0; i < 100; ++i)
    w.data<float>()[i] = static_cast<float>(i);
  Tensor same(DType::F32, {100});
  std::memcpy(same.raw(), w.raw(), w.bytes());
  b.ret({b.constant(w), b.constant(same)});

  std::map<uint64_t, Tensor> stored;
  PrintOptions printing;
  printing.weights = [&](uint64_t hash, const Tensor &t) { stored[hash] = t; };
  std::string in = toText(f, printing);
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored.begin()->first, w.hash());

  ParseOptions parsing;
  parsing.weights = [&](uint64_t hash, const Type &) { return stored[hash]; };
  auto m = parse(in, parsing);
  ASSERT_TRUE(m);
  auto returned = m->functions[0]->returned();
  EXPECT_EQ(returned[0]->def()->constant.raw(), returned[1]->def()->constant.raw());
  EXPECT_EQ(returned[0]->def()->constant.byteArray(), w.byteArray());
  EXPECT_EQ(text(*m, printing), in);

  parsing.weights = [](uint64_t, const Type &) { return Tensor::zeros(DType::F32, {99}); };
  EXPECT_NE(llvm::toString(parseModule(in, "x", parsing).takeError()).find("another type"),
            std::string::npos);
  EXPECT_NE(llvm::toString(parseModule(in, "x").takeError()).find("is not there"),
            std::string::npos);
}

TEST(TextTest, ElidedConstantsKeepTheirHash) {
  Tensor w(DType::F32, {100});
  for (int i = 0; i < 100; ++i)
    w.data<float>()[i] = static_cast<float>(i);
  std::string in = constantText(w);
  EXPECT_NE(in.find("elided<\"" + hashText(w.hash()) + "\">"), std::string::npos);
  expectIdentity(in);
  auto m = parse(in);
  ASSERT_TRUE(m);
  EXPECT_FALSE(m->functions[0]->ops().front()->constant.valid());
  auto copy = m->functions[0]->clone("main");
  EXPECT_EQ(toText(*copy), in);
}

TEST(TextTest, IntegerConstantsInferenceLooksAtAreWritten) {
  Tensor t(DType::I64, {200});
  for (int i = 0; i < 200; ++i)
    t.data<int64_t>()[i] = i;
  expectSameBits(t);
}

TEST(TextTest, AnyPrefixIsAnErrorOrAModule) {
  auto file = llvm::MemoryBuffer::getFile(GPT2C_SOURCE_DIR "/tests/lit/ir/every-op.ir");
  ASSERT_TRUE(!!file);
  llvm::StringRef whole = (*file)->getBuffer();
  unsigned errors = 0;
  for (size_t n = 0; n < whole.size(); n += 7) {
    auto m = parseModule(whole.take_front(n), "prefix.ir");
    if (m)
      continue;
    ++errors;
    llvm::handleAllErrors(m.takeError(), [&](const SourceError &e) {
      EXPECT_EQ(e.code(), ExitCode::InvalidModel);
      EXPECT_EQ(e.message().rfind("prefix.ir:", 0), 0u) << e.message();
    });
  }
  EXPECT_GT(errors, 100u);
}
