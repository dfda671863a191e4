// OpenBLAS knows processors by their model numbers, and takes one that is newer than itself for the
// oldest it has kernels for. What the processor can do is asked instead.
//
// Each of its threads maps a buffer of 128 MiB, some of them while the library is loaded, and tries
// for ever where the system refuses. Whether there is room is asked before.
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/// A thread's buffer, and its stack.
static const size_t bytesOfThread = ((size_t)128 + 8) << 20;

/// Whether the address space has room for `threads` more threads of OpenBLAS; always where the
/// process has no limit.
__attribute__((visibility("default"))) int gpt2cBlasHasRoom(int threads) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return 1;
  const size_t bytes = (size_t)threads * bytesOfThread;
  void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);
  if (p == MAP_FAILED)
    return 0;
  munmap(p, bytes);
  return 1;
}

/// Threads of products. OpenBLAS computes each part of one on the thread that asks.
static atomic_int productThreads = 1;

__attribute__((visibility("default"))) int gpt2cProductThreads(void) { return productThreads; }
__attribute__((visibility("default"))) void gpt2cSetProductThreads(int threads) {
  productThreads = threads;
}

/// Half of the address space is left for what is multiplied.
static void chooseThreads(void) {
  const char *given = getenv("OPENBLAS_NUM_THREADS");
  long threads = given ? atol(given) : 0;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (threads < 1 || threads > cores)
    threads = cores;
  if (threads > 1 && !gpt2cBlasHasRoom(2 * (int)threads)) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    threads = 1;
  }
  productThreads = (int)threads;
}

/// Priority 101: before OpenBLAS's own constructor, which reads the variables. A kernel that the
/// user has chosen stays.
__attribute__((constructor(101))) static void beforeOpenBlas(void) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    setenv("OPENBLAS_CORETYPE", "Haswell", 0);
#endif
  chooseThreads();
}
