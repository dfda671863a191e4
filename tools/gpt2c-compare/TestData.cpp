#include "tools/gpt2c-compare/Checks.h"

#include "cpu/Convert.h"
#include "frontend/TensorProto.h"
#include "ir/Error.h"
#include "passes/Precision.h"
#include "tools/common/RuntimeError.h"
#include "tools/runtime-common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

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
/// roundings of the plan's or of the stored type at their worst; 20 are allowed.
static double limitOf(llvm::StringRef precision, DType stored) {
  const DType computed = precisionOf(precision).value_or(DType::F32);
  if (computed == DType::BF16 || stored == DType::BF16)
    return 20 * unitRoundoff(DType::BF16);
  return computed == DType::F32 && byteSize(stored) >= 4 ? 1e-4 : 1e-2;
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
  unsigned failed = 0;
  for (auto [i, want] : llvm::enumerate(*expected)) {
    if (!want)
      continue;
    Tensor got = toTensor((*results)[i]);
    const std::string &name = meta.exported_outputs[i]->name;
    double limit = tolerance.relative.value_or(limitOf(meta.precision, want->dtype()));
    if (got.shape() != want->shape()) {
      ++failed;
      table.addRow({name, shapeText(got), "", "", "FAIL: expected " + shapeText(*want)});
      continue;
    }
    Largest c = differenceOf(got, *want);
    bool pass = c.relative <= limit &&
                c.maxAbsolute <= tolerance.absolute.value_or(std::numeric_limits<double>::max());
    failed += !pass;
    table.addRow(
        {name, shapeText(got), digits(c.maxAbsolute), digits(c.relative), pass ? "PASS" : "FAIL"});
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
