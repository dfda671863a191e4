// Plans and tokenizers.
#include "python/src/Bindings.h"
#include "runtime/text/Chat.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace gpt2c::python {

namespace {

using Ids = std::vector<std::int32_t>;
using SharedTokenizer = std::shared_ptr<rt::Tokenizer>;

nb::bytes toBytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

OpenPlan openPlan(const std::string &path, bool verifyWeights) {
  nb::gil_scoped_release released;
  rt::OpenOptions options;
  options.verifyWeights = verifyWeights;
  OpenPlan out{take(rt::Plan::open(path, options)), nullptr};
  std::span<const std::byte> blob = out.plan->tokenizerBlob();
  if (!blob.empty())
    out.tokenizer = std::make_shared<rt::Tokenizer>(take(rt::Tokenizer::fromBytes(
        {reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()})));
  return out;
}

nb::list ports(const std::vector<std::unique_ptr<plan::ExportedPortT>> &exported) {
  nb::list out;
  for (const auto &port : exported)
    out.append(nb::make_tuple(port->name, rt::dtypeName(port->dtype)));
  return out;
}

nb::list remarks(const OpenPlan &p) {
  nb::list out;
  for (const auto &r : p.plan->meta().remarks)
    out.append(nb::make_tuple(r->pass, r->severity, r->message, r->nodes, r->launches, r->bytes));
  return out;
}

Ids encode(const rt::Tokenizer &t, const nb::bytes &bytes, bool allowSpecial, bool addSpecial) {
  const std::string_view text(bytes.c_str(), bytes.size());
  nb::gil_scoped_release released;
  return t.encode(text, {.allowSpecial = allowSpecial,
                         .addBos = addSpecial ? rt::AddBos::Auto : rt::AddBos::No});
}

/// The names of SamplingParams, where the model's makers advise anything.
std::optional<nb::dict> advice(const rt::Tokenizer &t) {
  if (!t.texts().sampling)
    return std::nullopt;
  const rt::SamplingAdvice &a = *t.texts().sampling;
  nb::dict out;
  out["temperature"] = a.sample ? a.temperature : 0.0;
  out["top_k"] = a.topK;
  out["top_p"] = a.topP;
  out["min_p"] = a.minP;
  out["repetition_penalty"] = a.repetitionPenalty;
  return out;
}

/// The prompt of a conversation; `source`: a template in place of the tokenizer's, or "".
nb::bytes renderChat(const rt::Tokenizer &t, const nb::bytes &context, const nb::bytes &source) {
  const std::string_view json(context.c_str(), context.size()), text(source.c_str(), source.size());
  auto rendered = [&] {
    nb::gil_scoped_release released;
    return take(take(rt::Chat::of(t, text)).text({}, json));
  }();
  return toBytes(rendered);
}

} // namespace

void bindTokenizer(nb::module_ &m) {
  nb::class_<rt::Tokenizer>(m, "Tokenizer")
      .def_static(
          "from_files",
          [](const std::string &path) {
            nb::gil_scoped_release released;
            return std::make_shared<rt::Tokenizer>(take(rt::Tokenizer::fromFiles(path)));
          },
          nb::arg("path"))
      .def("encode_bytes", &encode, nb::arg("text"), nb::arg("allow_special"),
           nb::arg("add_special"))
      .def(
          "decode_bytes",
          [](const rt::Tokenizer &t, const Ids &ids) { return toBytes(t.decode(ids)); },
          nb::arg("ids"))
      .def_prop_ro("vocab_size", &rt::Tokenizer::vocabSize)
      .def_prop_ro("eos_token_id", &rt::Tokenizer::eosToken)
      .def_prop_ro("ends", [](const rt::Tokenizer &t) { return t.texts().ends; })
      .def_prop_ro("advice", &advice)
      .def_prop_ro("has_chat_template",
                   [](const rt::Tokenizer &t) { return !t.texts().chatTemplates.empty(); })
      .def("render_chat", &renderChat, nb::arg("context"), nb::arg("source"));
}

void bindPlan(nb::module_ &m) {
  nb::class_<OpenPlan>(m, "Plan")
      .def(
          "__init__",
          [](OpenPlan *self, const std::string &path, bool verifyWeights) {
            new (self) OpenPlan(openPlan(path, verifyWeights));
          },
          nb::arg("path"), nb::arg("verify_weights"))
      .def_prop_ro(
          "core_tokenizer",
          [](const OpenPlan &p) { return std::const_pointer_cast<rt::Tokenizer>(p.tokenizer); },
          nb::sig("def core_tokenizer(self) -> Tokenizer | None"))
      .def_prop_ro("model_name", [](const OpenPlan &p) { return p.plan->meta().model_name; })
      .def_prop_ro("precision", [](const OpenPlan &p) { return p.plan->meta().precision; })
      .def_prop_ro("compiler_version",
                   [](const OpenPlan &p) { return p.plan->meta().compiler_version; })
      .def_prop_ro("flags", [](const OpenPlan &p) { return p.plan->meta().flags; })
      .def_prop_ro("vocab_size", [](const OpenPlan &p) { return p.plan->meta().vocab_size; })
      .def_prop_ro("eos_token", [](const OpenPlan &p) { return p.plan->meta().eos_token; })
      .def_prop_ro("file_bytes", [](const OpenPlan &p) { return p.plan->fileBytes(); })
      .def_prop_ro("has_gpu_code", [](const OpenPlan &p) { return !p.plan->meta().images.empty(); })
      .def_prop_ro(
          "max_batch",
          [](const OpenPlan &p) { return p.plan->meta().kv ? p.plan->meta().kv->max_batch : 0; })
      .def_prop_ro(
          "max_context",
          [](const OpenPlan &p) { return p.plan->meta().kv ? p.plan->meta().kv->max_context : 0; })
      .def_prop_ro(
          "input_ports", [](const OpenPlan &p) { return ports(p.plan->meta().exported_inputs); },
          nb::sig("def input_ports(self) -> list[tuple[str, str]]"))
      .def_prop_ro(
          "output_ports", [](const OpenPlan &p) { return ports(p.plan->meta().exported_outputs); },
          nb::sig("def output_ports(self) -> list[tuple[str, str]]"))
      .def_prop_ro(
          "remark_rows", remarks,
          nb::sig("def remark_rows(self) -> list[tuple[str, str, str, list[str], int, int]]"));
}

} // namespace gpt2c::python
