#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "tools/gpt2c-dump/Dump.h"
#include "tools/runtime-common/Table.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <map>
#include <set>

namespace gpt2c {

rt::ModelTexts textsOf(const rt::Plan &plan) {
  const std::span<const std::byte> blob = plan.tokenizerBlob();
  if (blob.empty())
    return {};
  auto tokenizer =
      rt::Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
  return tokenizer ? tokenizer->texts() : rt::ModelTexts();
}

FunctionView::FunctionView(const plan::FunctionT &function,
                           std::optional<std::vector<int64_t>> values)
    : function_(function), values_(std::move(values)) {
  for (const auto &symbol : function.symbols)
    names_.push_back(printable(symbol->name));
}

std::string FunctionView::text(const plan::ExprT &expr) const {
  rt::Result<std::string> printed = rt::printExpr(expr, names_);
  return printed ? *printed : "?";
}

std::optional<int64_t> FunctionView::value(const plan::ExprT &expr) const {
  if (!values_)
    return std::nullopt;
  rt::Result<int64_t> value = rt::evalExpr(expr, *values_);
  return value ? std::optional(*value) : std::nullopt;
}

std::string FunctionView::show(const plan::ExprT &expr) const {
  std::optional<int64_t> known = value(expr);
  return known ? std::to_string(*known) : text(expr);
}

std::string FunctionView::type(plan::DType dtype,
                               const std::vector<std::unique_ptr<plan::ExprT>> &shape) const {
  std::string out = std::string(rt::dtypeName(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i)
    out += (i ? ", " : "") + show(*shape[i]);
  return out + "]";
}

uint64_t peakLiveBytes(const plan::FunctionT &function) {
  std::vector<int64_t> change(function.steps.size() + 1);
  for (const auto &buffer : function.buffers) {
    change[buffer->first_step] += int64_t(buffer->bytes);
    change[buffer->last_step + 1] -= int64_t(buffer->bytes);
  }
  int64_t live = 0, peak = 0;
  for (int64_t delta : change)
    peak = std::max(peak, live += delta);
  return uint64_t(peak);
}

DeviceBytes deviceBytes(const rt::Plan &plan) {
  // A device has the functions of one list of architectures; those of ranks are none of this.
  std::map<std::vector<std::string>, std::array<uint64_t, 2>> arena, scratch;
  for (const auto &function : plan.meta().functions) {
    if (function->ranks > 1)
      continue;
    bool late = plan.meta().kv && function->name == rt::functions::forward;
    uint64_t &most = arena[function->archs][late];
    most = std::max(most, function->arena_bytes);
    scratch[function->archs][late] += function->scratch_bytes;
  }
  uint64_t state = plan.meta().kv ? plan.meta().kv->bytes : 0;
  uint64_t weights = plan.weights().size();
  for (const auto &weight : plan.meta().weights)
    weights += weight->packed >= 0 ? weight->bytes : 0;
  DeviceBytes bytes = {weights + state, 0};
  for (const auto &[archs, of] : arena) {
    const auto &others = scratch[archs];
    bytes.loaded = std::max(bytes.loaded, weights + state + of[0] + others[0]);
    bytes.forward = std::max(bytes.forward, of[1] + others[1]);
  }
  return bytes;
}

std::string describe(const DeviceBytes &bytes) {
  std::string text = formatBytes(bytes.loaded);
  if (bytes.forward)
    text += "; " + formatBytes(bytes.forward) + " more once @forward runs";
  return text;
}

std::string hex(uint64_t value) {
  std::string out;
  llvm::raw_string_ostream(out) << llvm::format_hex(value, 18);
  return out;
}

std::string boundsText(const plan::FunctionT &function) {
  std::string out;
  for (const auto &symbol : function.symbols)
    out += (out.empty() ? "" : ", ") + printable(symbol->name) + " " + std::to_string(symbol->min) +
           ".." + std::to_string(symbol->max);
  if (out.empty())
    out = "no symbols";
  if (function.ranks > 1)
    out += "; as one of " + std::to_string(function.ranks) + " ranks";
  return function.archs.empty() ? out
                                : out + "; for " + printable(llvm::join(function.archs, ", "));
}

static std::string joined(const std::vector<std::string> &items, const char *separator = ", ") {
  return printable(llvm::join(items, separator));
}

static std::string describeKv(const plan::KvPlanT &kv) {
  return std::string(rt::dtypeName(kv.dtype)) + ", " + std::to_string(kv.layers) + " layers x " +
         std::to_string(kv.heads) + " heads x " + std::to_string(kv.head_dim) + ", batch " +
         std::to_string(kv.max_batch) + " x context " + std::to_string(kv.max_context) + ": " +
         std::to_string(kv.bytes_per_token) + " bytes per token, " + formatBytes(kv.bytes);
}

/// "2: 1 of 2 heads of keys each, 237.4 MiB of weights".
static std::string describeRanks(const plan::RanksT &ranks) {
  std::set<int32_t> heads(ranks.kv_heads.begin(), ranks.kv_heads.end());
  heads.erase(-1);
  return std::to_string(ranks.tensor) + ": " +
         std::to_string(ranks.kv_heads.size() / size_t(ranks.tensor)) + " of " +
         std::to_string(heads.size()) + " heads of keys each, at most " +
         formatBytes(ranks.weight_bytes) + " of weights";
}

/// "f16 148 tensors 237.4 MiB, f32 ..." in order of the data types.
static std::string describeWeights(const rt::Plan &plan) {
  std::map<plan::DType, std::pair<size_t, uint64_t>> byType;
  size_t packed = 0;
  for (const auto &weight : plan.meta().weights) {
    packed += weight->packed >= 0;
    auto &[count, bytes] = byType[weight->dtype];
    ++count;
    bytes += weight->bytes;
  }
  std::string out = std::to_string(plan.meta().weights.size()) + " tensors, " +
                    formatBytes(plan.weights().size()) + " stored";
  for (const auto &[dtype, total] : byType)
    out += "; " + std::string(rt::dtypeName(dtype)) + ": " + std::to_string(total.first) + ", " +
           formatBytes(total.second);
  if (packed > 0)
    out += "; " + std::to_string(packed) + " of bf16 are made of packed ones in u8";
  return out;
}

/// One row for each section, one for all images of an architecture.
static void printSections(const rt::Plan &plan, llvm::raw_ostream &os) {
  Table table({">#", "kind", "name", ">offset", ">bytes", ">size", "checksum"});
  auto archOf = [](const rt::Section &s) { return llvm::StringRef(s.name).split('/').first; };
  size_t count = plan.sections().size();
  for (size_t i = 0, end; i < count; i = end) {
    const rt::Section &section = plan.sections()[i];
    uint64_t bytes = section.bytes.size();
    for (end = i + 1; end < count && section.kind == rt::SectionKind::Image; ++end) {
      const rt::Section &next = plan.sections()[end];
      if (next.kind != section.kind || archOf(next) != archOf(section))
        break;
      bytes += next.bytes.size();
    }
    bool one = end == i + 1;
    table.addRow({std::to_string(i) + (one ? "" : ".." + std::to_string(end - 1)),
                  rt::sectionKindName(section.kind),
                  printable(one ? llvm::StringRef(section.name) : archOf(section)),
                  std::to_string(section.offset), std::to_string(bytes), formatBytes(bytes),
                  one ? hex(section.checksum) : std::to_string(end - i) + " images"});
  }
  os << "\nSections\n";
  table.print(os);
}

/// "Ids", "PastTensor 3 Key"
static std::string roleText(plan::Role role, int layer, plan::KvPart part) {
  std::string out = plan::EnumNameRole(role);
  if (layer >= 0)
    out += " " + std::to_string(layer) + " " + plan::EnumNameKvPart(part);
  return out;
}

static void printPorts(const FunctionView &view, llvm::raw_ostream &os) {
  Table table({"", "name", "type", "role", "exported"});
  auto add = [&](const char *direction, const plan::PortT &port) {
    table.addRow({direction, printable(port.name), view.type(port.dtype, port.shape),
                  roleText(port.role, port.layer, port.part), rt::dtypeName(port.exported_dtype)});
  };
  for (const auto &port : view.function().inputs)
    add("in", *port);
  for (const auto &port : view.function().outputs)
    add("out", *port);
  table.print(os, 4);
}

/// The CPU alone runs the plan, from its IR: it has no steps, buffers and kernels.
static bool isForCpu(const rt::Plan &plan) { return plan.meta().images.empty(); }

static void printFunctions(const DumpContext &context, llvm::raw_ostream &os) {
  os << "\nFunctions\n";
  for (const FunctionView &view : context.functions) {
    const plan::FunctionT &function = view.function();
    os << "  " << printable(function.name) << ": ";
    if (!isForCpu(context.plan))
      os << function.steps.size() << " steps, arena " << formatBytes(function.arena_bytes)
         << ", scratch " << formatBytes(function.scratch_bytes) << "; ";
    os << boundsText(function)
       << (function.body.empty() ? "" : "; from @" + printable(function.body)) << "\n";
    printPorts(view, os);
  }
}

static void printKernels(const DumpContext &context, llvm::raw_ostream &os) {
  const plan::PlanT &meta = context.plan.meta();
  std::vector<size_t> uses(meta.kernels.size());
  std::vector<std::set<std::string>> ops(meta.kernels.size());
  for (const FunctionView &view : context.functions)
    for (const auto &step : view.function().steps) {
      ++uses[step->kernel];
      ops[step->kernel].insert(step->op);
    }
  Table table({">#", "name", "module", ">steps", "ops"});
  for (size_t i = 0; i < meta.kernels.size(); ++i)
    table.addRow({std::to_string(i), printable(meta.kernels[i]->name),
                  printable(meta.sources[meta.kernels[i]->source]->name), std::to_string(uses[i]),
                  joined({ops[i].begin(), ops[i].end()})});
  os << "\nKernels\n";
  table.print(os);
}

static void printExported(const plan::PlanT &meta, llvm::raw_ostream &os) {
  if (meta.exported_inputs.empty() && meta.exported_outputs.empty())
    return;
  Table table({"", "name", "dtype", "role"});
  auto add = [&](const char *direction, const plan::ExportedPortT &port) {
    table.addRow({direction, printable(port.name), rt::dtypeName(port.dtype),
                  roleText(port.role, port.layer, port.part)});
  };
  for (const auto &port : meta.exported_inputs)
    add("in", *port);
  for (const auto &port : meta.exported_outputs)
    add("out", *port);
  os << "\nExported graph\n";
  table.print(os);
}

/// How the plan was quantised, and what that costs.
/// What a scheme of --quantize is, in a line.
static llvm::StringRef meaning(llvm::StringRef scheme) {
  return llvm::StringSwitch<llvm::StringRef>(scheme)
      .Case("w8a16", "int8 weights, activations in the plan's precision")
      .Case("w8a8", "int8 weights, in @prefill int8 activations with a scale for each token")
      .Case("w8a8-tensor", "int8 weights and activations, one scale for each tensor")
      .Case("w8a8-smooth", "as w8a8, outliers of activations moved into the weights")
      .Case("fp8", "fp8 (E4M3) weights, in @prefill activations in fp8 with a scale for each token")
      .Case("fp8-tensor", "as fp8, with one scale for each activation")
      .Case("fp8-weights", "weights in fp8 (E4M3), activations in the plan's precision")
      .Case("auto", "each layer in the fastest scheme with which the limits hold")
      .Case("fp8-block",
            "weights in fp8 (E4M3) with a scale for each block of 128 x 128, activations in the "
            "plan's precision")
      .Case("w4a16", "int4 weights in groups of rows, activations in the plan's precision")
      .Default("");
}

/// What --quantize=auto chose: how many layers are in each scheme, and each layer.
static void printChosen(const plan::QuantizationT &q, llvm::raw_ostream &os) {
  std::map<std::string, int> counts;
  for (const auto &layer : q.chosen)
    ++counts[layer->scheme];
  const char *separator = "  chosen: ";
  for (const auto &[scheme, count] : counts) {
    os << separator << count << " of " << q.chosen.size() << " layers "
       << (scheme == "none" ? "unquantised" : "in " + printable(scheme));
    separator = ", ";
  }
  os << "\n";
  for (const auto &layer : q.chosen) {
    os << "  " << printable(layer->name) << ": " << printable(layer->scheme);
    if (layer->scheme != "none")
      os << llvm::formatv(", {0:f2} of its time", layer->share);
    if (layer->kl >= 0)
      os << llvm::formatv("; its fastest scheme alone has a KL divergence of {0:e2}", layer->kl);
    os << "\n";
  }
}

static void printQuantization(const plan::QuantizationT &q, llvm::raw_ostream &os) {
  const llvm::StringRef what = llvm::StringRef(q.scheme).starts_with("fp8") ? "fp8"
                               : q.scheme == "w4a16"                        ? "int4"
                               : q.scheme == "auto"                         ? "quantisation"
                                                                            : "int8";
  os << "\nQuantization\n  scheme " << printable(q.scheme);
  if (llvm::StringRef text = meaning(q.scheme); !text.empty())
    os << ": " << text;
  if (q.weight_group > 0)
    os << "; weights in groups of " << q.weight_group;
  os << (q.int8_kv ? "; int8 KV state\n" : "\n");
  if (!q.calibration.empty())
    os << "  calibrated on " << q.calibration_tokens << " tokens, hash " << printable(q.calibration)
       << "\n";
  if (q.eval_tokens > 0)
    os << llvm::formatv("  over {0} tokens: perplexity {1:f4}, {2:f4} without {8} ({3}{4:f3} %); "
                        "KL divergence mean {5:e2}, p99 {6:e2}; same most likely token {7:f2} %\n",
                        q.eval_tokens, q.perplexity, q.base_perplexity,
                        q.perplexity >= q.base_perplexity ? "+" : "",
                        (q.perplexity / q.base_perplexity - 1) * 100, q.kl_mean, q.kl_p99,
                        q.agreement * 100, what);
  else
    os << "  quality not measured: gpt2c --eval=TEXT compares with the model without " << what
       << "\n";
  if (!q.chosen.empty())
    printChosen(q, os);
  for (const auto &layer : q.kept)
    os << "  kept " << printable(layer->name)
       << llvm::formatv(": {0} in it alone has a KL divergence of {1:e2}\n", what, layer->kl);
}

/// The comparison with the exported graph.
static void printVerification(const plan::VerificationT *v, llvm::raw_ostream &os) {
  os << "\nVerification\n";
  if (!v) {
    os << "  not verified: compiled with --verify=off, or by an older gpt2c; gpt2c-run "
          "--check-against=MODEL.onnx does it now\n";
    return;
  }
  os << "  against the exported graph, mode " << printable(v->mode) << "\n";
  Table table({"function", ">sequences", ">tokens", ">largest error", ">in double", ">allowed"});
  for (const auto &check : v->checks)
    table.addRow(
        {printable(check->what), std::to_string(check->batch), std::to_string(check->tokens),
         llvm::formatv("{0:e1}", check->error),
         check->error_in_double < 0 ? "" : llvm::formatv("{0:e1}", check->error_in_double).str(),
         llvm::formatv("{0:e1}", check->tolerance)});
  table.print(os);
  for (const std::string &what : v->unchecked)
    os << "  not verified: " << printable(what) << "\n";
}

/// What gpt2c-run --self-test asks a machine.
static void printGolden(const plan::GoldenT &golden, llvm::raw_ostream &os) {
  size_t rows = 0;
  std::string lengths;
  for (const auto &prompt : golden.prompts) {
    lengths += (lengths.empty() ? "" : ", ") + std::to_string(prompt->ids.size());
    rows += prompt->rows.size();
  }
  os << "  golden prompts of " << lengths << " tokens: " << rows << " rows of logits, tolerance "
     << llvm::format("%.2g", double(golden.tolerance)) << "\n";
}

std::string describeSampling(const rt::SamplingAdvice &s) {
  if (!s.sample)
    return "greedy, as the model's makers advise";
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "the model's makers advise temperature " << llvm::format("%g", s.temperature);
  if (s.topK > 0)
    os << ", top k " << s.topK;
  if (s.topP < 1)
    os << ", top p " << llvm::format("%g", s.topP);
  if (s.minP > 0)
    os << ", min p " << llvm::format("%g", s.minP);
  if (s.repetitionPenalty != 1)
    os << ", repetition penalty " << llvm::format("%g", s.repetitionPenalty);
  return text;
}

std::vector<std::pair<const char *, std::string>> planFacts(const rt::Plan &plan) {
  const plan::PlanT &meta = plan.meta();
  std::string tokenizer =
      plan.tokenizerBlob().empty() ? "none" : formatBytes(plan.tokenizerBlob().size());
  const rt::ModelTexts texts = textsOf(plan);
  std::string vocabulary = std::to_string(meta.vocab_size) + " tokens";
  if (meta.eos_token >= 0)
    vocabulary += ", end of text " + std::to_string(meta.eos_token);
  for (const int32_t token : texts.ends)
    if (token != meta.eos_token)
      vocabulary += ", " + std::to_string(token);
  std::vector<std::pair<const char *, std::string>> facts = {
      {"model", meta.model_name + ", hash " + hex(meta.model_hash)},
      {"compiler", "gpt2c " + meta.compiler_version + ", plan format " +
                       std::to_string(plan.header().formatVersion)},
      {"precision", meta.precision},
      {"flags", joined(meta.flags, " ")},
      {"images",
       isForCpu(plan) ? "none, the CPU runs the IR" : rt::fieldText(plan.header().architectures)},
      {"vocabulary", vocabulary},
      {"tokenizer", tokenizer},
      {"weights", describeWeights(plan)},
      {"KV state", meta.kv ? describeKv(*meta.kv) : "none"},
      {"on device", describe(deviceBytes(plan))},
  };
  if (texts.sampling)
    facts.push_back({"sampling", describeSampling(*texts.sampling)});
  for (const rt::NamedText &chat : texts.chatTemplates)
    facts.push_back(
        {"chat", "template \"" + printable(chat.name) + "\", " + formatBytes(chat.text.size())});
  for (const auto &ranks : meta.ranks)
    facts.push_back({"ranks", describeRanks(*ranks)});
  if (meta.batch_invariant)
    facts.push_back({"rows", "batch invariant: what a row becomes depends on its sequence alone, "
                             "bit for bit"});
  return facts;
}

void dumpSummary(const DumpContext &context, llvm::raw_ostream &os) {
  const rt::Plan &plan = context.plan;
  const plan::PlanT &meta = plan.meta();
  os << llvm::left_justify("plan", 12) << printable(context.path) << ", "
     << formatBytes(plan.fileBytes()) << "\n";
  for (const auto &[title, value] : planFacts(plan))
    os << llvm::left_justify(title, 12) << printable(value) << "\n";
  printSections(plan, os);
  printExported(meta, os);
  printFunctions(context, os);
  if (!isForCpu(plan))
    printKernels(context, os);
  if (meta.quantization)
    printQuantization(*meta.quantization, os);
  printVerification(meta.verification.get(), os);
  if (meta.golden)
    printGolden(*meta.golden, os);
  if (!meta.remarks.empty())
    os << "\nRemarks\n";
  for (const auto &remark : meta.remarks) {
    os << "  " << printable(remark->severity) << " [" << printable(remark->pass)
       << "]: " << printable(remark->message);
    if (!remark->nodes.empty())
      os << " (" << joined(remark->nodes) << ")";
    if (remark->launches > 0 || remark->bytes > 0)
      os << "; costs " << remark->launches << " launches and "
         << formatBytes(std::max<int64_t>(0, remark->bytes)) << " a step";
    os << "\n";
  }
}

void dumpMemory(const DumpContext &context, llvm::raw_ostream &os) {
  const rt::Plan &plan = context.plan;
  if (isForCpu(plan))
    os << "The plan has no GPU code: the CPU takes the memory of each op as it runs.\n\n";
  for (const FunctionView &view : context.functions) {
    if (isForCpu(plan))
      break;
    const plan::FunctionT &function = view.function();
    uint64_t sum = 0;
    Table table({">#", "name", "type", ">offset", ">bytes", "steps"});
    for (size_t i = 0; i < function.buffers.size(); ++i) {
      const plan::BufferT &buffer = *function.buffers[i];
      sum += buffer.bytes;
      table.addRow({std::to_string(i), printable(buffer.name),
                    view.type(buffer.dtype, buffer.shape), std::to_string(buffer.offset),
                    std::to_string(buffer.bytes),
                    std::to_string(buffer.first_step) + ".." + std::to_string(buffer.last_step)});
    }
    os << printable(function.name) << " (" << boundsText(function) << "): arena "
       << formatBytes(function.arena_bytes) << " for buffers of " << formatBytes(sum)
       << "; alive at one step at most " << formatBytes(peakLiveBytes(function)) << "; scratch "
       << formatBytes(function.scratch_bytes) << "\n";
    table.print(os);
    os << "\n";
  }
  os << "weights    " << describeWeights(plan) << "\n";
  os << "KV state   " << (plan.meta().kv ? describeKv(*plan.meta().kv) : "none") << "\n";
  os << "on device  " << describe(deviceBytes(plan))
     << " (weights, KV state, the largest arena, scratch)\n";
}

void dumpCuda(const DumpContext &context, llvm::raw_ostream &os) {
  const plan::PlanT &meta = context.plan.meta();
  for (size_t i = 0; i < meta.sources.size(); ++i) {
    os << "// ---- " << printable(meta.sources[i]->name);
    for (size_t j = 0; j < meta.images.size(); ++j)
      if (meta.images[j]->source == int(i))
        os << ", " << printable(meta.images[j]->arch) << " "
           << formatBytes(context.plan.image(j).size());
    os << " ----\n" << meta.sources[i]->text;
    if (!llvm::StringRef(meta.sources[i]->text).ends_with("\n"))
      os << "\n";
  }
}

} // namespace gpt2c
