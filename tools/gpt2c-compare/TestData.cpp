#include "tools/gpt2c-compare/Checks.h"

#include "cpu/Convert.h"
#include "cpu/PlanModule.h"
#include "frontend/files/TensorProto.h"
#include "ir/Error.h"
#include "ir/Ports.h"
#include "ir/Tensor.h"
#include "passes/quantize/Precision.h"
#include "tools/common/RuntimeError.h"
#include "tools/runtime-common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace gpt2c {

namespace {

using Ports = std::vector<std::unique_ptr<plan::ExportedPortT>>;

struct Largest {
  double maxAbsolute = 0; // infinity: an element differs in being NaN or infinite
  double relative = 0;    // norm(difference) / norm(expected)
};

} // namespace

/// <folder>/<stem>_0.pb, <stem>_1.pb, ... in the order of `ports`: by their names where they have
/// names that the graph knows, else by number. Ports without a file are absent.
static llvm::Expected<std::vector<std::optional<Tensor>>>
readSet(llvm::StringRef folder, llvm::StringRef stem, const Ports &ports) {
  std::vector<std::optional<Tensor>> out(ports.size());
  for (size_t i = 0;; ++i) {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, stem + "_" + llvm::Twine(i) + ".pb");
    if (!llvm::sys::fs::exists(path)) {
      if (i == 0)
        return makeError(ExitCode::Io, "there is no " + path);
      return out;
    }
    auto tensor = readTensorProto(path);
    if (!tensor)
      return tensor.takeError();
    auto named = llvm::find_if(ports, [&](auto &port) { return port->name == tensor->name; });
    size_t index = named != ports.end() ? named - ports.begin() : i;
    if (index >= ports.size() || out[index])
      return makeError(ExitCode::Usage, path + ": the graph has no other " + stem + " for '" +
                                            tensor->name + "'; it has " +
                                            llvm::Twine(ports.size()));
    out[index] = std::move(tensor->tensor);
  }
}

/// The relative error of an output that rounding explains: measured on small decoders, 2 to 4
/// roundings of the plan's type, the stored one or the narrowest that the exported graph computes
/// in, at their worst; 20 are allowed.
static double limitOf(llvm::ArrayRef<DType> computedIn, DType stored) {
  double limit = byteSize(stored) >= 4 ? 1e-4 : 1e-2;
  for (DType computed : computedIn) {
    if (computed == DType::BF16 || stored == DType::BF16)
      limit = 20 * unitRoundoff(DType::BF16);
    else if (computed == DType::F16)
      limit = std::max(limit, 1e-2);
  }
  return limit;
}

namespace {

/// Tokens that see no key: padding on the left, of which no two tools compute the same.
struct Padding {
  int64_t batch = 0, tokens = 0, past = 0;
  std::vector<bool> blind; ///< [batch, tokens]

  int64_t count() const { return llvm::count(blind, true); }
};

} // namespace

/// Only the plan's own module knows what its export computed in.
static DType exportedPrecisionOf(const rt::Plan &plan) {
  auto module = loadPlanModule(rt::Plan::Ptr(&plan, [](const rt::Plan *) {}));
  if (module)
    return exportedPrecision(**module);
  llvm::consumeError(module.takeError());
  return DType::F32;
}

static Padding paddingOf(const Ports &ports, llvm::ArrayRef<std::optional<Tensor>> inputs) {
  Padding out;
  const Tensor *ids = nullptr, *mask = nullptr;
  for (auto [port, t] : llvm::zip_equal(ports, inputs)) {
    if (t && port->role == plan::Role::Ids && t->rank() == 2)
      ids = &*t;
    if (t && port->role == plan::Role::KeyMask && t->rank() == 2)
      mask = &*t;
  }
  if (!ids || !mask || ids->dim(0) != mask->dim(0) || mask->dim(1) < ids->dim(1))
    return out;
  out.batch = ids->dim(0), out.tokens = ids->dim(1), out.past = mask->dim(1) - out.tokens;
  for (int64_t b = 0; b < out.batch; ++b) {
    bool sees = false;
    for (int64_t k = 0; k < mask->dim(1); ++k) {
      sees |= mask->asDouble(b * mask->dim(1) + k) != 0;
      if (k >= out.past)
        out.blind.push_back(!sees);
    }
  }
  return out;
}

