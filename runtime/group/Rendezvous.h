// How the processes of a group find each other: the variables that torchrun, mpirun with a wrapper,
// Ray and Kubernetes set.
#pragma once

#include "runtime/group/Socket.h"

#include <cstdint>
#include <vector>

namespace gpt2c::rt {

struct Rendezvous {
  int rank = 0, ranks = 1;
  int stages = 1; ///< of RankLink, and so is microRows
  int microRows = 0;
  std::string address; ///< of rank 0, which listens there
  int port = 0;
  double waitSeconds = 30; ///< until all are there
  /// A rank of which nothing is heard for so long is lost: a process that lives tells so ten times
  /// in a second.
  double silenceSeconds = 0.8;
};

/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Usage: one is missing or no number of its range,
/// with its name. Where torchrun itself listens at that port (TORCHELASTIC_USE_AGENT_STORE), the
/// ranks meet at the next one.
Result<Rendezvous> rendezvousOfEnvironment();

/// The connections of rank 0, by rank, rank 0's own not valid; of another rank, one to rank 0.
/// `plan` is a hash of what all have to have. Each rank that does not fit is refused with words,
/// and so is the group.
Result<std::vector<Socket>> meet(const Rendezvous &at, uint64_t plan);

} // namespace gpt2c::rt
