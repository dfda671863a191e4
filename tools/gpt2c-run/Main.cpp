// gpt2c-run: generates text with a plan, or checks it against recorded inputs and outputs.
#include "tools/common/CommandLine.h"
#include "tools/common/DeviceFlags.h"
#include "tools/common/Report.h"
#include "tools/common/RuntimeError.h"
#include "tools/gpt2c-run/Run.h"

#include "ir/Error.h"
#include "runtime/plan/PlanMapping.h"

#include <chrono>

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> planPath(cl::Positional, cl::desc("PLAN"), cl::Required, category());
static cl::list<std::string> prompts("prompt", cl::desc("Continue TEXT; several make a batch"),
                                     cl::value_desc("TEXT"), category());
static cl::list<std::string> promptFiles("prompt-file",
                                         cl::desc("Continue the text in FILE (- is stdin), without "
                                                  "its last newline"),
                                         cl::value_desc("FILE"), category());
static cl::list<std::string>
    promptLines("prompt-lines", cl::desc("Continue each line of FILE (- is stdin) by itself"),
                cl::value_desc("FILE"), category());
static cl::list<std::string> ids("ids", cl::desc("Continue these token ids"),
                                 cl::value_desc("1,2,3"), category());
static cl::opt<bool> interactive("i",
                                 cl::desc("Continue one text by turns: yours, the model's, and so "
                                          "on; /help lists commands, Ctrl-C ends an answer"),
                                 category());
static cl::opt<int64_t> newTokens("n", cl::desc("New tokens for each prompt (default 32)"),
                                  cl::value_desc("N"), cl::init(GenerateFlags().newTokens),
                                  category());
static cl::opt<double>
    temperature("temperature",
                cl::desc("Sample with the logits divided by T (default 0, the most probable token; "
                         "1 where --top-k, --top-p, --min-p or --seed is given)"),
                cl::value_desc("T"), category());
static cl::opt<int> topK("top-k", cl::desc("Sample among the K most probable tokens (default all)"),
                         cl::value_desc("K"), category());
static cl::opt<double> topP("top-p",
                            cl::desc("Sample among the most probable tokens that together have "
                                     "probability P (default 1)"),
                            cl::value_desc("P"), cl::init(1), category());
static cl::opt<double> minP("min-p",
                            cl::desc("Sample among tokens that are P times as probable as the best "
                                     "one (default 0)"),
                            cl::value_desc("P"), category());
static cl::opt<double> repeatPenalty(
    "repeat-penalty",
    cl::desc(
        "Divide logits of tokens in prompt or answer by X, multiply negative ones (default 1)"),
    cl::value_desc("X"), cl::init(1), category());
static cl::opt<double> frequencyPenalty(
    "frequency-penalty",
    cl::desc("Take X off the logit of a token for each time the answer has it (default 0)"),
    cl::value_desc("X"), category());
static cl::opt<double>
    presencePenalty("presence-penalty",
                    cl::desc("Take X off the logit of a token that the answer has (default 0)"),
                    cl::value_desc("X"), category());
static cl::opt<uint64_t> seed("seed",
                              cl::desc("Sample with the random numbers of SEED (default 0)"),
                              cl::value_desc("SEED"), category());
static cl::opt<int64_t>
    samples("samples", cl::desc("Answers to each prompt, with seeds from --seed on (default 1)"),
            cl::value_desc("N"), cl::init(1), category());
static cl::list<std::string> stops("stop", cl::desc("End the answer ahead of TEXT; repeatable"),
                                   cl::value_desc("TEXT"), category());
static cl::list<int> stopIds("stop-id", cl::desc("End the answer at token ID; repeatable"),
                             cl::value_desc("ID"), category());
static cl::opt<int> logprobs("logprobs",
                             cl::desc("With --output=json or jsonl: log probabilities of the new "
                                      "tokens and of the N best (0: of the new tokens alone)"),
                             cl::value_desc("N"), cl::init(-1), category());
static cl::opt<bool> echo("echo", cl::desc("Print the prompt ahead of the new text"), category());
static cl::opt<int64_t>
    slide("slide",
          cl::desc("Where the context is full keep its first KEEP tokens, drop half of the others "
                   "and go on (default: the answer ends)"),
          cl::value_desc("KEEP"), cl::init(-1), category());
