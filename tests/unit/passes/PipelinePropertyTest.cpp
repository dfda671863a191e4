// The whole pipeline on random GPT-2 graphs: after every pass the values are those of the exported
// graph, and what is GPT-2 is recognised, whatever its spelling.
#include "tests/unit/passes/PipelineProof.h"
#include "tests/unit/passes/Preserved.h"

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

TEST(PipelineProperty, RandomGpt) { forSeeds(testPipeline, 500); }

} // namespace
