// The whole pipeline on random GPT-2 graphs: after every pass the values are those of the exported
// graph, what is GPT-2 is recognised, whatever its spelling, and no pass changes what it left.
#include "tests/unit/Nightly.h"
#include "tests/unit/passes/PipelineProof.h"
#include "tests/unit/passes/Preserved.h"

#include "llvm/ADT/StringExtras.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

void testPipeline(uint64_t seed) {
  RandomGpt g{Choices(seed)};
  std::string before = toText(g.function);
  PipelineProof proof(g);
  ASSERT_EQ(proof.run(), "");
  const Function *decode = g.module.function("decode");
  if (!g.isGpt())
    return;
  for (const Remark &r : proof.remarks)
    EXPECT_EQ(r.severity, Remark::Note) << r.pass << ": " << r.message;
  ASSERT_NE(decode, nullptr) << before;
  // Seven ops a layer; embed, norm, head, reshape, greedy choice and return around them.
  unsigned ops = decode->ops().size() - countOps(*decode, OpCode::Constant);
  EXPECT_EQ(ops, 7 * g.layers + 6) << before << toText(*decode);
}

/// Every pass leaves alone what it made of a graph.
void testIdempotence(uint64_t seed) {
  RandomGpt g{Choices(seed)};
  PassOptions options;
  if (seed % 2)
    options.precision = DType::F16;
  if (seed % 4 == 3)
    options.quantize.scheme = QuantizeScheme::W8A8;
  std::vector<Remark> remarks;
  PassContext context(g.module, options, remarks);
  auto text = [&] {
    std::string out;
    llvm::raw_string_ostream os(out);
    print(g.module, os,
          {.locations = false, .contents = false, .weights = nullptr, .prints = nullptr});
    return out;
  };
  for (const Stage &stage : pipeline())
    for (llvm::StringRef name : stage.passes) {
      ASSERT_EQ(llvm::toString(runPass(*findPass(name), context, {})), "") << name.str();
      std::string once = text();
      ASSERT_EQ(llvm::toString(runPass(*findPass(name), context, {})), "") << name.str();
      ASSERT_EQ(text(), once) << name.str();
    }
}

/// Whichever pass is left out, the others keep the values.
void testLeftOut(uint64_t seed) {
  RandomGpt g{Choices(seed)};
  const Pass &pass = allPasses()[seed % allPasses().size()];
  EXPECT_EQ(PipelineProof(g).run({pass.name.str()}), "") << "without " << pass.name.str();
}

TEST(PipelineProperty, RandomGpt) { forSeeds(testPipeline, nightly() ? 2000 : 150); }
TEST(PipelineProperty, EveryPassTwice) { forSeeds(testIdempotence, nightly() ? 1000 : 80); }
/// Norms of two elements that are nearly equal: rounding weights to fp32 moves a logit by 8e-4, a
/// pass by 2e-5.
TEST(PipelineProperty, NormsThatMagnifyRounding) {
  const std::string choices =
      llvm::fromHex("ffffffffffffffffff6d61736bffffffffffff0300ffffffff10000000000000005600000000"
                    "00000020f7ffffff05000000ffff1f00000000000000ffffffffffff2affffffffff");
  RandomGpt g{Choices(llvm::arrayRefFromStringRef(choices))};
  EXPECT_EQ(PipelineProof(g).run(), "");
}

TEST(PipelineProperty, AnyPassLeftOut) { forSeeds(testLeftOut, nightly() ? 2000 : 120); }

} // namespace
