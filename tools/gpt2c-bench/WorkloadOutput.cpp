// The results of a workload as Markdown, CSV or JSON.
#include "tools/gpt2c-bench/Sheet.h"
#include "tools/gpt2c-bench/Workload.h"

#include <sstream>

namespace gpt2c {

namespace {

std::vector<NamedSpread> measures(const WorkloadResults &r) {
  return {{"time to first token, ms", "time_to_first_token_ms", r.firstToken, 2},
          {"time between tokens, ms", "time_between_tokens_ms", r.betweenTokens, 3},
          {"whole answer, ms", "whole_answer_ms", r.whole, 1},
          {"requests waiting", "waiting", r.queue, 1},
          {"sequences a step", "sequences_a_step", r.running, 1},
          {"rows a step", "rows_a_step", r.rows, 1},
          {"pages used", "pages_used", r.pages, 1}};
}

/// Bytes a second of pages that were copied.
double rateOf(const rt::EngineStats &e, int64_t pages, double seconds) {
  return share(double(pages) * double(e.pageBytes), seconds);
}

/// What became of pages in host memory; nothing where there are none.
void writeHostPages(const rt::EngineStats &e, std::ostream &os) {
  if (e.hostPages == 0)
    return;
  const auto copied = [&](const char *where, int64_t pages, double seconds, double measured) {
    os << pages << " pages " << where << " at " << fixed(rateOf(e, pages, seconds) * 1e-9, 2)
       << " GB/s (" << fixed(measured * 1e-9, 2) << " measured)";
  };
  os << "- " << e.hostPages << " pages in host memory: " << e.turnsEnded << " turns ended, ";
  copied("out", e.pagesOut, e.outSeconds, e.outBytesPerSecond);
  os << ", ";
  copied("back", e.pagesIn, e.inSeconds, e.inBytesPerSecond);
  os << "\n- a token comes back by a copy in " << fixed(e.copySecondsPerToken * 1e6, 2)
     << " us, computed again in " << fixed(e.recomputeSecondsPerToken * 1e6, 2) << " us; "
     << e.recomputedTokens << " were computed again\n";
  if (e.pagesRead > 0) {
    const double bytes = double(e.pagesRead) * double(e.pageBytes);
    os << "- " << e.pagesRead
       << " pages were read in host memory, where they lie: " << fixed(bytes * 1e-9, 3) << " GB, "
       << fixed(share(bytes, e.inBytesPerSecond), 3) << " s at the rate of copies back\n";
  }
}

/// What there is one number of.
Totals totals(const WorkloadResults &r) {
  const rt::EngineStats &e = r.engine;
  return {{"requests", double(r.requests)},
          {"completed", double(r.completed)},
          {"refused", double(r.refused)},
          {"failed", double(r.failed)},
          {"seconds", r.seconds},
          {"requests_per_second", share(double(r.completed), r.seconds)},
          {"output_tokens", double(r.outputTokens)},
          {"output_tokens_per_second", share(double(r.outputTokens), r.seconds)},
          {"prompt_tokens", double(r.promptTokens)},
          {"prompt_tokens_per_second", share(double(r.promptTokens), r.seconds)},
          {"steps", double(e.calls)},
          {"rows", double(e.rows)},
          {"prompt_rows", double(e.promptRows)},
          {"wasted_rows", double(e.wastedRows)},
          {"row_budget", double(r.rowBudget)},
          {"pages", double(e.pages)},
          {"page_tokens", double(r.pageTokens)},
          {"prefix_hit_tokens", double(e.prefixHits)},
          {"device_busy_share", share(e.busySeconds, r.seconds)},
          {"host_pages", double(e.hostPages)},
          {"turns_ended", double(e.turnsEnded)},
          {"pages_out", double(e.pagesOut)},
          {"pages_in", double(e.pagesIn)},
          {"out_bytes_per_second", rateOf(e, e.pagesOut, e.outSeconds)},
          {"in_bytes_per_second", rateOf(e, e.pagesIn, e.inSeconds)},
          {"measured_out_bytes_per_second", e.outBytesPerSecond},
          {"measured_in_bytes_per_second", e.inBytesPerSecond},
          {"recomputed_tokens", double(e.recomputedTokens)},
          {"pages_read", double(e.pagesRead)},
          {"read_bytes", double(e.pagesRead) * double(e.pageBytes)},
          {"copy_seconds_per_token", e.copySecondsPerToken},
          {"recompute_seconds_per_token", e.recomputeSecondsPerToken}};
}

const char *const explanation =
    "Time to first token: from the moment a request comes, as the workload has it, to its first "
    "token; waiting and the prompt are in it. Time between tokens: all gaps of all answers. A step "
    "is one call of the device: a row for the next token of each sequence, and rows of prompts up "
    "to the row budget. The device worked: the share of the time in which a call was begun and its "
    "results were not read, an upper bound. Prefix hits: prompt tokens whose keys and values were "
    "there already.";

} // namespace

void writeMarkdown(const WorkloadResults &r, std::ostream &os) {
  const rt::EngineStats &e = r.engine;
  os << r.workload << ": " << r.requests << " requests through " << r.plan << " (" << r.precision
     << ") on " << r.device << ", row budget " << r.rowBudget << ", " << e.pages << " pages of "
     << r.pageTokens << " tokens\n\n";
  os << "- " << r.completed << " completed in " << fixed(r.seconds, 3) << " s, " << r.refused
     << " refused, " << r.failed << " failed\n";
  if (!r.firstProblem.empty())
    os << "- the first problem: " << r.firstProblem << "\n";
  os << "- " << fixed(share(double(r.completed), r.seconds), 1) << " requests/s, "
     << fixed(share(double(r.outputTokens), r.seconds), 1) << " output tokens/s, "
     << fixed(share(double(r.promptTokens), r.seconds), 1) << " prompt tokens/s\n";
  os << "- " << e.calls << " steps with " << e.rows << " rows: " << e.promptRows << " of prompts, "
     << e.wastedRows << " of answers that had ended\n";
  os << "- prefix hits: " << e.prefixHits << " of " << r.promptTokens << " prompt tokens\n";
  writeHostPages(e, os);
  os << "- answers " << std::hex << r.answers << std::dec << "\n";
  os << "- the device worked " << fixed(100 * share(e.busySeconds, r.seconds), 1)
     << " % of the time\n\n";
  sheetOf(measures(r)).markdown(os);
  os << "\n" << explanation << "\n";
}

void writeCsv(const WorkloadResults &r, std::ostream &os) { writeCsv(measures(r), totals(r), os); }

Json jsonOf(const WorkloadResults &r) {
  Json object{
      {"plan", r.plan}, {"precision", r.precision}, {"device", r.device}, {"workload", r.workload}};
  addTo(object, totals(r), measures(r));
  std::ostringstream answers;
  answers << std::hex << r.answers;
  object["answers"] = answers.str();
  if (!r.firstProblem.empty())
    object["first_problem"] = r.firstProblem;
  return object;
}

} // namespace gpt2c
