// gpt2c-run: generates text with a plan, or has it checked.
#include "runtime/plan/PlanMapping.h"
#include "tools/gpt2c-run/Run.h"
#include "tools/runtime-common/DeviceFlags.h"
#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Sibling.h"
#include "tools/runtime-common/Tokens.h"

#include <chrono>

namespace gpt2c {
namespace {

enum class VerifyMode { Fast, Full };
enum class SamplingSource { Flags, Model };

struct CommandLine {
  std::string plan;
  std::vector<std::string> prompts, promptFiles, promptLines, ids;
  bool interactive = false, raw = false;
  std::string chatTemplate; ///< a file
  std::string tokenizer;    ///< a folder or tokenizer.json in place of the plan's
  SamplingSource samplingSource = SamplingSource::Flags;
  GenerateFlags generate;
  ConstraintFlags constraints;
  std::vector<std::string> testData;
  std::string checkModel;
  bool selfTest = false;
  VerifyMode verify = VerifyMode::Fast;
  double relative = 0, absolute = 0;
  DeviceFlags device;
  Flags flags{"Continues prompts with a plan, or checks a plan against test data."};

  CommandLine();
  rt::Status check() const;
  rt::Result<Prompts> readPrompts() const;
  /// Whether prompts are turns of a chat, and by which template.
  rt::Status chooseChat(const rt::Tokenizer *tokenizer);
  rt::Status chooseSampling(const rt::Tokenizer *tokenizer);
  /// Without prompts a chat waits for its first turn.
  bool talks() const { return interactive || (asksForChat() && !generates()); }

private:
  void addPrompts();
  void addSampling();
  void addConstraints();
  void addTests();
  rt::Status checkInteractive() const;
  rt::Status checkGeneration() const;
  rt::Status checkChat() const;
  bool asksForChat() const {
    return !flags.firstGiven({"chat", "chat-template", "system"}).empty();
  }
  bool generates() const { return !flags.firstGiven(promptFlags).empty(); }

