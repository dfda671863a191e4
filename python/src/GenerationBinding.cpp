// Generations as Python sees them: requests in, events out.
#include "python/src/Generation.h"
#include "runtime/grammar/Grammar.h"
#include "runtime/text/TextGeneration.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace gpt2c::python {

namespace {

using Bias = std::vector<std::pair<int32_t, double>>;

std::unique_ptr<Generation> startGeneration(SessionPtr session,
                                            std::shared_ptr<rt::Tokenizer> tokenizer,
                                            std::vector<Request> requests, int64_t slide) {
  if (requests.empty())
    throw StatusError({rt::Code::Usage, "there is no prompt"});
  rt::EngineThread *engine = slide < 0 ? engineOf(*session) : nullptr;
  nb::gil_scoped_release released;
  return std::make_unique<Generation>(std::move(session), std::move(tokenizer), std::move(requests),
                                      slide, engine);
}

/// What was taken; raises why the generation failed once all is.
std::vector<Event> taken(Generation &g) {
  std::vector<Event> events = g.takeEvents();
  if (events.empty())
    check(g.status());
  return events;
}

/// Waits for events; a signal, as Ctrl-C is, ends the generation.
std::vector<Event> nextEvents(Generation &g) {
  for (;;) {
    bool ready;
    {
      nb::gil_scoped_release released;
      ready = g.waitFor(signalInterval);
    }
    if (PyErr_CheckSignals() != 0) {
      nb::gil_scoped_release released;
      g.cancel();
      break;
    }
    if (ready)
      return taken(g);
  }
  throw nb::python_error();
}

nb::list topOf(const rt::Choice &choice) {
  nb::list top;
  for (const rt::TokenLogprob &t : choice.top)
    top.append(nb::make_tuple(t.token, t.logprob));
  return top;
}

nb::object logprobs(const Event &e) {
  if (!e.piece.choice)
    return nb::none();
  return nb::make_tuple(e.piece.choice->logprob, topOf(*e.piece.choice));
}

nb::list promptLogprobs(const Event &e) {
  nb::list tokens;
  for (const rt::Choice &scored : e.prompt)
    tokens.append(nb::make_tuple(scored.token, scored.logprob, topOf(scored)));
  return tokens;
}

/// What an answer may say, compiled.
struct OneConstraint {
  std::shared_ptr<const rt::Constraint> made;
};
using ConstraintPtr = std::shared_ptr<OneConstraint>;

/// Compiles for the tokens of a model.
struct Grammars {
  Grammars(std::shared_ptr<rt::Tokenizer> texts, int32_t vocabulary, std::vector<int32_t> ends)
      : tokenizer(std::move(texts)), compiler(tokenizer.get(), vocabulary, std::move(ends)) {}
  std::shared_ptr<const rt::Tokenizer> tokenizer;
  rt::GrammarCompiler compiler;
};

rt::GrammarText::Kind kindOf(const std::string &name) {
  using Kind = rt::GrammarText::Kind;
  for (const Kind kind : {Kind::Json, Kind::Schema, Kind::Regex, Kind::Ebnf})
    if (name == rt::nameOf(kind))
      return kind;
  return Kind::Choice;
}

ConstraintPtr compileGrammar(Grammars &grammars, const std::string &kind, const nb::bytes &text,
                             const std::vector<nb::bytes> &choices) {
  rt::GrammarText what{.kind = kindOf(kind), .text = {text.c_str(), text.size()}};
  for (const nb::bytes &choice : choices)
    what.choices.emplace_back(choice.c_str(), choice.size());
  const nb::gil_scoped_release released;
  return std::make_shared<OneConstraint>(take(grammars.compiler.compile(what)));
}

void bindGrammars(nb::module_ &m) {
  const nb::class_<OneConstraint> constraint(m, "Constraint");
  nb::class_<Grammars>(m, "Grammars")
      .def(nb::init<std::shared_ptr<rt::Tokenizer>, int32_t, std::vector<int32_t>>(),
           nb::arg("tokenizer").none(), nb::arg("vocabulary"), nb::arg("ends"))
      .def("compile", &compileGrammar, nb::arg("kind"), nb::arg("text"), nb::arg("choices"));
  m.def(
      "bad_words",
      [](const rt::Tokenizer &tokenizer, const std::vector<nb::bytes> &words) {
        std::vector<std::string> texts;
        for (const nb::bytes &word : words)
          texts.emplace_back(word.c_str(), word.size());
        return rt::badWordsOf(tokenizer, texts);
      },
      nb::arg("tokenizer"), nb::arg("words"));
  m.attr("has_grammars") = rt::hasGrammars();
}

void bindRequest(nb::module_ &m) {
  nb::class_<Request>(m, "Request")
      .def(
          "__init__",
          [](Request *self, rt::Tokens prompt, double temperature, int32_t topK, double topP,
             double minP, double repetition, double frequency, double presence, Bias bias,
             uint64_t seed, int32_t logprobs, int64_t maxTokens, std::vector<int32_t> stopIds,
             const std::vector<nb::bytes> &stops, bool includeStop, std::vector<int32_t> hidden,
             int64_t minTokens, std::vector<rt::Tokens> badWords, std::vector<int32_t> allowed,
             const ConstraintPtr &constraint, std::string salt, int32_t promptLogprobs) {
            new (self) Request();
            self->prompt = std::move(prompt);
            self->sampling = {.temperature = temperature,
                              .topK = topK,
                              .topP = topP,
                              .minP = minP,
                              .repetitionPenalty = repetition,
                              .frequencyPenalty = frequency,
                              .presencePenalty = presence,
                              .logitBias = std::move(bias),
                              .allowedTokens = std::move(allowed),
                              .badWords = std::move(badWords),
                              .constraint = constraint ? constraint->made : nullptr,
                              .seed = seed,
                              .logprobs = logprobs};
            self->maxTokens = maxTokens;
            self->fillsContext = true;
            self->stopTokens = std::move(stopIds);
            for (const nb::bytes &s : stops)
              self->stops.emplace_back(s.c_str(), s.size());
            self->includeStop = includeStop;
            self->hiddenTokens = std::move(hidden);
            self->minTokens = minTokens;
            self->cacheSalt = std::move(salt);
            self->promptLogprobs = promptLogprobs;
          },
          nb::kw_only(), nb::arg("prompt"), nb::arg("temperature"), nb::arg("top_k"),
          nb::arg("top_p"), nb::arg("min_p"), nb::arg("repetition_penalty"),
          nb::arg("frequency_penalty"), nb::arg("presence_penalty"), nb::arg("logit_bias"),
          nb::arg("seed"), nb::arg("logprobs"), nb::arg("max_tokens"), nb::arg("stop_ids"),
          nb::arg("stops"), nb::arg("include_stop"), nb::arg("hidden_ids"), nb::arg("min_tokens"),
          nb::arg("bad_words"), nb::arg("allowed_ids"), nb::arg("constraint").none(),
          nb::arg("cache_salt"), nb::arg("prompt_logprobs"));
}

} // namespace