static cl::opt<OutputKind> outputKind(
    "output", cl::desc("What to print"),
    cl::values(clEnumValN(OutputKind::Text, "text", "the new text as it is generated (default)"),
               clEnumValN(OutputKind::Ids, "ids",
                          "the new ids, one line for each prompt (default where there "
                          "is no tokenizer)"),
               clEnumValN(OutputKind::Json, "json",
                          "one object: device, prompts, ids, texts, times"),
               clEnumValN(OutputKind::JsonLines, "jsonl", "one object a line for each answer")),
    cl::init(OutputKind::Auto), category());
static cl::opt<bool> ignoreEos("ignore-eos", cl::desc("Do not stop at the end-of-text token"),
                               category());
static cl::opt<std::string>
    tokenizer("tokenizer", cl::desc("Use this folder or tokenizer.json, not the plan's tokenizer"),
              cl::value_desc("PATH"), category());
static cl::list<std::string>
    testData("test-data",
             cl::desc("Run DIR's input_<i>.pb as the exported graph, compare with output_<i>.pb"),
             cl::value_desc("DIR"), category());
static cl::opt<std::string>
    checkModel("check-against",
               cl::desc("Compare what the plan computes with the export it was made from, as gpt2c "
                        "--verify does"),
               cl::value_desc("MODEL.onnx"), category());
static cl::opt<bool>
    testsItself("self-test",
                cl::desc("Test this machine with the plan's golden prompts: weights, logits and "
                         "tokens alone, in a batch and again; on a GPU how fast it is"),
                category());
static cl::opt<VerifyMode>
    verifyMode("verify", cl::desc("With --check-against: how much is compared"),
               cl::values(clEnumValN(VerifyMode::Fast, "fast", "a few sequences (default)"),
                          clEnumValN(VerifyMode::Full, "full",
                                     "the full context, several batches, masks and pasts")),
               cl::init(VerifyMode::Fast), category());
static cl::opt<double>
    relative("rtol",
             cl::desc("With --test-data: largest norm(difference) / norm(expected) (default 1e-4; "
                      "1e-2 in fp16, 8e-2 in bf16)"),
             cl::value_desc("R"), category());
static cl::opt<double>
    absolute("atol", cl::desc("With --test-data: largest difference of an element (default: any)"),
             cl::value_desc("A"), category());

/// -i takes one text to begin with, and shows nothing but text.
static llvm::Error checkInteractive() {
  if (testsItself || !testData.empty() || !checkModel.empty())
    return makeError(ExitCode::Usage, "-i generates and does not test");
  if (!ids.empty() || !promptLines.empty() || prompts.size() + promptFiles.size() > 1)
    return makeError(ExitCode::Usage, "-i begins with one --prompt or --prompt-file, or none");
  if (samples != 1 || logprobs >= 0 || echo ||
      (outputKind != OutputKind::Auto && outputKind != OutputKind::Text))
    return makeError(ExitCode::Usage,
                     "-i prints one text as it grows: --samples, --logprobs, --echo and --output "
                     "do not go with it");
  return llvm::Error::success();
}

static llvm::Error checkGeneration() {
  if (newTokens < 1)
    return makeError(ExitCode::Usage, "-n must be at least 1");
  if (samples < 1)
    return makeError(ExitCode::Usage, "--samples must be at least 1");
  if (slide.getNumOccurrences() && slide < 0)
    return makeError(ExitCode::Usage, "--slide must be at least 0");
  if (logprobs.getNumOccurrences() && logprobs < 0)
    return makeError(ExitCode::Usage, "--logprobs must be at least 0");
  bool json = outputKind == OutputKind::Json || outputKind == OutputKind::JsonLines;
  if (logprobs >= 0 && !json)
    return makeError(ExitCode::Usage, "--logprobs needs --output=json or --output=jsonl");
  for (const std::string &stop : stops)
    if (stop.empty())
      return makeError(ExitCode::Usage, "--stop needs a text");
  return llvm::Error::success();
}

