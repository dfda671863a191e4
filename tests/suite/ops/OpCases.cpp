#include "OpCases.h"

#include "ir/Builder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <cstring>

namespace gpt2c::suite {

static Tensor readTensor(const llvm::json::Object &o) {
  std::vector<int64_t> shape;
  for (const llvm::json::Value &d : *o.getArray("s"))
    shape.push_back(*d.getAsInteger());
  Tensor t(*parseDType(*o.getString("t")), shape);
  std::string bytes = llvm::fromHex(*o.getString("d"));
  if (bytes.size() != t.bytes())
    llvm::report_fatal_error("an op case's tensor has a wrong size");
  std::memcpy(t.raw(), bytes.data(), bytes.size());
  return t;
}

static Attr readAttr(const OpInfo &info, llvm::StringRef name, const llvm::json::Value &v) {
  const AttrSpec *spec = info.attr(name);
  if (!spec)
    llvm::report_fatal_error("no attribute " + name + " of " + info.mnemonic);
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

static OpCase readCase(llvm::StringRef line) {
  llvm::json::Value parsed = llvm::cantFail(llvm::json::parse(line));
  const llvm::json::Object &o = *parsed.getAsObject();
  OpCase c;
  c.op = o.getString("op")->str();
  c.name = o.getString("name")->str();
  c.tolerance = *o.getNumber("tol");
  if (const llvm::json::Object *slack = o.getObject("slack"))
    c.slack = readTensor(*slack);
  c.nativeOnly = o.get("native") != nullptr;
  const OpInfo *info = findOp(c.op);
  if (!info)
    llvm::report_fatal_error("no op " + llvm::Twine(c.op));
  for (const auto &[key, value] : *o.getObject("attrs"))
    c.attrs.push_back({intern(key.str()), readAttr(*info, key.str(), value)});
  for (const llvm::json::Value &v : *o.getArray("inputs")) {
    const llvm::json::Object *t = v.getAsObject();
    c.inputs.push_back(t ? CaseInput{readTensor(*t), t->get("c") != nullptr} : CaseInput{});
  }
  for (const llvm::json::Value &v : *o.getArray("outputs"))
    c.outputs.push_back(readTensor(*v.getAsObject()));
  return c;
}

const std::vector<OpCase> &allOpCases(llvm::StringRef path) {
  static const auto *cases = [&] {
    auto *out = new std::vector<OpCase>();
    std::string name = path.empty() ? GPT2C_OP_CASES : path.str();
    auto file = llvm::MemoryBuffer::getFile(name);
    if (!file)
      llvm::report_fatal_error("cannot read " + llvm::Twine(name));
    llvm::SmallVector<llvm::StringRef, 0> lines;
    (*file)->getBuffer().split(lines, '\n', -1, false);
    for (llvm::StringRef line : lines)
      out->push_back(readCase(line));
    return out;
  }();
  return *cases;
}

llvm::Expected<CaseFunction> makeFunction(const OpCase &c, std::string name,
                                          IsSymbolic isSymbolic) {
  CaseFunction out;
  out.function = std::make_unique<Function>(std::move(name));
  Builder b(*out.function);
  std::vector<Value *> operands;
  for (const CaseInput &in : c.inputs) {
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
    Shape shape;
    for (int64_t d : copy.shape())
      shape.push_back(d > 1 && isSymbolic(d) ? Dim::symbol("s" + std::to_string(d)) : Dim(d));
    operands.push_back(
        out.function->addArgument({copy.dtype(), shape}, "x" + std::to_string(operands.size())));
    out.arguments.push_back(copy);
  }
  auto op = b.create(findOp(c.op)->code, operands, c.attrs);
  if (!op)
    return op.takeError();
  out.op = *op;
  b.ret(out.op->results());
  return out;
}

std::string difference(const Tensor &actual, const Tensor &expected, double tolerance,
                       const Tensor &slack) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (actual.shape() != expected.shape()) {
    os << "shape [";
    llvm::interleaveComma(actual.shape(), os);
    os << "], expected [";
    llvm::interleaveComma(expected.shape(), os);
    os << "]";
    return os.str();
  }
  const DType type = expected.dtype();
  const bool numbers = isFloat(type) || infoOf(type).kind == DTypeInfo::Steps;
  for (int64_t i = 0, n = expected.count(); i < n; ++i) {
    bool same;
    if (!numbers) {
      // What is quantised from values with errors may become the next integer.
      bool rounded = type == DType::I8 && tolerance > 1e-3;
      same = std::abs(actual.asInt(i) - expected.asInt(i)) <= (rounded ? 1 : 0);
    } else {
      double a = actual.asDouble(i), e = expected.asDouble(i);
      if (std::isnan(e))
        same = std::isnan(a);
      else if (std::isinf(e))
        // A finite double may be beyond the range of the narrower type the expectation has.
        same = a == e || (actual.dtype() != type && std::fabs(a) > 3e38 && a * e > 0);
      else
        same = std::fabs(a - e) <=
               tolerance * (1 + std::fabs(e)) + (slack.valid() ? slack.asDouble(i) : 0);
    }
    if (same)
      continue;
    os << "element " << i << " of " << n << ": ";
    if (numbers)
      os << actual.asDouble(i) << ", expected " << expected.asDouble(i);
    else
      os << actual.asInt(i) << ", expected " << expected.asInt(i);
    return os.str();
  }
  return os.str();
}

} // namespace gpt2c::suite
