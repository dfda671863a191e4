// Every op against expected outputs from references that share no code with it (see generate.py),
// through the reference executor in native precision and in double precision, and against what
// inference said about shapes and contents.
#include "ir/Builder.h"
#include "ir/Executor.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

using namespace gpt2c;

namespace {

struct Input {
  Tensor tensor; // invalid: absent
  bool constant = false;
};

struct Case {
  std::string op, name;
  std::vector<NamedAttr> attrs;
  std::vector<Input> inputs;
  std::vector<Tensor> outputs;
  double tolerance = 0;
  bool nativeOnly = false;
};

Tensor readTensor(const llvm::json::Object &o) {
  std::vector<int64_t> shape;
  for (const llvm::json::Value &d : *o.getArray("s"))
    shape.push_back(*d.getAsInteger());
  Tensor t(*parseDType(*o.getString("t")), shape);
  std::string bytes = llvm::fromHex(*o.getString("d"));
  EXPECT_EQ(bytes.size(), t.bytes());
  std::memcpy(t.raw(), bytes.data(), std::min(bytes.size(), t.bytes()));
  return t;
}

Attr readAttr(const OpInfo &info, llvm::StringRef name, const llvm::json::Value &v) {
  const AttrSpec *spec = info.attr(name);
  if (!spec) {
    ADD_FAILURE() << "no attribute " << name.str() << " of " << info.mnemonic.str();
    return false;
  }
  switch (spec->kind) {
  case AttrKind::Bool:
    return *v.getAsBoolean();
  case AttrKind::Int:
    return *v.getAsInteger();
  case AttrKind::Float:
    return v.getAsNumber() ? *v.getAsNumber() : std::stod(v.getAsString()->str()); // "-inf"
  case AttrKind::String:
    return v.getAsString()->str();
  case AttrKind::DType:
    return *parseDType(v.getAsString()->drop_front(strlen("dtype:")));
  case AttrKind::Dims: {
    Dims dims;
    for (const llvm::json::Value &d : *v.getAsArray())
      dims.push_back(*d.getAsInteger());
    return dims;
  }
  }
  return false;
}

Case readCase(llvm::StringRef line) {
  llvm::json::Value parsed = llvm::cantFail(llvm::json::parse(line));
  const llvm::json::Object &o = *parsed.getAsObject();
  Case c;
  c.op = o.getString("op")->str();
  c.name = o.getString("name")->str();
  c.tolerance = *o.getNumber("tol");
  c.nativeOnly = o.get("native") != nullptr;
  const OpInfo *info = findOp(c.op);
  if (!info) {
    ADD_FAILURE() << "no op " << c.op;
    return c;
  }
  for (const auto &[key, value] : *o.getObject("attrs"))
    c.attrs.push_back({intern(key.str()), readAttr(*info, key.str(), value)});
  for (const llvm::json::Value &v : *o.getArray("inputs")) {
    const llvm::json::Object *t = v.getAsObject();
    c.inputs.push_back(t ? Input{readTensor(*t), t->get("c") != nullptr} : Input{});
  }
  for (const llvm::json::Value &v : *o.getArray("outputs"))
    c.outputs.push_back(readTensor(*v.getAsObject()));
  return c;
}

const std::vector<Case> &allCases() {
  static const auto *cases = [] {
    auto *out = new std::vector<Case>();
    auto file = llvm::MemoryBuffer::getFile(GPT2C_OP_CASES);
    if (!file) {
      ADD_FAILURE() << "cannot read " << GPT2C_OP_CASES;
      return out;
    }
    llvm::SmallVector<llvm::StringRef, 0> lines;
    (*file)->getBuffer().split(lines, '\n', -1, false);
    for (llvm::StringRef line : lines)
      out->push_back(readCase(line));
    return out;
  }();
  return *cases;
}

void expectNear(const Tensor &actual, const Tensor &expected, double tolerance,
                const std::string &what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (int64_t i = 0, n = expected.count(); i < n; ++i) {
    if (!isFloat(expected.dtype())) {
      ASSERT_EQ(actual.asInt(i), expected.asInt(i)) << what << ", element " << i;
      continue;
    }
    double a = actual.asDouble(i), e = expected.asDouble(i);
    if (std::isnan(e) || std::isinf(e))
      // A finite double may be beyond the range of the narrower type the expectation has.
      ASSERT_TRUE(std::isnan(e) ? std::isnan(a)
                                : a == e || (actual.dtype() != expected.dtype() &&
                                             std::fabs(a) > 3e38 && a * e > 0))
          << what << ", element " << i << ": " << a << ", expected " << e;
    else
      ASSERT_LE(std::fabs(a - e), tolerance * (1 + std::fabs(e)))
          << what << ", element " << i << ": " << a << ", expected " << e;
  }
}

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

void runCase(const Case &c, bool float64) {
  std::string what = c.op + " '" + c.name + "'" + (float64 ? " in f64" : "");
  Function function("case");
  Builder b(function);
  std::vector<Value *> operands;
  std::vector<Tensor> arguments;
  for (const Input &in : c.inputs) {
    if (!in.tensor.valid()) {
      operands.push_back(nullptr);
      continue;
    }
    // InPlace ops write into their first operand.
    Tensor copy(in.tensor.dtype(), in.tensor.shape());
    std::memcpy(copy.raw(), in.tensor.raw(), copy.bytes());
    if (in.constant) {
      operands.push_back(b.constant(copy));
      continue;
    }
    Shape shape(copy.shape().begin(), copy.shape().end());
    operands.push_back(
        function.addArgument({copy.dtype(), shape}, "x" + std::to_string(operands.size())));
    arguments.push_back(copy);
  }
  auto op = b.create(findOp(c.op)->code, operands, c.attrs);
  if (!op)
    FAIL() << what << ": " << llvm::toString(op.takeError());
  b.ret((*op)->results());
  for (unsigned i = 0; i < c.outputs.size(); ++i)
    EXPECT_EQ((*op)->result(i)->type.dtype, c.outputs[i].dtype()) << what;
  auto results = Executor(function, {.float64 = float64}).run(arguments);
  if (!results)
    FAIL() << what << ": " << llvm::toString(results.takeError());
  ASSERT_EQ(results->size(), c.outputs.size()) << what;
  for (size_t i = 0; i < results->size(); ++i) {
    if (!float64) {
      EXPECT_EQ((*results)[i].dtype(), c.outputs[i].dtype()) << what;
    }
    expectInferred(*(*op)->result(i), (*results)[i], what);
    expectNear((*results)[i], c.outputs[i], c.tolerance, what);
  }
}

/// `c` with what the op's traits promise applied: exchanged operands, or the op applied to its own
/// result.
std::vector<Case> promisedCases(const Case &c, const OpInfo &info) {
  std::vector<Case> out;
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

class OpCases : public testing::TestWithParam<const OpInfo *> {};

TEST_P(OpCases, MatchTheReference) {
  unsigned count = 0;
  for (const Case &c : allCases()) {
    if (c.op != GetParam()->mnemonic)
      continue;
    ++count;
    runCase(c, false);
    if (!c.nativeOnly)
      runCase(c, true);
    for (const Case &promised : promisedCases(c, *GetParam()))
      runCase(promised, false);
  }
  EXPECT_GE(count, 3u) << "too few cases of " << GetParam()->mnemonic.str();
}

std::vector<const OpInfo *> evaluatedOps() {
  std::vector<const OpInfo *> out;
  for (const OpInfo *info : allOps())
    if (info->eval &&
        info->code != OpCode::Constant) // a constant's elements are given, not computed
      out.push_back(info);
  return out;
}

INSTANTIATE_TEST_SUITE_P(, OpCases, testing::ValuesIn(evaluatedOps()),
                         [](const auto &info) { return info.param->mnemonic.str(); });

} // namespace