  static constexpr std::initializer_list<const char *> promptFlags = {"prompt", "prompt-file",
                                                                      "prompt-lines", "ids"};
};

CommandLine::CommandLine() {
  flags.argument("PLAN", plan);
  addPrompts();
  addSampling();
  addConstraints();
  addTests();
  device.addTo(flags);
}

void CommandLine::addPrompts() {
  flags.list("prompt", "TEXT", "Continue TEXT; several make a batch", prompts)
      .list("prompt-file", "FILE",
            "Continue the text in FILE (- is stdin), without its last newline", promptFiles)
      .list("prompt-lines", "FILE",
            "Continue each line of FILE (- is stdin) by itself; a blank one and one that is too "
            "long for the context are skipped, with a note",
            promptLines)
      .list("ids", "1,2,3", "Continue these token ids", ids)
      .flag("i",
            "Talk by turns, yours, the model's, and so on: a chat where the plan has a chat "
            "template, else one text; /help lists commands, Ctrl-C ends an answer",
            interactive)
      .flag("chat",
            "Prompts are what a user says to the model: its chat template makes a prompt of each, "
            "and answers may be as long as the context (default of -n). Without a prompt, as -i",
            generate.chat)
      .value("system", "TEXT", "The system prompt of --chat", generate.system)
      .value("chat-template", "FILE", "Use this Jinja template for --chat, not the plan's",
             chatTemplate)
      .flag("raw", "With -i: one text, also where the plan has a chat template", raw)
      .value("n", "N", "New tokens for each prompt (default 32)", generate.newTokens)
      .value("samples", "N", "Answers to each prompt, with seeds from --seed on (default 1)",
             generate.samples)
      .list("stop", "TEXT", "End the answer ahead of TEXT; repeatable", generate.stops)
      .list("stop-id", "ID", "End the answer at token ID; repeatable", generate.stopIds)
      .choice<rt::AddBos>("add-bos", "What goes around a prompt that is a text", generate.addBos,
                          {{"auto", rt::AddBos::Auto, "what the tokenizer adds (default)"},
                           {"yes", rt::AddBos::Yes, "the token that begins a text, at least"},
                           {"no", rt::AddBos::No, "nothing"}})
      .flag("ignore-eos", "Do not stop at the tokens that end a text", generate.ignoreEos)
      .flag("echo", "Print the prompt ahead of the new text", generate.echo)
      .value(
          "load-state", "FILE",
          "Go on from the KV state in FILE, which --save-state wrote: what the one prompt begins "
          "with and the state has is not computed again",
          generate.loadState)
      .value(
          "save-state", "FILE",
          "Write the KV state behind the answers to FILE, for any device and any number of ranks",
          generate.saveState)
      .value("slide", "KEEP",
             "Where the context is full keep its first KEEP tokens, drop half of the others and "
             "go on (default: the answer ends)",
             generate.slide)
      .choice<OutputKind>(
          "output", "What to print", generate.output,
          {{"text", OutputKind::Text, "the new text as it is generated (default)"},
           {"ids", OutputKind::Ids,
            "the new ids, one line for each prompt (default where there is no tokenizer)"},
           {"json", OutputKind::Json, "one object: device, prompts, ids, texts, times"},
           {"jsonl", OutputKind::JsonLines, "one object a line for each answer"}})
      .value("tokenizer", "PATH", "Use this folder or tokenizer.json, not the plan's tokenizer",
             tokenizer);
}

void CommandLine::addSampling() {
  rt::SamplingParams &p = generate.sampling;
  flags
      .value("temperature", "T",
             "Sample with the logits divided by T (default 0, the most probable token; 1 where "
             "--top-k, --top-p, --min-p or --seed is given)",
             p.temperature)
      .value("top-k", "K", "Sample among the K most probable tokens (default all)", p.topK)
      .value("top-p", "P",
             "Sample among the most probable tokens that together have probability P (default 1)",
             p.topP)
      .value("min-p", "P",
             "Sample among tokens that are P times as probable as the best one (default 0)", p.minP)
      .value("repeat-penalty", "X",
             "Divide logits of tokens in prompt or answer by X, multiply negative ones (default 1)",
             p.repetitionPenalty)
      .value("frequency-penalty", "X",
             "Take X off the logit of a token for each time the answer has it (default 0)",
             p.frequencyPenalty)
      .value("presence-penalty", "X",
             "Take X off the logit of a token that the answer has (default 0)", p.presencePenalty)
      .value("seed", "SEED", "Sample with the random numbers of SEED (default 0)", p.seed)
      .value("logprobs", "N",
             "With --output=json or jsonl: log probabilities of the new tokens and of the N best "
             "(0: of the new tokens alone)",
             p.logprobs)
      .choice<SamplingSource>(
          "sampling", "What holds where no flag says how to sample", samplingSource,
          {{"greedy", SamplingSource::Flags, "the most probable token (default)"},
           {"model", SamplingSource::Model,
            "what the model's makers advise, by its generation_config.json: gpt2c-dump shows it"}});
}

void CommandLine::addConstraints() {
  flags
      .value("json-schema", "FILE",
             "The answer is JSON that fits the schema in FILE (- is stdin); it ends where that is "
             "complete, as with the four below",
             constraints.schemaFile)
      .flag("json", "The answer is a JSON object", constraints.json)
      .value("regex", "RE", "The whole answer fits the regular expression RE", constraints.regex)
      .value("grammar", "FILE", "The answer is what the EBNF in FILE calls root",
             constraints.grammarFile)
      .list("choice", "TEXT", "The answer is TEXT, or one of several", constraints.choices)
      .value("min-tokens", "N", "No end of text and no stop among the first N new tokens",
             generate.minTokens)
      .list("bad-word", "TEXT", "Never end the tokens of TEXT; repeatable", constraints.badWords)
      .list("allow-id", "ID", "Choose among the tokens that are so named alone; repeatable",
            constraints.allowedIds);
}

void CommandLine::addTests() {
  flags
      .list("test-data", "DIR",
            "Run DIR's input_<i>.pb as the exported graph, compare with output_<i>.pb (by "
            "gpt2c-compare)",
            testData)
      .value("check-against", "MODEL.onnx",
             "Compare what the plan computes with the export it was made from, as gpt2c --verify "
             "does (by gpt2c-compare)",
             checkModel)
      .flag("self-test",
            "Test this machine with the plan's golden prompts: weights, logits and tokens alone, "
            "in a batch and again; on a GPU how fast it is",
            selfTest)
      .choice<VerifyMode>(
          "verify", "With --check-against: how much is compared", verify,
          {{"fast", VerifyMode::Fast, "a few sequences (default)"},
           {"full", VerifyMode::Full, "the full context, several batches, masks and pasts"}})
      .value("rtol", "R",
             "With --test-data: largest norm(difference) / norm(expected) (default 1e-4; 1e-2 in "
             "fp16, 8e-2 in bf16)",
             relative)
      .value("atol", "A", "With --test-data: largest difference of an element (default: any)",
             absolute);
}

/// -i takes one text to begin with, and shows nothing but text.
rt::Status CommandLine::checkInteractive() const {
  if (selfTest || !testData.empty() || !checkModel.empty())
    return {rt::Code::Usage, "-i generates and does not test"};
  if (!ids.empty() || !promptLines.empty() || prompts.size() + promptFiles.size() > 1)
    return {rt::Code::Usage, "-i begins with one --prompt or --prompt-file, or none"};
  const OutputKind output = generate.output;
  if (generate.samples != 1 || generate.sampling.logprobs >= 0 || generate.echo ||
      (output != OutputKind::Auto && output != OutputKind::Text))
    return {rt::Code::Usage,
            "-i prints one text as it grows: --samples, --logprobs, --echo and --output do not go "
            "with it"};
  return {};
}

rt::Status CommandLine::checkChat() const {
  if (raw && (asksForChat() || !interactive))
    return {rt::Code::Usage, "--raw belongs to -i, and excludes --chat, --system and "
                             "--chat-template"};
  if (!asksForChat())
    return {};
  if (!ids.empty())
    return {rt::Code::Usage, "--chat makes prompts of texts: --ids does not go with it"};
  if (flags.given("add-bos"))
    return {rt::Code::Usage, "the chat template says what begins a chat: --add-bos does not go "
                             "with --chat"};
  return {};
}

rt::Status CommandLine::checkGeneration() const {
  if (rt::Status s = checkChat(); !s.ok())
    return s;
  if (generate.newTokens < 1)
    return {rt::Code::Usage, "-n must be at least 1"};
  if (generate.minTokens < 0 || generate.minTokens > generate.newTokens)
    return {rt::Code::Usage, "--min-tokens must be from 0 to -n"};
  if (generate.samples < 1)
    return {rt::Code::Usage, "--samples must be at least 1"};
  if (!flags.firstGiven({"load-state", "save-state"}).empty() && talks())
    return {rt::Code::Usage, "--load-state and --save-state go with prompts, not with -i"};
  if (flags.given("load-state") && generate.samples > 1)
    return {rt::Code::Usage, "--load-state goes with one answer, not with --samples"};
  if (flags.given("slide") && generate.slide < 0)
    return {rt::Code::Usage, "--slide must be at least 0"};
  if (flags.given("logprobs") && generate.sampling.logprobs < 0)
    return {rt::Code::Usage, "--logprobs must be at least 0"};
  const OutputKind output = generate.output;
  if (generate.sampling.logprobs >= 0 && output != OutputKind::Json &&
      output != OutputKind::JsonLines)
    return {rt::Code::Usage, "--logprobs needs --output=json or --output=jsonl"};
  for (const std::string &stop : generate.stops)
    if (stop.empty())
      return {rt::Code::Usage, "--stop needs a text"};
  return {};
}

rt::Status CommandLine::check() const {
  if (talks()) {
    if (rt::Status s = checkInteractive(); !s.ok())
      return s;
    return checkGeneration();
  }
  if (selfTest && (generates() || !testData.empty() || !checkModel.empty()))
    return {rt::Code::Usage, "--self-test takes no prompt and no other test"};
  if (!checkModel.empty()) {
    if (generates() || !testData.empty())
      return {rt::Code::Usage, "--check-against takes no prompt and no test data"};
    return {};
  }
  if (flags.given("verify"))
    return {rt::Code::Usage, "--verify belongs to --check-against"};
  if (selfTest)
    return {};
  if (generates() == !testData.empty())
    return {rt::Code::Usage,
            generates() ? "--test-data takes no prompt"
                        : "nothing to do: give --prompt, --prompt-file, --prompt-lines, --ids, -i, "
                          "--test-data, --check-against or --self-test (see --help)"};
  if (!flags.firstGiven({"rtol", "atol"}).empty() && testData.empty())
    return {rt::Code::Usage, "--rtol and --atol belong to --test-data"};
  return checkGeneration();
}

/// A file without the mark that some editors begin it with. Another mark says UTF-16.
rt::Result<std::string> readText(const std::string &file) {
  rt::Result<std::string> text = readInput(file);
  if (text && text->starts_with("\xEF\xBB\xBF"))
    text->erase(0, 3);
  if (text && (text->starts_with("\xFF\xFE") || text->starts_with("\xFE\xFF")))
    return {rt::Code::Usage, "'" + file +
                                 "' is a text in UTF-16, prompts are in UTF-8: 'iconv -f "
                                 "UTF-16 -t UTF-8' makes it one"};
  return text;
}

/// Without the end of its line.
void chomp(std::string &text) {
  if (text.ends_with('\n'))
    text.pop_back();
  if (text.ends_with('\r'))
    text.pop_back();
}

rt::Result<Prompts> CommandLine::readPrompts() const {
  Prompts out;
  out.ids = ids;
  for (const std::string &text : prompts)
    out.texts.push_back({text});
  for (const std::string &file : promptFiles) {
    rt::Result<std::string> text = readText(file);
    if (!text)
      return text.status();
    if (text->ends_with('\n')) // what editors end a file with is not part of the text
      chomp(*text);
    out.texts.push_back({text.take()});
  }
  for (const std::string &file : promptLines) {
    rt::Result<std::string> text = readText(file);
    if (!text)
      return text.status();
    size_t number = 0;
    for (size_t at = 0; at < text->size();) {
      const size_t end = std::min(text->find('\n', at), text->size() - 1) + 1;
      std::string line = text->substr(at, end - at);
      chomp(line);
      out.texts.push_back(
          {std::move(line), "line " + std::to_string(++number) + " of '" + file + "'"});
      at = end;
    }
  }
  return out;
}

/// What is compared with an export, or with tensors of another tool, takes the compiler.
rt::Status compare(const CommandLine &c) {
  std::vector<std::string> arguments{c.plan, "--device=" + c.device.device,
                                     "--threads=" + std::to_string(c.device.threads)};
  if (c.device.skipWeightChecksum)
    arguments.emplace_back("--skip-weight-checksum");
  if (!c.checkModel.empty()) {
    arguments.push_back("--check-against=" + c.checkModel);
    arguments.emplace_back(c.verify == VerifyMode::Full ? "--verify=full" : "--verify=fast");
    return becomeSibling("gpt2c-compare", arguments, "--check-against");
  }
  for (const std::string &folder : c.testData)
    arguments.push_back("--test-data=" + folder);
  auto limit = [&](const char *flag, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), "--%s=%.17g", flag, value);
    if (c.flags.given(flag))
      arguments.emplace_back(text);
  };
  limit("rtol", c.relative);
  limit("atol", c.absolute);
  return becomeSibling("gpt2c-compare", arguments, "--test-data");
}