static llvm::Error checkUsage() {
  if (interactive) {
    if (llvm::Error e = checkInteractive())
      return e;
    return checkGeneration();
  }
  bool generates = !prompts.empty() || !promptFiles.empty() || !promptLines.empty() || !ids.empty();
  if (testsItself && (generates || !testData.empty() || !checkModel.empty()))
    return makeError(ExitCode::Usage, "--self-test takes no prompt and no other test");
  if (!checkModel.empty()) {
    if (generates || !testData.empty())
      return makeError(ExitCode::Usage, "--check-against takes no prompt and no test data");
    return llvm::Error::success();
  }
  if (verifyMode.getNumOccurrences())
    return makeError(ExitCode::Usage, "--verify belongs to --check-against");
  if (testsItself)
    return llvm::Error::success();
  if (generates == !testData.empty())
    return makeError(ExitCode::Usage,
                     generates
                         ? "--test-data takes no prompt"
                         : "nothing to do: give --prompt, --prompt-file, --prompt-lines, "
                           "--ids, -i, --test-data, --check-against or --self-test (see --help)");
  if ((relative.getNumOccurrences() || absolute.getNumOccurrences()) && testData.empty())
    return makeError(ExitCode::Usage, "--rtol and --atol belong to --test-data");
  return checkGeneration();
}

static llvm::Expected<Prompts> readPrompts() {
  Prompts out{.texts = prompts, .ids = ids};
  for (const std::string &file : promptFiles) {
    auto buffer = readInput(file);
    if (!buffer)
      return buffer.takeError();
    llvm::StringRef text = (*buffer)->getBuffer();
    if (text.consume_back("\n")) // what editors end a file with is not part of the text
      text.consume_back("\r");
    out.texts.push_back(text.str());
  }
  for (const std::string &file : promptLines) {
    auto buffer = readInput(file);
    if (!buffer)
      return buffer.takeError();
    llvm::SmallVector<llvm::StringRef> lines;
    (*buffer)->getBuffer().split(lines, '\n');
    if (lines.back().empty())
      lines.pop_back();
    for (llvm::StringRef line : lines)
      out.texts.push_back(line.str());
  }
  return out;
}

static rt::SamplingParams samplingFlags() {
  rt::SamplingParams p;
  bool sampled = topK.getNumOccurrences() || topP.getNumOccurrences() || minP.getNumOccurrences() ||
                 seed.getNumOccurrences();
  p.temperature = temperature.getNumOccurrences() ? double(temperature) : sampled ? 1.0 : 0.0;
  p.topK = topK;
  p.topP = topP;
  p.minP = minP;
  p.repetitionPenalty = repeatPenalty;
  p.frequencyPenalty = frequencyPenalty;
  p.presencePenalty = presencePenalty;
  p.seed = seed;
  p.logprobs = logprobs;
  return p;
}

static llvm::Error run() {
  if (llvm::Error e = checkUsage())
    return e;
  auto texts = readPrompts();
  if (!texts)
    return texts.takeError();
  auto start = std::chrono::steady_clock::now();
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  if (testsItself)
    return selfTest(**session);
  if (!checkModel.empty())
    return checkAgainst(**session, checkModel, verifyMode);
  if (testData.empty()) {
    const GenerateFlags flags = {.newTokens = newTokens,
                                 .ignoreEos = ignoreEos,
                                 .sampling = samplingFlags(),
                                 .samples = samples,
                                 .stops = stops,
                                 .stopIds = {stopIds.begin(), stopIds.end()},
                                 .slide = slide,
                                 .echo = echo,
                                 .output = outputKind,
                                 .tokenizer = tokenizer,
                                 .loadSeconds = loading.count()};
    llvm::Error e =
        interactive ? interact(**session, *texts, flags) : generate(**session, *texts, flags);
    return e ? std::move(e) : toError(rt::plansUnchanged());
  }
  Tolerance tolerance;
  if (relative.getNumOccurrences())
    tolerance.relative = relative;
  if (absolute.getNumOccurrences())
    tolerance.absolute = absolute;
  return runTestData(**session, testData, tolerance);
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv,
                   "Continues prompts with a plan, or checks a plan against test data.");
  return runTool(run);
}
