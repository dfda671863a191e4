// Every op against expected outputs from references that share no code with it (see generate.py),
// through the reference executor in native precision and in double precision, and against what
// inference said about shapes and contents.
#include "OpCases.h"

#include "ir/Executor.h"

#include <gtest/gtest.h>

using namespace gpt2c;
using suite::OpCase;

namespace {

/// What inference said about a result must hold for the result that was computed.
void expectInferred(const Value &inferred, const Tensor &actual, const std::string &what) {
  ASSERT_EQ(inferred.type.rank(), actual.rank()) << what;
  for (unsigned i = 0; i < actual.rank(); ++i)
    if (auto d = inferred.type.shape[i].constant()) {
      EXPECT_EQ(*d, actual.dim(i)) << what << ", axis " << i;
    }
  if (!inferred.content)
    return;
  ASSERT_EQ(int64_t(inferred.content->size()), actual.count()) << what;
  for (int64_t i = 0; i < actual.count(); ++i)
    if (auto v = (*inferred.content)[i].constant()) {
      EXPECT_EQ(*v, actual.asInt(i)) << what << ", content " << i;
    }
}

void runCase(const OpCase &c, bool float64) {
  std::string what = c.title() + (float64 ? " in f64" : "");
  auto made = suite::makeFunction(c, "case");
  if (!made)
    FAIL() << what << ": " << llvm::toString(made.takeError());
  for (unsigned i = 0; i < c.outputs.size(); ++i)
    EXPECT_EQ(made->op->result(i)->type.dtype, c.outputs[i].dtype()) << what;
  auto results = Executor(*made->function, {.float64 = float64}).run(made->arguments);
  if (!results)
    FAIL() << what << ": " << llvm::toString(results.takeError());
  ASSERT_EQ(results->size(), c.outputs.size()) << what;
  for (size_t i = 0; i < results->size(); ++i) {
    if (!float64) {
      EXPECT_EQ((*results)[i].dtype(), c.outputs[i].dtype()) << what;
    }
    expectInferred(*made->op->result(i), (*results)[i], what);
    EXPECT_EQ(suite::difference((*results)[i], c.outputs[i], c.tolerance), "") << what;
  }
}

/// `c` with what the op's traits promise applied: exchanged operands, or the op applied to its own
/// result.
std::vector<OpCase> promisedCases(const OpCase &c, const OpInfo &info) {
  std::vector<OpCase> out;
  if (info.has(Commutative) && c.inputs[0].tensor.dtype() == c.inputs[1].tensor.dtype()) {
    out.push_back(c);
    std::swap(out.back().inputs[0], out.back().inputs[1]);
    out.back().name += ", operands exchanged";
  }
  if (info.has(Idempotent)) {
    out.push_back(c);
    out.back().inputs[0].tensor = c.outputs[0];
    out.back().name += ", of its own result";
  }
  return out;
}

class OpCases : public testing::TestWithParam<std::string> {};

TEST_P(OpCases, MatchTheReference) {
  const OpInfo *info = findOp(GetParam());
  ASSERT_NE(info, nullptr);
  unsigned count = 0;
  for (const OpCase &c : suite::allOpCases()) {
    if (c.op != GetParam())
      continue;
    ++count;
    runCase(c, false);
    if (!c.nativeOnly)
      runCase(c, true);
    for (const OpCase &promised : promisedCases(c, *info))
      runCase(promised, false);
  }
  EXPECT_GE(count, 3u) << "too few cases of " << GetParam();
}

std::vector<std::string> evaluatedOps() {
  std::vector<std::string> out;
  for (const OpInfo *info : allOps())
    if (info->eval &&
        info->code != OpCode::Constant) // a constant's elements are given, not computed
      out.push_back(info->mnemonic.str());
  return out;
}

INSTANTIATE_TEST_SUITE_P(, OpCases, testing::ValuesIn(evaluatedOps()),
                         [](const auto &info) { return info.param; });

} // namespace
