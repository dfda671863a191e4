#include "runtime/plan/PlanMetadata.h"

namespace gpt2c::rt {
namespace {

template <typename T> using Vector = flatbuffers::Vector<T>;
template <typename T> using Tables = flatbuffers::Vector<flatbuffers::Offset<T>>;

/// Closes two gaps of flatbuffers::Verifier: it does not check that the elements of a vector are
/// aligned, and it lets tables share strings and vectors, so that a small file could unpack to any
/// size. No writer shares them: what a plan unpacks to is never more than what it is packed in.
class Audit {
public:
  bool passes(const plan::Plan &plan, size_t limit) {
    visit(plan);
    return aligned_ && bytes_ <= limit;
  }

private:
  void add(const flatbuffers::String *text) { bytes_ += text ? text->size() : 0; }
  template <typename T> void add(const Vector<T> *scalars) {
    if (!scalars)
      return;
    bytes_ += scalars->size() * sizeof(T);
    aligned_ &= reinterpret_cast<uintptr_t>(scalars->Data()) % sizeof(T) == 0;
  }
  template <typename T> void add(const Tables<T> *tables) {
    if (!tables)
      return;
    bytes_ += tables->size() * sizeof(flatbuffers::uoffset_t);
    for (const T *table : *tables)
      visit(*table);
  }
  void add(const Tables<flatbuffers::String> *texts) {
    if (!texts)
      return;
    for (const flatbuffers::String *text : *texts)
      add(text);
  }
  void add(const plan::Expr *expr) {
    if (expr)
      visit(*expr);
  }
  template <typename... Fields> void addAll(Fields... fields) { (add(fields), ...); }

  void visit(const plan::Expr &expr) { add(expr.code()); }
  void visit(const plan::Port &port) { addAll(port.name(), port.shape()); }
  void visit(const plan::Buffer &buffer) { addAll(buffer.name(), buffer.shape()); }
  void visit(const plan::Arg &arg) { add(arg.expr()); }
  void visit(const plan::Step &step) {
    addAll(step.op(), step.grid(), step.block(), step.args(), step.nodes(), step.bytes(),
           step.flops(), step.past_bytes(), step.past_flops(), step.choice_key(), step.choice(),
           step.sum_order());
  }
  void visit(const plan::Symbol &symbol) { add(symbol.name()); }
  void visit(const plan::SumLimit &limit) { add(limit.sum()); }
  void visit(const plan::Function &function) {
    addAll(function.name(), function.symbols(), function.inputs(), function.outputs(),
           function.buffers(), function.steps(), function.limits());
  }
  void visit(const plan::Kernel &kernel) { add(kernel.name()); }
  void visit(const plan::Source &source) { addAll(source.name(), source.text()); }
  void visit(const plan::Image &image) { add(image.arch()); }
  void visit(const plan::Weight &weight) { addAll(weight.name(), weight.shape()); }
  void visit(const plan::Remark &remark) {
    addAll(remark.pass(), remark.severity(), remark.message(), remark.nodes(), remark.pattern(),
           remark.matched(), remark.op(), remark.attribute());
  }
  void visit(const plan::ExportedPort &port) { add(port.name()); }
  void visit(const plan::Ranks &ranks) { add(ranks.kv_heads()); }
  void visit(const plan::KeptLayer &layer) { add(layer.name()); }
  void visit(const plan::FunctionCheck &check) { add(check.what()); }
  void visit(const plan::GoldenRow &row) {
    addAll(row.top_ids(), row.top_logprobs(), row.projections());
  }
  void visit(const plan::GoldenPrompt &prompt) { addAll(prompt.ids(), prompt.rows()); }
  void visit(const plan::Plan &plan) {
    addAll(plan.compiler_version(), plan.model_name(), plan.precision(), plan.flags(),
           plan.weights(), plan.exported_inputs(), plan.exported_outputs(), plan.functions(),
           plan.kernels(), plan.sources(), plan.images(), plan.remarks(), plan.ranks());
    if (const plan::Quantization *q = plan.quantization())
      addAll(q->scheme(), q->calibration(), q->kept());
    if (const plan::Verification *v = plan.verification())
      addAll(v->mode(), v->checks(), v->unchecked());
    if (const plan::Golden *g = plan.golden())
      add(g->prompts());
  }

  uint64_t bytes_ = 0;
  bool aligned_ = true;
};

} // namespace

std::unique_ptr<plan::PlanT> unpackMetadata(std::span<const std::byte> bytes, Issues &issues) {
  if (bytes.size() > kMaxMetadataBytes) {
    issues.corrupt("the metadata has " + std::to_string(bytes.size()) + " bytes");
    return nullptr;
  }
  const auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  // A table takes at least eight bytes, so a verifier that meets more of them meets shared ones.
  flatbuffers::Verifier verifier(data, bytes.size(), /*max_depth=*/16,
                                 /*max_tables=*/flatbuffers::uoffset_t(bytes.size() / 8));
  if (bytes.size() < 16 || !plan::VerifyPlanBuffer(verifier) ||
      !Audit().passes(*plan::GetPlan(data), bytes.size())) {
    issues.corrupt("the metadata is no valid FlatBuffer");
    return nullptr;
  }
  return plan::UnPackPlan(data);
}

} // namespace gpt2c::rt