rt::Status CommandLine::chooseChat(const rt::Tokenizer *texts) {
  if (!chatTemplate.empty()) {
    rt::Result<std::string> source = readText(chatTemplate);
    if (!source)
      return source.status();
    if (source->empty())
      return {rt::Code::Usage, "--chat-template: '" + chatTemplate + "' is empty"};
    generate.chatTemplate = source.take();
  }
  const bool offered = interactive && !raw && texts && !texts->texts().chatTemplates.empty();
  generate.chat = asksForChat() || offered;
  if (generate.chat && !flags.given("n"))
    generate.newTokens = INT32_MAX;
  return {};
}

/// Flags that are given go over the advice.
rt::Status CommandLine::chooseSampling(const rt::Tokenizer *texts) {
  rt::SamplingParams &p = generate.sampling;
  if (samplingSource == SamplingSource::Model) {
    if (!texts || !texts->texts().sampling)
      return {rt::Code::Usage, "--sampling=model: the plan has no advice, since there was no "
                               "generation_config.json beside its model, or none that differs "
                               "from taking the most probable token"};
    const rt::SamplingParams advised = rt::advisedSampling(*texts->texts().sampling);
    auto take = [&](const char *flag, auto &value, auto advice) {
      if (!flags.given(flag))
        value = advice;
    };
    take("temperature", p.temperature, advised.temperature);
    take("top-k", p.topK, advised.topK);
    take("top-p", p.topP, advised.topP);
    take("min-p", p.minP, advised.minP);
    take("repeat-penalty", p.repetitionPenalty, advised.repetitionPenalty);
    generate.advised = true;
  }
  if (!flags.given("temperature") && p.temperature == 0 &&
      !flags.firstGiven({"top-k", "top-p", "min-p", "seed"}).empty())
    p.temperature = 1;
  return {};
}

