#include "ir/ops/CpuLevel.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gpt2c {

#ifdef __x86_64__
/// Tiles, and their products of bfloat16 and int8.
static bool hasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bfloat16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25,
                     all = bfloat16 | tile | int8;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & all) == all;
}

/// Their registers are the system's to save, for those alone who ask.
static bool mayUseTiles() {
#ifdef SYS_arch_prctl
  constexpr long askFor = 0x1023, tileData = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, askFor, tileData) == 0;
#else
  return false;
#endif
}
#endif

static CpuLevel probe() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (vnni && hasTiles() && mayUseTiles())
    return CpuLevel::Amx;
  if (avx512)
    return vnni ? CpuLevel::Vnni : CpuLevel::Avx512;
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