/// `got` with what is expected in the rows of padding, along the axis of tokens behind that of
/// sequences: [batch, tokens, ..] or keys and values [.., batch, heads, past + tokens, head_dim].
static Tensor withoutPadding(const Tensor &got, const Tensor &want, const Padding &padding) {
  const unsigned rank = got.rank();
  const bool rows = rank >= 2 && got.dim(0) == padding.batch && got.dim(1) == padding.tokens,
             keys = rank >= 4 && got.dim(rank - 4) == padding.batch &&
                    got.dim(rank - 2) == padding.past + padding.tokens;
  if (!rows && !keys)
    return got;
  Tensor out(want.dtype(), want.shape()), given = got.cast(want.dtype());
  std::memcpy(out.raw(), std::as_const(given).raw(), out.bytes());
  const unsigned batchAxis = rows ? 0 : rank - 4, tokenAxis = rows ? 1 : rank - 2;
  auto elementsOf = [&](unsigned axis) { // behind it
    const auto shape = llvm::ArrayRef(want.shape()).drop_front(axis + 1);
    return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
  };
  const int64_t row = elementsOf(tokenAxis), sequence = elementsOf(batchAxis),
                width = row * byteSize(want.dtype()), from = rows ? 0 : padding.past;
  for (int64_t i = 0; i < want.count() / std::max<int64_t>(row, 1); ++i) {
    const int64_t b = i * row / sequence % padding.batch, t = i % want.dim(tokenAxis) - from;
    if (t >= 0 && padding.blind[b * padding.tokens + t])
      std::memcpy(static_cast<char *>(out.raw()) + i * width,
                  static_cast<const char *>(want.raw()) + i * width, width);
  }
  return out;
}

static Largest differenceOf(const Tensor &got, const Tensor &expected) {
  Largest c;
  double difference = 0, norm = 0;
  for (int64_t i = 0, n = expected.count(); i < n; ++i) {
    double e = expected.asDouble(i), g = got.asDouble(i);
    bool same = e == g || (std::isnan(e) && std::isnan(g));
    double d = same ? 0 : std::fabs(g - e);
    if (!std::isfinite(d))
      d = std::numeric_limits<double>::infinity();
    c.maxAbsolute = std::max(c.maxAbsolute, d);
    difference += d * d;
    norm += std::isfinite(e) ? e * e : 0;
  }
  c.relative = difference == 0 ? 0 : std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
  return c;
}

static std::string digits(double v) {
  std::string out;
  llvm::raw_string_ostream(out) << llvm::format("%.3g", v);
  return out;
}

static std::string shapeText(const Tensor &t) {
  return rt::describe(toPlan(t.dtype()), {t.shape().begin(), t.shape().end()});
}

/// Returns how many outputs are out of tolerance.
static llvm::Expected<unsigned> runSet(rt::Session &session, const std::string &folder,
                                       const Tolerance &tolerance, Table &table) {
  const plan::PlanT &meta = session.plan().meta();
  auto inputs = readSet(folder, "input", meta.exported_inputs);
  if (!inputs)
    return inputs.takeError();
  auto expected = readSet(folder, "output", meta.exported_outputs);
  if (!expected)
    return expected.takeError();
  std::vector<rt::HostTensor> given;
  for (auto [i, t] : llvm::enumerate(*inputs)) {
    if (!t)
      return makeError(ExitCode::Usage, folder + " has no tensor for the graph's input '" +
                                            meta.exported_inputs[i]->name + "'");
    given.push_back(toHost(*t));
  }
  rt::Result<std::vector<rt::HostTensor>> results = session.forward(given);
  if (!results)
    return toError(results.status());
  const DType computedIn[] = {precisionOf(meta.precision).value_or(DType::F32),
                              exportedPrecisionOf(session.plan())};
  const Padding padding = paddingOf(meta.exported_inputs, *inputs);
  unsigned failed = 0;
  for (auto [i, want] : llvm::enumerate(*expected)) {
    if (!want)
      continue;
    Tensor got = toTensor((*results)[i]);
    const std::string &name = meta.exported_outputs[i]->name;
    const double limit = tolerance.relative.value_or(limitOf(computedIn, want->dtype()));
    if (got.shape() != want->shape()) {
      ++failed;
      table.addRow({name, shapeText(got), "", "", "FAIL: expected " + shapeText(*want)});
      continue;
    }
    Largest c = differenceOf(got, *want);
    auto passes = [&] {
      return c.relative <= limit &&
             c.maxAbsolute <= tolerance.absolute.value_or(std::numeric_limits<double>::max());
    };
    std::string result = passes() ? "PASS" : "FAIL";
    if (!passes() && padding.count() > 0) {
      c = differenceOf(withoutPadding(got, *want, padding), *want);
      result = (passes() ? "PASS" : "FAIL") + std::string(", without ") +
               std::to_string(padding.count()) + " rows of padding that see no key";
    }
    failed += !passes();
    table.addRow({name, shapeText(got), digits(c.maxAbsolute), digits(c.relative), result});
  }
  return failed;
}

llvm::Error runTestData(rt::Session &session, llvm::ArrayRef<std::string> folders,
                        const Tolerance &tolerance) {
  unsigned failed = 0;
  for (const std::string &folder : folders) {
    Table table({"output", "type", ">max abs error", ">relative error", "result"});
    auto bad = runSet(session, folder, tolerance, table);
    if (!bad)
      return inContext(folder, bad.takeError());
    failed += *bad;
    llvm::outs() << folder << " on " << session.backend().name() << "\n";
    table.print(llvm::outs());
    llvm::outs().flush();
  }
  if (failed)
    return makeError(ExitCode::Quality, llvm::Twine(failed) +
                                            (failed == 1 ? " output is" : " outputs are") +
                                            " out of tolerance");
  return llvm::Error::success();
}

} // namespace gpt2c
