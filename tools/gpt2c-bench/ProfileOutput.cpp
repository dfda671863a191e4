#include "tools/gpt2c-bench/ProfileOutput.h"

#include "tools/gpt2c-bench/Sheet.h"

namespace gpt2c {

namespace {

/// Every launch, with what a person needs to find it in the plan.
Sheet stepSheet(const Profile &p, const Peak &peak, bool nodes) {
  Sheet sheet{{">#", "op", "kernel", "grid", ">us", ">floor us", ">% of roofline", ">MB", ">GFLOP",
               ">GB/s"},
              {}};
  if (nodes)
    sheet.titles.push_back("nodes");
  for (const StepRow &s : p.steps) {
    sheet.rows.push_back(
        {std::to_string(sheet.rows.size()), s.op, s.kernel, s.grid, fixed(s.time * 1e3, 2),
         unless(peak.bytesPerSecond <= 0, fixed(s.floor * 1e3, 2)),
         unless(s.time <= 0, percent(s.floor, s.time)), fixed(s.bytes / 1e6, 3),
         fixed(s.flops / 1e9, 3), unless(s.time <= 0, fixed(s.bytes / s.time / 1e6, 0))});
    if (nodes)
      sheet.rows.back().push_back(s.nodes);
  }
  return sheet;
}

/// Launches of one kernel for one op together, the longest first.
Sheet kernelSheet(const Profile &p) {
  struct Sum {
    int count = 0;
    double time = 0, floor = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const StepRow &s : p.steps) {
    Sum &sum = sums[{s.op, s.kernel}];
    ++sum.count;
    sum.time += s.time;
    sum.floor += s.floor;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, [](auto &a, auto &b) { return a.second.time > b.second.time; });
  Sheet sheet{
      {"op", "kernel", ">launches", ">us", ">us each", ">% of time", ">floor us", ">% of roofline"},
      {}};
  Sum all;
  auto add = [&](const std::string &op, const std::string &kernel, const Sum &sum) {
    sheet.rows.push_back({op, kernel, std::to_string(sum.count), fixed(sum.time * 1e3, 1),
                          fixed(sum.time * 1e3 / sum.count, 2), percent(sum.time, p.time()),
                          fixed(sum.floor * 1e3, 1),
                          unless(sum.time <= 0, percent(sum.floor, sum.time))});
  };
  for (auto &[key, sum] : order) {
    add(key.first, key.second, sum);
    all.count += sum.count;
    all.time += sum.time;
    all.floor += sum.floor;
  }
  if (all.count > 0)
    add("all", "", all);
  return sheet;
}

const char *const profileExplanation =
    "Each step's time is what the run takes longer with it than up to the step before, on the "
    "device's clock, in a run of all steps: caches are as in use and the times sum up; a single "
    "one is good to about half a microsecond, and steps that overlap share their time as it falls. "
    "floor: the step's fewest bytes and operations at the peak; % of roofline: floor over time.";

} // namespace

void printMarkdown(std::span<const Profile> profiles, const Peak &peak, std::ostream &os) {
  for (const Profile &p : profiles) {
    os << "\n"
       << p.title() << ": " << p.steps.size() << " launches, " << fixed(p.time(), 4) << " ms\n\n";
    kernelSheet(p).markdown(os);
    os << "\n";
    stepSheet(p, peak, false).markdown(os);
    for (const Phases &phases : p.phases) {
      os << "\n"
         << phases.kernel << ", " << phases.blocks
         << " blocks: microseconds from one mark to the next, of one step\n\n";
      sheetOf(phases).markdown(os);
    }
  }
  if (!profiles.empty())
    os << "\n" << profileExplanation << "\n";
}

void printCsv(std::span<const Profile> profiles, const Peak &peak, std::ostream &os) {
  if (profiles.empty())
    return;
  Sheet all;
  for (const Profile &p : profiles) {
    Sheet steps = stepSheet(p, peak, true);
    all.titles = {"kind"};
    std::vector<std::string> of = {p.kind};
    if (p.call.empty()) {
      all.titles.insert(all.titles.end(), {"batch", "tokens"});
      of.push_back(std::to_string(p.batch));
      of.push_back(std::to_string(p.tokens));
    } else {
      all.titles.push_back("call");
      of.push_back(p.call);
    }
    all.titles.insert(all.titles.end(), steps.titles.begin(), steps.titles.end());
    for (auto &row : steps.rows) {
      all.rows.push_back(of);
      all.rows.back().insert(all.rows.back().end(), row.begin(), row.end());
    }
  }
  os << "\n";
  all.csv(os);
}

Json profilesJson(std::span<const Profile> profiles) {
  Json list = Json::array();
  for (const Profile &p : profiles) {
    Json steps = Json::array();
    for (const StepRow &s : p.steps)
      steps.push_back(Json{{"op", s.op},
                           {"kernel", s.kernel},
                           {"grid", s.grid},
                           {"nodes", s.nodes},
                           {"ms", s.time},
                           {"floor_ms", s.floor},
                           {"bytes", s.bytes},
                           {"flops", s.flops}});
    Json phases = Json::array();
    for (const Phases &of : p.phases)
      for (const Phase &phase : of.phases)
        phases.push_back(Json{{"kernel", of.kernel},
                              {"blocks", of.blocks},
                              {"until", phase.name},
                              {"us", phase.mean},
                              {"least_us", phase.least},
                              {"most_us", phase.most},
                              {"slots_us", phase.waited}});
    Json o{{"kind", p.kind}, {"ms", p.time()}, {"steps", std::move(steps)}};
    if (p.call.empty()) {
      o["batch"] = p.batch;
      o["tokens"] = p.tokens;
    } else {
      o["call"] = p.call;
    }
    if (!phases.empty())
      o["phases"] = std::move(phases);
    list.push_back(std::move(o));
  }
  return list;
}

} // namespace gpt2c
