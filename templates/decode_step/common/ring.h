// Which warp fills which slot of a ring, for host and device: C++17, without any other header.
#pragma once

#ifdef __CUDACC__
#define GPT2C_BOTH __host__ __device__
#else
#define GPT2C_BOTH
#endif

namespace gpt2c::persistent {

/// Slots from `slot` on that others fill before the one that warp `warp` of `loaders` does.
///
/// A slot is always the same warp's, in every lap: a barrier knows this lap from the next, no more.
/// A warp that had not waited for its readers of the lap before could take it for free while they
/// still read, if others have read ahead.
GPT2C_BOTH constexpr int slotsUntil(int slot, int warp, int loaders) {
  return (warp + loaders - slot % loaders) % loaders;
}

} // namespace gpt2c::persistent

#undef GPT2C_BOTH
