#include "tools/gpt2c-dump/Dump.h"

#include "llvm/Support/JSON.h"

namespace gpt2c {
namespace {

/// Names come from a file and may hold any bytes; JSON holds UTF-8 only.
std::string utf8(llvm::StringRef text) { return llvm::json::fixUTF8(text); }

class JsonDump {
public:
  JsonDump(const DumpContext &context, llvm::raw_ostream &os)
      : context_(context), plan_(context.plan), meta_(context.plan.meta()), json_(os, 2) {}

  void run() {
    json_.object([&] {
      writePlan();
      array("sections", plan_.sections(), [&](const rt::Section &s) { writeSection(s); });
      array("weights", meta_.weights, [&](const auto &w) { writeWeight(*w); });
      if (meta_.kv)
        json_.attributeObject("kv", [&] { writeKv(*meta_.kv); });
      array("ranks", meta_.ranks, [&](const auto &r) {
        json_.attribute("tensor", r->tensor);
        json_.attributeArray("kv_heads", [&] {
          for (int32_t head : r->kv_heads)
            json_.value(head);
        });
        json_.attribute("weight_bytes", r->weight_bytes);
      });
      array("exported_inputs", meta_.exported_inputs, [&](const auto &p) { writeExported(*p); });
      array("exported_outputs", meta_.exported_outputs, [&](const auto &p) { writeExported(*p); });
      array("modules", meta_.sources, [&](const auto &s) {
        json_.attribute("name", utf8(s->name));
        json_.attribute("bytes", int64_t(s->text.size()));
      });
      array("kernels", meta_.kernels, [&](const auto &k) {
        json_.attribute("name", utf8(k->name));
        json_.attribute("module", k->source);
      });
      array("images", meta_.images, [&](const auto &i) {
        json_.attribute("arch", utf8(i->arch));
        json_.attribute("module", i->source);
        json_.attribute("section", int64_t(i->section));
        json_.attribute("ptx", i->ptx);
      });
      array("functions", context_.functions, [&](const FunctionView &v) { writeFunction(v); });
      if (meta_.quantization)
        json_.attributeObject("quantization", [&] { writeQuantization(*meta_.quantization); });
      if (meta_.verification)
        json_.attributeObject("verification", [&] { writeVerification(*meta_.verification); });
      if (meta_.golden)
        json_.attributeObject("golden", [&] { writeGolden(*meta_.golden); });
      array("remarks", meta_.remarks, [&](const auto &r) {
        json_.attribute("pass", utf8(r->pass));
        json_.attribute("severity", utf8(r->severity));
        json_.attribute("pattern", utf8(r->pattern));
        json_.attribute("matched", utf8(r->matched));
        json_.attribute("op", utf8(r->op));
        json_.attribute("attribute", utf8(r->attribute));
        json_.attribute("launches", r->launches);
        json_.attribute("bytes", r->bytes);
        json_.attribute("message", utf8(r->message));
        strings("nodes", r->nodes);
      });
    });
  }

private:
  void writeQuantization(const plan::QuantizationT &q) {
    json_.attribute("scheme", utf8(q.scheme));
    json_.attribute("int8_kv", q.int8_kv);
    json_.attribute("weight_group", q.weight_group);
    if (!q.calibration.empty()) {
      json_.attribute("calibration", utf8(q.calibration));
      json_.attribute("calibration_tokens", q.calibration_tokens);
    }
    if (q.eval_tokens > 0) {
      json_.attribute("eval_tokens", q.eval_tokens);
      json_.attribute("base_perplexity", q.base_perplexity);
      json_.attribute("perplexity", q.perplexity);
      json_.attribute("kl_mean", q.kl_mean);
      json_.attribute("kl_p99", q.kl_p99);
      json_.attribute("top1_agreement", q.agreement);
    }
    array("kept", q.kept, [&](const auto &layer) {
      json_.attribute("name", utf8(layer->name));
      json_.attribute("kl", layer->kl);
    });
    if (!q.chosen.empty())
      array("chosen", q.chosen, [&](const auto &layer) {
        json_.attribute("name", utf8(layer->name));
        json_.attribute("scheme", utf8(layer->scheme));
        json_.attribute("share", layer->share);
        if (layer->kl >= 0)
          json_.attribute("kl", layer->kl);
      });
  }
  void writeVerification(const plan::VerificationT &v) {
    json_.attribute("mode", utf8(v.mode));
    array("checks", v.checks, [&](const auto &check) {
      json_.attribute("what", utf8(check->what));
      json_.attribute("batch", check->batch);
      json_.attribute("tokens", check->tokens);
      json_.attribute("error", check->error);
      if (check->error_in_double >= 0)
        json_.attribute("error_in_double", check->error_in_double);
      json_.attribute("tolerance", check->tolerance);
    });
    strings("unchecked", v.unchecked);
  }
  void writeGolden(const plan::GoldenT &golden) {
    json_.attribute("tolerance", golden.tolerance);
    array("prompts", golden.prompts, [&](const auto &prompt) {
      numbers("ids", prompt->ids);
      array("rows", prompt->rows, [&](const auto &row) {
        numbers("top_ids", row->top_ids);
        numbers("top_logprobs", row->top_logprobs);
        json_.attribute("mean", row->mean);
        json_.attribute("deviation", row->deviation);
        json_.attribute("finite", row->finite);
        numbers("projections", row->projections);
      });
    });
  }
  /// An array of objects.
  template <typename Items, typename Write>
  void array(llvm::StringRef key, const Items &items, Write write) {
    json_.attributeArray(key, [&] {
      for (const auto &item : items)
        json_.object([&] { write(item); });
    });
  }
  template <typename T> void numbers(llvm::StringRef key, const std::vector<T> &items) {
    json_.attributeArray(key, [&] {
      for (T item : items)
        json_.value(item);
    });
  }
  void strings(llvm::StringRef key, const std::vector<std::string> &items) {
    json_.attributeArray(key, [&] {
      for (const std::string &item : items)
        json_.value(utf8(item));
    });
  }
  /// A number where symbols have values, else the expression's text.
  void expr(const FunctionView &view, const plan::ExprT &e) {
    if (std::optional<int64_t> value = view.value(e))
      json_.value(*value);
    else
      json_.value(utf8(view.text(e)));
  }
  void exprs(const FunctionView &view, llvm::StringRef key,
             const std::vector<std::unique_ptr<plan::ExprT>> &items) {
    json_.attributeArray(key, [&] {
      for (const auto &item : items)
        expr(view, *item);
    });
  }
  void optionalExpr(const FunctionView &view, llvm::StringRef key,
                    const std::unique_ptr<plan::ExprT> &e) {
    if (!e)
      return;
    json_.attributeBegin(key);
    expr(view, *e);
    json_.attributeEnd();
  }

