// gpt2c-run: generates text with a plan, or checks it against recorded inputs and outputs.
#include "tools/common/CommandLine.h"
#include "tools/common/Device.h"
#include "tools/common/Report.h"
#include "tools/gpt2c-run/Run.h"

#include "ir/Error.h"

#include <chrono>

using namespace gpt2c;
namespace cl = llvm::cl;

static auto category() { return cl::cat(toolCategory()); }

static cl::opt<std::string> planPath(cl::Positional, cl::desc("PLAN"), cl::Required, category());
static cl::list<std::string> prompts("prompt", cl::desc("Continue TEXT; several make a batch"),
                                     cl::value_desc("TEXT"), category());
static cl::list<std::string> promptFiles("prompt-file",
                                         cl::desc("Continue the text in FILE (- is stdin)"),
                                         cl::value_desc("FILE"), category());
static cl::list<std::string> ids("ids", cl::desc("Continue these token ids"),
                                 cl::value_desc("1,2,3"), category());
static cl::opt<int64_t> newTokens("n", cl::desc("New tokens for each prompt (default 32)"),
                                  cl::value_desc("N"), cl::init(GenerateFlags().newTokens),
                                  category());
static cl::opt<OutputKind> outputKind(
    "output", cl::desc("What to print"),
    cl::values(clEnumValN(OutputKind::Text, "text", "the new text as it is generated (default)"),
               clEnumValN(OutputKind::Ids, "ids",
                          "the new ids, one line for each prompt (default where there "
                          "is no tokenizer)"),
               clEnumValN(OutputKind::Json, "json",
                          "one object: device, prompts, ids, texts, times")),
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
static cl::opt<double>
    relative("rtol",
             cl::desc("With --test-data: largest norm(difference) / norm(expected) (default 1e-4; "
                      "1e-2 where the plan or the output is fp16)"),
             cl::value_desc("R"), category());
static cl::opt<double>
    absolute("atol", cl::desc("With --test-data: largest difference of an element (default: any)"),
             cl::value_desc("A"), category());

static llvm::Error checkUsage() {
  bool generates = !prompts.empty() || !promptFiles.empty() || !ids.empty();
  if (generates == !testData.empty())
    return makeError(ExitCode::Usage, generates
                                          ? "--test-data takes no prompt"
                                          : "nothing to do: give --prompt, --prompt-file, --ids "
                                            "or --test-data (see --help)");
  if ((relative.getNumOccurrences() || absolute.getNumOccurrences()) && testData.empty())
    return makeError(ExitCode::Usage, "--rtol and --atol belong to --test-data");
  if (newTokens < 1)
    return makeError(ExitCode::Usage, "-n must be at least 1");
  return llvm::Error::success();
}

static llvm::Expected<Prompts> readPrompts() {
  Prompts out{.texts = prompts, .ids = ids};
  for (const std::string &file : promptFiles) {
    auto buffer = readInput(file);
    if (!buffer)
      return buffer.takeError();
    out.texts.push_back((*buffer)->getBuffer().str());
  }
  return out;
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
  if (testData.empty())
    return generate(**session, *texts,
                    {.newTokens = newTokens,
                     .ignoreEos = ignoreEos,
                     .output = outputKind,
                     .tokenizer = tokenizer,
                     .loadSeconds = loading.count()});
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
  return report(run());
}
