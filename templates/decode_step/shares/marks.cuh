// When a block of a step did what, for a plan that asks for it (--step-marks): clocks of its
// multiprocessor in words of the kernel's own, which the host reads behind a launch. In others none
// of this is code.
#pragma once

#include "templates/decode_step/shares/shares.h"
#include "templates/device/common.cuh"

namespace gpt2c::shares {

/// X(name) of all marks of a layer, in order. Those of a thread are ends of what it does one after
/// the other: of the first computing warp, then of the first loading one. Those named `_waited` are
/// cycles that it waited for slots of the ring meanwhile.
#define GPT2C_SHARES_MARKS(X)                                                                      \
  X(layer)                                                                                         \
  X(x_received)                                                                                    \
  X(heads_multiplied)                                                                              \
  X(heads_sums_came)                                                                               \
  X(queries_made)                                                                                  \
  X(keys_attended)                                                                                 \
  X(attended_sent)                                                                                 \
  X(attended_came)                                                                                 \
  X(projection_published)                                                                          \
  X(attention_received)                                                                            \
  X(mlp_multiplied)                                                                                \
  X(mlp_sums_came)                                                                                 \
  X(hidden_sent)                                                                                   \
  X(hidden_came)                                                                                   \
  X(output_published)                                                                              \
  X(last_x_received)                                                                               \
  X(last_x_came)                                                                                   \
  X(vocabulary_multiplied)                                                                         \
  X(chosen)                                                                                        \
  X(heads_multiplied_waited)                                                                       \
  X(keys_attended_waited)                                                                          \
  X(projection_published_waited)                                                                   \
  X(mlp_multiplied_waited)                                                                         \
  X(output_published_waited)                                                                       \
  X(vocabulary_multiplied_waited)                                                                  \
  X(loader)                                                                                        \
  X(heads_filled)                                                                                  \
  X(keys_filled)                                                                                   \
  X(projection_filled)                                                                             \
  X(mlp_filled)                                                                                    \
  X(output_filled)                                                                                 \
  X(vocabulary_filled)                                                                             \
  X(heads_filled_waited)                                                                           \
  X(keys_filled_waited)                                                                            \
  X(projection_filled_waited)                                                                      \
  X(mlp_filled_waited)                                                                             \
  X(output_filled_waited)                                                                          \
  X(vocabulary_filled_waited)                                                                      \
  X(nanoseconds)

enum class Mark : int {
#define GPT2C_MARK(name) name,
  GPT2C_SHARES_MARKS(GPT2C_MARK)
#undef GPT2C_MARK
      count
};
#define GPT2C_MARK(name) #name " "
/// Their names in order, a blank behind each.
#define GPT2C_SHARES_MARK_NAMES GPT2C_SHARES_MARKS(GPT2C_MARK)

/// words(): [blocks][layers + 1][Mark::count], the last row of a block for what is behind the
/// layers. Specialised in the text of a kernel that has them.
template <typename C> struct MarkWords;

/// Of a thread.
template <typename C, bool On = C::Marks> struct Marker {
  __device__ __forceinline__ void mark(int, Mark) const {}
  __device__ __forceinline__ void markWaited(int, Mark) const {}
  template <typename Wait> __device__ __forceinline__ void timed(Wait &&wait) const { wait(); }
};
#if __CUDA_ARCH__ >= 900
template <typename C> struct Marker<C, true> {
  mutable unsigned waited = 0;

  static __device__ __forceinline__ unsigned clock() {
    unsigned v;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory");
    return v;
  }
  static __device__ __forceinline__ void set(int layer, Mark m, unsigned v) {
    constexpr int rows = (C::Records - 3) / 2 + 1, marks = (int)Mark::count;
    MarkWords<C>::words()[((int)blockIdx.x * rows + layer) * marks + (int)m] = v;
  }
  /// By the first lanes of the first computing warp and of the first loading one.
  static __device__ __forceinline__ bool notes() {
    return threadIdx.x == 0 || threadIdx.x == 32 * (warps + helpers);
  }
  /// Of row `layer`; of the layers' number: behind them.
  __device__ __forceinline__ void mark(int layer, Mark m) const {
    if (!notes())
      return;
    set(layer, m, clock());
    if (m == Mark::layer || m == Mark::last_x_received) {
      u64 time;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
      set(layer, Mark::nanoseconds, (unsigned)time);
    }
  }
  __device__ __forceinline__ void markWaited(int layer, Mark m) const {
    if (notes())
      set(layer, m, waited);
    waited = 0;
  }
  template <typename Wait> __device__ __forceinline__ void timed(Wait &&wait) const {
    const unsigned begin = clock();
    wait();
    waited += clock() - begin;
  }
};
#endif
} // namespace gpt2c::shares
