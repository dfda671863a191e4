#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

/// How many numbers there are: max(ceil((limit - start) / delta), 0).
static std::optional<Dim> elements(const Dim &start, const Dim &limit, const Dim &delta,
                                   const DimBounds &bounds) {
  auto span = subDims(limit, start);
  if (!span)
    return std::nullopt;
  if (auto d = delta.constant()) {
    const int64_t by = std::abs(*d);
    const Dim way = Dim::positive(*d > 0 ? *span : Dim(0) - *span, bounds);
    return Dim::floorDiv(way + Dim(by - 1), by, bounds);
  }
  auto count = delta.range(bounds).lo >= 0 ? span->exactDiv(delta) : std::nullopt;
  return count ? std::optional(Dim::positive(*count, bounds)) : std::nullopt;
}

static llvm::Error inferRange(InferContext &c) {
  const char *names[] = {"start", "limit", "delta"};
  std::optional<Dim> values[3];
  std::optional<DType> dtype;
  if (const Attr *a = c.op().attr("dtype"))
    dtype = std::get<DType>(*a);
  for (unsigned i = 0; i < 3; ++i) {
    if (!listGiven(c.op(), names[i], i))
      return c.error(llvm::Twine("needs the operand or the attribute '") + names[i] + "'");
    if (c.has(i) && dtype && *dtype != c.dtype(i))
      return c.error("operands differ in element type");
    if (c.has(i))
      dtype = c.dtype(i);
    auto list = knownList(c, names[i], i);
    if (list && list->size() == 1)
      values[i] = list->front();
  }
  if (!dtype)
    dtype = DType::I64;
  auto &[start, limit, delta] = values;
  std::optional<Dim> count;
  if (start && limit && delta && isInteger(*dtype)) {
    if (*delta == Dim(0))
      return c.error("a delta of 0");
    count = elements(*start, *limit, *delta, c.bounds());
  }
  c.setResult(*dtype, {count ? *count : c.unknown(0)});
  auto n = count ? count->constant() : std::nullopt;
  if (!n || *n > 256)
    return llvm::Error::success();
  Dims content;
  for (int64_t i = 0; i < *n; ++i)
    content.push_back(*start + *delta * Dim(i));
  c.setContent(std::move(content));
  return llvm::Error::success();
}

static llvm::Error evalRange(EvalContext &c) {
  const char *names[] = {"start", "limit", "delta"};
  DType dtype = c.resultDType();
  Tensor values[3];
  for (unsigned i = 0; i < 3; ++i) {
    if (c.has(i)) {
      values[i] = c.input(i).cast(dtype);
      continue;
    }
    auto list = c.dims(names[i]);
    if (!list)
      return list.takeError();
    values[i] = Tensor::scalar<int64_t>(list->front()).cast(dtype);
  }
  return dispatch(c, dtype, [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    T start = *values[0].data<T>(), limit = *values[1].data<T>(), delta = *values[2].data<T>();
    if (delta == 0)
      return c.error("a delta of 0");
    double n = std::ceil((double(limit) - double(start)) / double(delta));
    if (!(n < 1e15))
      return c.error("a range without end");
    Tensor &out = c.allocate({std::max<int64_t>(0, int64_t(n))});
    T v = start;
    for (int64_t i = 0; i < out.count(); ++i, v = wrapAdd(v, delta))
      out.data<T>()[i] = v;
    return llvm::Error::success();
  });
}

static AttrSpec number(llvm::StringRef name) {
  return {.name = name,
          .kind = AttrKind::Dims,
          .doc = "one number, instead of the operand",
          .optional = true};
}

const OpInfo opRange = {
    .code = OpCode::Range,
    .mnemonic = "range",
    .summary = "y = start, start + delta, ... before limit",
    .operands = {{"start", OperandSpec::Optional},
                 {"limit", OperandSpec::Optional},
                 {"delta", OperandSpec::Optional}},
    .attrs = {number("start"),
              number("limit"),
              number("delta"),
              {.name = "dtype",
               .kind = AttrKind::DType,
               .doc = "absent: that of the operands, or i64",
               .optional = true}},
    .infer = inferRange,
    .eval = evalRange,
};

} // namespace gpt2c
