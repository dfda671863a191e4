#include "tools/gpt2c-bench/Phases.h"

#include "tools/runtime-common/Report.h"

#include <algorithm>
#include <map>

namespace gpt2c {

namespace {

constexpr std::string_view firstOfLayer = "layer", firstOfLoader = "loader",
                           timeOfLayer = "nanoseconds", waited = "_waited";

/// Of a kernel's words: [block][row][name].
struct Words {
  const rt::KernelMarks &marks;
  size_t names = marks.names.size(),
         rows = marks.words.size() / rt::KernelMarks::blocks / std::max<size_t>(names, 1);

  uint32_t at(size_t block, size_t row, size_t name) const {
    return name < names ? marks.words[(block * rows + row) * names + name] : 0;
  }
  size_t indexOf(const std::string &name) const {
    return std::ranges::find(marks.names, name) - marks.names.begin();
  }
};

/// Of a name: the phases that ended so, of one block, in cycles.
struct Sum {
  double cycles = 0, waited = 0;
  int count = 0;
};

std::vector<Sum> sumsOf(const Words &words, size_t block) {
  std::vector<Sum> sums(words.names);
  uint32_t last[2] = {}; // of the computing thread, and of the loading one
  for (size_t row = 0; row < words.rows; ++row) {
    int thread = 0;
    for (size_t i = 0; i < words.names; ++i) {
      const std::string &name = words.marks.names[i];
      thread |= name == firstOfLoader;
      const uint32_t clock = words.at(block, row, i);
      if (clock == 0 || name.ends_with(waited) || name == timeOfLayer)
        continue;
      if (last[thread] != 0) {
        sums[i].cycles += uint32_t(clock - last[thread]);
        sums[i].waited += words.at(block, row, words.indexOf(name + std::string(waited)));
        ++sums[i].count;
      }
      last[thread] = clock;
    }
  }
  return sums;
}

/// From the begin of the first layer to that of the last one.
double cyclesOfMicrosecond(const Words &words, size_t block) {
  const size_t begin = words.indexOf(std::string(firstOfLayer)),
               time = words.indexOf(std::string(timeOfLayer)), last = words.rows - 2;
  const auto since = [&](size_t name) {
    return uint32_t(words.at(block, last, name) - words.at(block, 0, name));
  };
  return since(time) > 0 ? 1e3 * since(begin) / since(time) : 1e3;
}

} // namespace

std::vector<Phases> phasesOf(const rt::KernelMarks &marks) {
  const Words words{marks};
  if (words.names == 0 || words.rows < 2)
    return {};
  // Blocks whose phases are the same ones.
  std::map<std::vector<bool>, std::vector<std::vector<Sum>>, std::greater<>> kinds;
  double rate = 0;
  for (size_t block = 0; block < rt::KernelMarks::blocks; ++block) {
    std::vector<Sum> sums = sumsOf(words, block);
    std::vector<bool> kind;
    for (const Sum &s : sums)
      kind.push_back(s.count > 0);
    if (std::ranges::find(kind, true) == kind.end())
      continue;
    rate = std::max(rate, cyclesOfMicrosecond(words, block));
    kinds[kind].push_back(std::move(sums));
  }
  std::vector<Phases> all;
  for (const auto &[kind, blocks] : kinds) {
    Phases of{marks.kernel, int(blocks.size()), {}};
    for (size_t i = 0; i < words.names; ++i) {
      if (!kind[i])
        continue;
      Phase phase{marks.names[i], 0, 1e30, 0, 0};
      for (const std::vector<Sum> &sums : blocks) {
        const double time = sums[i].cycles / sums[i].count / rate;
        phase.mean += time / double(blocks.size());
        phase.least = std::min(phase.least, time);
        phase.most = std::max(phase.most, time);
        phase.waited += sums[i].waited / sums[i].count / rate / double(blocks.size());
      }
      of.phases.push_back(std::move(phase));
    }
    all.push_back(std::move(of));
  }
  return all;
}

Sheet sheetOf(const Phases &phases) {
  Sheet sheet{{"until", ">us", ">least", ">most", ">of them for slots"}, {}};
  for (const Phase &p : phases.phases)
    sheet.rows.push_back({p.name, fixed(p.mean, 3), fixed(p.least, 3), fixed(p.most, 3),
                          unless(p.waited <= 0, fixed(p.waited, 3))});
  return sheet;
}

} // namespace gpt2c
