// Where the time of a step that is one kernel goes, by what its blocks noted (gpt2c --step-marks).
#pragma once

#include "runtime/session/Session.h"
#include "tools/gpt2c-bench/Sheet.h"

namespace gpt2c {

/// What a thread of a block did until a mark, from the mark before it. Microseconds each time,
/// means over the layers: the mean, the least and the most of the blocks.
struct Phase {
  std::string name;
  double mean = 0, least = 0, most = 0;
  double waited = 0; ///< of the mean, for slots of the ring
};
/// Of the blocks of a kernel that have the same phases.
struct Phases {
  std::string kernel;
  int blocks = 0;
  std::vector<Phase> phases;
};

/// Of each kind of blocks, those with the most phases first. Names of marks are those of
/// templates/decode_step/shares/marks.cuh.
std::vector<Phases> phasesOf(const rt::KernelMarks &marks);

Sheet sheetOf(const Phases &phases);

} // namespace gpt2c