void bindGeneration(nb::module_ &m) {
  bindGrammars(m);
  bindRequest(m);
  nb::class_<Event>(m, "Event")
      .def_prop_ro("request", [](const Event &e) { return e.request; })
      .def_prop_ro("token",
                   [](const Event &e) {
                     return e.piece.choice ? std::optional(e.piece.choice->token) : std::nullopt;
                   })
      .def_prop_ro("logprobs", &logprobs,
                   nb::sig("def logprobs(self) -> tuple[float, list[tuple[int, float]]] | None"))
      .def_prop_ro("prompt_logprobs", &promptLogprobs,
                   nb::sig("def prompt_logprobs(self) -> "
                           "list[tuple[int, float, list[tuple[int, float]]]]"))
      .def_prop_ro(
          "text",
          [](const Event &e) { return nb::bytes(e.piece.text.data(), e.piece.text.size()); })
      .def_prop_ro("finish",
                   [](const Event &e) { return e.piece.finish ? rt::nameOf(*e.piece.finish) : ""; })
      .def_prop_ro("stop_string", [](const Event &e) { return e.piece.stopString; })
      .def_prop_ro("stop_token", [](const Event &e) { return e.piece.stopToken; })
      .def_prop_ro("seconds", [](const Event &e) { return e.seconds; });
  nb::class_<Generation>(m, "Generation")
      .def(nb::new_(&startGeneration), nb::arg("session"), nb::arg("tokenizer").none(),
           nb::arg("requests"), nb::arg("slide"))
      .def("next", &nextEvents)
      .def("poll", &taken)
      .def_prop_ro("ended", &Generation::ended)
      .def("fileno", &Generation::fileDescriptor)
      .def("stop", &Generation::stop)
      .def("cancel", &Generation::cancel, nb::call_guard<nb::gil_scoped_release>());
  m.def("cancel_all", &Generation::cancelAll, nb::call_guard<nb::gil_scoped_release>());
}

} // namespace gpt2c::python