  void writePlan() {
    json_.attribute("format_version", int64_t(plan_.header().formatVersion));
    json_.attribute("compiler_version", utf8(meta_.compiler_version));
    json_.attribute("model", utf8(meta_.model_name));
    json_.attribute("model_hash", hex(meta_.model_hash));
    json_.attribute("precision", utf8(meta_.precision));
    strings("flags", meta_.flags);
    if (meta_.batch_invariant)
      json_.attribute("batch_invariant", true);
    json_.attribute("vocab_size", meta_.vocab_size);
    json_.attribute("eos_token", meta_.eos_token);
    writeTexts();
    json_.attribute("architectures", utf8(rt::fieldText(plan_.header().architectures)));
    json_.attribute("file_bytes", plan_.fileBytes());
    json_.attribute("tokenizer_bytes", int64_t(plan_.tokenizerBlob().size()));
    json_.attribute("device_bytes", deviceBytes(plan_).loaded);
    json_.attribute("forward_bytes", deviceBytes(plan_).forward);
  }

  /// What the model's folder says of its texts.
  void writeTexts() {
    const rt::ModelTexts texts = textsOf(plan_);
    json_.attributeArray("eos_tokens", [&] {
      for (const int32_t token : texts.ends)
        json_.value(token);
    });
    if (const auto &s = texts.sampling)
      json_.attributeObject("sampling", [&] {
        json_.attribute("do_sample", s->sample);
        json_.attribute("temperature", s->temperature);
        json_.attribute("top_k", s->topK);
        json_.attribute("top_p", s->topP);
        json_.attribute("min_p", s->minP);
        json_.attribute("repetition_penalty", s->repetitionPenalty);
      });
    if (!texts.chatTemplates.empty())
      json_.attributeObject("chat_templates", [&] {
        for (const rt::NamedText &chat : texts.chatTemplates)
          json_.attribute(utf8(chat.name), utf8(chat.text));
      });
  }

  void writeSection(const rt::Section &section) {
    json_.attribute("kind", rt::sectionKindName(section.kind));
    json_.attribute("name", utf8(section.name));
    json_.attribute("offset", section.offset);
    json_.attribute("bytes", int64_t(section.bytes.size()));
    json_.attribute("checksum", hex(section.checksum));
  }

  void writeWeight(const plan::WeightT &weight) {
    json_.attribute("name", utf8(weight.name));
    json_.attribute("dtype", rt::dtypeName(weight.dtype));
    json_.attributeArray("shape", [&] {
      for (int64_t dim : weight.shape)
        json_.value(dim);
    });
    json_.attribute("offset", weight.offset);
    json_.attribute("bytes", weight.bytes);
    json_.attribute("hash", hex(weight.hash));
  }

  void writeKv(const plan::KvPlanT &kv) {
    json_.attribute("layers", kv.layers);
    json_.attribute("heads", kv.heads);
    json_.attribute("head_dim", kv.head_dim);
    json_.attribute("dtype", rt::dtypeName(kv.dtype));
    json_.attribute("max_batch", kv.max_batch);
    json_.attribute("max_context", kv.max_context);
    json_.attribute("bytes_per_token", kv.bytes_per_token);
    json_.attribute("bytes", kv.bytes);
  }

