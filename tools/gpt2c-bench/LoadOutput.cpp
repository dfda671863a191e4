// What playing requests against a server gave, as Markdown, CSV or JSON.
#include "tools/gpt2c-bench/Load.h"

namespace gpt2c {

namespace {

std::vector<NamedSpread> measures(const LoadResults &r) {
  return {{"time to first token, ms", "time_to_first_token_ms", r.firstToken, 2},
          {"time between tokens, ms", "time_between_tokens_ms", r.betweenTokens, 3},
          {"time per output token, ms", "time_per_output_token_ms", r.perToken, 3},
          {"whole answer, ms", "whole_answer_ms", r.whole, 1},
          {"sent late, ms", "sent_late_ms", r.late, 3}};
}

double tokensOfEvent(const LoadResults &r) {
  return share(double(r.outputTokens), double(r.events));
}

Totals totals(const LoadResults &r) {
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
          {"streams", double(r.streams)},
          {"connections", double(r.mostConnections)},
          {"tokens_an_event", tokensOfEvent(r)}};
}

const char *const howLoadIsMeasured =
    "Time to first token: to the first event with a token, from the moment a request comes, as the "
    "workload has it; with --streams from when it is sent. Time between tokens: all gaps between "
    "events of an answer that bring tokens; tokens of one event come at once. Time per output "
    "token: of each answer the time behind its first token, by the tokens that follow it. Sent "
    "late: by how much this side was behind the workload. Refused: 429.";

} // namespace

void writeMarkdown(const LoadResults &r, std::ostream &os) {
  os << r.workload << ": " << r.requests << " requests to " << r.model << " at " << r.url << ", ";
  if (r.streams)
    os << r.streams << " at a time";
  else
    os << "at their times";
  os << ", by " << r.threads << (r.threads == 1 ? " thread" : " threads") << "\n\n";
  os << "- " << r.completed << " completed in " << fixed(r.seconds, 3) << " s, " << r.refused
     << " refused, " << r.failed << " failed\n- answers:";
  const char *before = " ";
  for (const auto &[status, count] : r.statuses)
    os << std::exchange(before, ", ") << count << " of " << status;
  os << "\n";
  if (!r.firstProblem.empty())
    os << "- the first problem: " << printable(r.firstProblem) << "\n";
  os << "- " << fixed(share(double(r.completed), r.seconds), 1) << " requests/s, "
     << fixed(share(double(r.outputTokens), r.seconds), 1) << " output tokens/s, "
     << fixed(share(double(r.promptTokens), r.seconds), 1) << " prompt tokens/s\n";
  os << "- " << fixed(tokensOfEvent(r), 2) << " tokens an event, " << r.mostConnections
     << " connections\n\n";
  sheetOf(measures(r)).markdown(os);
  os << "\n" << howLoadIsMeasured << "\n";
}

void writeCsv(const LoadResults &r, std::ostream &os) { writeCsv(measures(r), totals(r), os); }

Json jsonOf(const LoadResults &r) {
  Json object{{"url", r.url}, {"model", r.model}, {"workload", r.workload}};
  addTo(object, totals(r), measures(r));
  object["statuses"] = r.statuses;
  if (!r.firstProblem.empty())
    object["first_problem"] = r.firstProblem;
  return object;
}

} // namespace gpt2c
