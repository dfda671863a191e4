#include "ir/Error.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Tokens.h"
#include "tools/gpt2c-run/Run.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

namespace {

/// What a generation consists of besides the session.
struct Job {
  std::optional<rt::Tokenizer> tokenizer;
  std::vector<rt::Tokens> prompts;
  int32_t eos = -1;
  OutputKind output = OutputKind::Text;
};

} // namespace

static llvm::Expected<Job> prepare(const rt::Session &session, const Prompts &prompts,
                                   const GenerateFlags &flags) {
  Job job;
  auto tokenizer = openTokenizer(session.plan(), flags.tokenizer);
  if (!tokenizer)
    return tokenizer.takeError();
  job.tokenizer = std::move(*tokenizer);
  job.output = flags.output;
  if (job.output == OutputKind::Auto)
    job.output = job.tokenizer ? OutputKind::Text : OutputKind::Ids;
  if (!job.tokenizer && (!prompts.texts.empty() || job.output == OutputKind::Text))
    return makeError(ExitCode::Usage,
                     "the plan has no tokenizer: use --ids and --output=ids, give --tokenizer, or "
                     "compile the plan with gpt2c --tokenizer");
  for (const std::string &text : prompts.texts) {
    job.prompts.push_back(job.tokenizer->encode(text));
    if (job.prompts.back().empty())
      return makeError(ExitCode::Usage, "a prompt is empty: there is nothing to continue");
  }
  for (const std::string &text : prompts.ids) {
    auto ids = parseIds(text);
    if (!ids)
      return inContext("--ids", ids.takeError());
    job.prompts.push_back(std::move(*ids));
  }
  job.eos = session.eosToken();
  if (job.eos < 0 && job.tokenizer)
    job.eos = job.tokenizer->eosToken();
  return job;
}

/// The new text without the token that ended it.
static std::string textOf(const Job &job, rt::Tokens tokens) {
  if (!tokens.empty() && tokens.back() == job.eos)
    tokens.pop_back();
  return job.tokenizer->decode(tokens);
}

static std::string join(const rt::Tokens &tokens) {
  std::string out;
  for (int32_t t : tokens)
    out += (out.empty() ? "" : ",") + std::to_string(t);
  return out;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

static void printJson(const rt::Session &session, const Job &job, const rt::Generated &out,
                      llvm::StringRef device, double loadSeconds) {
  auto array = [](const rt::Tokens &tokens) {
    llvm::json::Array values;
    for (int32_t t : tokens)
      values.push_back(t);
    return values;
  };
  llvm::json::Array sequences;
  for (size_t b = 0; b < job.prompts.size(); ++b) {
    llvm::json::Object one{{"prompt_ids", array(job.prompts[b])}, {"ids", array(out.tokens[b])}};
    if (job.tokenizer)
      one["text"] = llvm::json::fixUTF8(textOf(job, out.tokens[b]));
    sequences.push_back(std::move(one));
  }
  size_t batch = job.prompts.size();
  llvm::json::Object root{
      {"model", llvm::json::fixUTF8(session.plan().meta().model_name)},
      {"device", llvm::json::fixUTF8(device)},
      {"sequences", std::move(sequences)},
      {"timings", llvm::json::Object{{"load_ms", loadSeconds * 1e3},
                                     {"prefill_ms", out.prefillSeconds * 1e3},
                                     {"decode_ms", out.decodeSeconds * 1e3},
                                     {"decode_steps", out.decodeSteps},
                                     {"decode_tokens_per_s",
                                      rate(double(out.decodeSteps) * batch, out.decodeSeconds)}}}};
  llvm::outs() << llvm::json::Value(std::move(root)) << "\n";
}

/// `8 sequences, 96 prompt tokens in 8.1 ms; then 62.1 tokens/s (16.1 ms a step); CPU, 2 threads`
static void printSummary(const Job &job, const rt::Generated &out, llvm::StringRef device) {
  size_t batch = job.prompts.size(), promptTokens = 0;
  for (const rt::Tokens &p : job.prompts)
    promptTokens += p.size();
  llvm::raw_ostream &os = llvm::errs();
  if (batch > 1)
    os << batch << " sequences, ";
  os << promptTokens << " prompt tokens in " << llvm::format("%.2f ms", out.prefillSeconds * 1e3);
  if (out.decodeSteps > 0)
    os << llvm::format("; then %.1f tokens/s (%.3f ms a step)",
                       rate(double(out.decodeSteps) * batch, out.decodeSeconds),
                       out.decodeSeconds * 1e3 / out.decodeSteps);
  os << "; " << device << "\n";
}

llvm::Error generate(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags) {
  auto job = prepare(session, prompts, flags);
  if (!job)
    return job.takeError();
  if (!session.hasKvState())
    llvm::errs() << "note: the plan has no KV state; every token runs the whole graph\n";
  rt::GenerateOptions options;
  options.maxNewTokens = flags.newTokens;
  options.stopToken = flags.ignoreEos ? -1 : job->eos;
  // One sequence is shown as it grows; several are shown one after the other at the end.
  bool streams = job->output == OutputKind::Text && job->prompts.size() == 1;
  std::optional<rt::StreamDecoder> decoder;
  if (streams) {
    decoder.emplace(*job->tokenizer);
    options.onToken = [&](size_t, int32_t token) {
      if (token != job->eos || flags.ignoreEos)
        llvm::outs() << decoder->push(token);
      llvm::outs().flush();
      return !llvm::outs().has_error();
    };
  }
  rt::Result<rt::Generated> out = session.generate(job->prompts, options);
  if (!out)
    return toError(out.status());
  std::string device = session.backend().name();
  switch (job->output) {
  case OutputKind::Auto:
  case OutputKind::Text:
    if (streams)
      llvm::outs() << decoder->finish() << "\n";
    else
      for (size_t b = 0; b < out->tokens.size(); ++b)
        llvm::outs() << "[" << b + 1 << "] " << textOf(*job, out->tokens[b]) << "\n";
    break;
  case OutputKind::Ids:
    for (const rt::Tokens &tokens : out->tokens)
      llvm::outs() << join(tokens) << "\n";
    break;
  case OutputKind::Json:
    printJson(session, *job, *out, device, flags.loadSeconds);
    break;
  }
  llvm::outs().flush();
  if (llvm::outs().has_error()) {
    std::string why = llvm::outs().error().message();
    llvm::outs().clear_error();
    return makeError(ExitCode::Io, "cannot write to stdout: " + why);
  }
  printSummary(*job, *out, device);
  return llvm::Error::success();
}

} // namespace gpt2c
