#include "ir/ops/CpuLevel.h"

namespace gpt2c {

static CpuLevel probe() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512)
    return __builtin_cpu_supports("avx512vnni") ? CpuLevel::Vnni : CpuLevel::Avx512;
  if (avx2)
    return CpuLevel::Avx2;
#endif
  return CpuLevel::Portable;
}

CpuLevel machineLevel() {
  static const CpuLevel level = probe();
  return level;
}

} // namespace gpt2c
