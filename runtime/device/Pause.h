// What a thread does between two looks at memory that another one is about to write.
#pragma once

namespace gpt2c::rt {

inline void pauseThread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

} // namespace gpt2c::rt
