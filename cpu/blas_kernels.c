// OpenBLAS knows processors by their model numbers, and takes one that is newer than itself for the
// oldest it has kernels for. What the processor can do is asked instead.
#include <stdlib.h>

/// Priority 101: before OpenBLAS's own constructor, which reads the variable. A value that the
/// user has set stays.
__attribute__((constructor(101))) static void chooseKernels(void) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    setenv("OPENBLAS_CORETYPE", "Haswell", 0);
#endif
}