/// The tokenizer of --tokenizer or of the plan. What the model's folder said of its texts is the
/// plan's to tell with either.
rt::Result<std::optional<rt::Tokenizer>> openTokenizer(const rt::Plan &plan,
                                                       const std::string &path) {
  rt::Result<std::optional<rt::Tokenizer>> tokenizer = planTokenizer(plan, path);
  if (!tokenizer || path.empty())
    return tokenizer;
  const rt::Result<std::optional<rt::Tokenizer>> own = planTokenizer(plan, "");
  if (!own)
    return own.status();
  if (*own)
    (*tokenizer)->setTexts((*own)->texts());
  return tokenizer;
}

rt::Status run(CommandLine &c) {
  if (followsRank(c.device))
    return followRank(c.plan, c.device);
  if (rt::Status s = c.check(); !s.ok())
    return s;
  if (!c.checkModel.empty() || !c.testData.empty())
    return compare(c);
  rt::Result<Prompts> prompts = c.readPrompts();
  if (!prompts)
    return prompts.status();
  const auto start = std::chrono::steady_clock::now();
  rt::Result<std::unique_ptr<rt::Session>> session = openSession(c.plan, c.device);
  if (!session)
    return session.status();
  c.generate.loadSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (c.selfTest)
    return runSelfTest(**session);
  const rt::Result<std::optional<rt::Tokenizer>> opened =
      openTokenizer((*session)->plan(), c.tokenizer);
  if (!opened)
    return opened.status();
  const rt::Tokenizer *tokenizer = *opened ? &**opened : nullptr;
  if (rt::Status s = c.chooseChat(tokenizer); !s.ok())
    return s;
  if (rt::Status s = c.chooseSampling(tokenizer); !s.ok())
    return s;
  if (rt::Status s = constrain(c.constraints, **session, tokenizer, c.generate); !s.ok())
    return s;
  if (c.talks() && !tokenizer)
    return {rt::Code::Usage, "the plan has no tokenizer, which texts by turns need: give "
                             "--tokenizer, or compile the plan with gpt2c --tokenizer"};
  rt::Status status = c.talks() ? interact(**session, *tokenizer, *prompts, c.generate)
                                : generate(**session, tokenizer, *prompts, c.generate);
  return status.ok() ? rt::plansUnchanged() : status;
}

} // namespace
} // namespace gpt2c

int main(int argc, char **argv) {
  gpt2c::CommandLine commandLine;
  commandLine.flags.parse(argc, argv);
  return gpt2c::runTool([&] { return gpt2c::run(commandLine); });
}