  void writePort(const FunctionView &view, const plan::PortT &port) {
    json_.attribute("name", utf8(port.name));
    json_.attribute("dtype", rt::dtypeName(port.dtype));
    json_.attribute("exported_dtype", rt::dtypeName(port.exported_dtype));
    exprs(view, "shape", port.shape);
    writeRole(port.role, port.layer, port.part);
  }

  void writeExported(const plan::ExportedPortT &port) {
    json_.attribute("name", utf8(port.name));
    json_.attribute("dtype", rt::dtypeName(port.dtype));
    writeRole(port.role, port.layer, port.part);
  }

  void writeRole(plan::Role role, int layer, plan::KvPart part) {
    json_.attribute("role", plan::EnumNameRole(role));
    if (layer < 0)
      return;
    json_.attribute("layer", layer);
    json_.attribute("part", plan::EnumNameKvPart(part));
  }

  void writeBuffer(const FunctionView &view, const plan::BufferT &buffer) {
    json_.attribute("name", utf8(buffer.name));
    json_.attribute("dtype", rt::dtypeName(buffer.dtype));
    exprs(view, "shape", buffer.shape);
    json_.attribute("offset", buffer.offset);
    json_.attribute("bytes", buffer.bytes);
    json_.attribute("first_step", buffer.first_step);
    json_.attribute("last_step", buffer.last_step);
    if (buffer.value >= 0) {
      json_.attribute("value", buffer.value);
      json_.attribute("whole_step", buffer.whole_step);
    }
  }

  void writeArg(const FunctionView &view, const plan::ArgT &arg) {
    json_.attribute("kind", plan::EnumNameArgKind(arg.kind));
    if (arg.kind == plan::ArgKind::F32)
      json_.attribute("value", double(arg.f32));
    else if (arg.kind != plan::ArgKind::I32 && arg.kind != plan::ArgKind::I64 &&
             arg.kind != plan::ArgKind::Null)
      json_.attribute("index", arg.index);
    optionalExpr(view, "expr", arg.expr);
    if (arg.map)
      json_.attributeObject("map", [&] {
        optionalExpr(view, "rows", arg.map->rows);
        json_.attribute("columns", arg.map->columns);
        json_.attribute("box_rows", arg.map->box_rows);
        optionalExpr(view, "matrices", arg.map->matrices);
      });
  }

  void writeStep(const FunctionView &view, const plan::StepT &step) {
    json_.attribute("op", utf8(step.op));
    json_.attribute("kernel", utf8(meta_.kernels[step.kernel]->name));
    json_.attribute("mode", plan::EnumNameLaunchMode(step.mode));
    exprs(view, "grid", step.grid);
    json_.attributeArray("block", [&] {
      for (uint32_t size : step.block)
        json_.value(int64_t(size));
    });
    json_.attribute("shared_bytes", int64_t(step.shared_bytes));
    array("args", step.args, [&](const auto &arg) { writeArg(view, *arg); });
    optionalExpr(view, "bytes", step.bytes);
    optionalExpr(view, "flops", step.flops);
    optionalExpr(view, "past_bytes", step.past_bytes);
    optionalExpr(view, "past_flops", step.past_flops);
    if (!step.choice_key.empty()) {
      json_.attribute("choice_key", utf8(step.choice_key));
      json_.attribute("choice", utf8(step.choice));
    }
    if (!step.sum_order.empty())
      json_.attribute("sum_order", utf8(step.sum_order));
    strings("nodes", step.nodes);
  }

  void writeFunction(const FunctionView &view) {
    const plan::FunctionT &function = view.function();
    json_.attribute("name", utf8(function.name));
    array("symbols", function.symbols, [&](const auto &symbol) {
      json_.attribute("name", utf8(symbol->name));
      json_.attribute("min", symbol->min);
      json_.attribute("max", symbol->max);
    });
    json_.attribute("arena_bytes", function.arena_bytes);
    json_.attribute("scratch_bytes", function.scratch_bytes);
    json_.attribute("peak_live_bytes", peakLiveBytes(function));
    if (!function.body.empty())
      json_.attribute("body", utf8(function.body));
    if (function.ranks > 1)
      json_.attribute("ranks", function.ranks);
    if (!function.archs.empty())
      strings("archs", function.archs);
    array("inputs", function.inputs, [&](const auto &port) { writePort(view, *port); });
    array("outputs", function.outputs, [&](const auto &port) { writePort(view, *port); });
    array("buffers", function.buffers, [&](const auto &buffer) { writeBuffer(view, *buffer); });
    array("steps", function.steps, [&](const auto &step) { writeStep(view, *step); });
  }

  const DumpContext &context_;
  const rt::Plan &plan_;
  const plan::PlanT &meta_;
  llvm::json::OStream json_;
};

} // namespace

void dumpJson(const DumpContext &context, llvm::raw_ostream &os) {
  JsonDump(context, os).run();
  os << '\n';
}

} // namespace gpt2c
