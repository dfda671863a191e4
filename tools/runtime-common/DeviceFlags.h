// --device, --threads, --gpus, --ranks, --pipeline-parallel, --micro-batch and
// --skip-weight-checksum.
#pragma once

#include "runtime/session/Session.h"
#include "tools/runtime-common/Flags.h"

#include <memory>
#include <string>

namespace gpt2c {

struct DeviceFlags {
  std::string device = "auto";
  int threads = 0; ///< of the CPU device; 0: one for each core
  bool skipWeightChecksum = false;
  std::string gpus = {};  ///< "": as the device says; "0,1": a rank on each
  std::string ranks = {}; ///< "": alone; a number, or "env"
  int stages = 1;         ///< --pipeline-parallel
  int microRows = 0;      ///< --micro-batch
  double ranksWait = 30;  ///< seconds until all processes are there
  double rankSilence = 0; ///< seconds after which a silent one is lost; 0: as is usual

  void addTo(Flags &flags);
};

/// Opens the plan on the device that the flags name. For auto: on the GPU where there is one that
/// the plan has code for, else on the CPU with a line on stderr that says why.
rt::Result<std::unique_ptr<rt::Session>> openSession(const std::string &planPath,
                                                     const DeviceFlags &flags);
rt::Result<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan, const DeviceFlags &flags);

/// Whether this process is a rank that does what rank 0 says, and nothing else: --ranks=env, and
/// RANK is not 0. Errors of --ranks are openSession()'s.
bool followsRank(const DeviceFlags &flags);
/// Does so until rank 0 ends.
rt::Status followRank(const std::string &planPath, const DeviceFlags &flags);

} // namespace gpt2c
