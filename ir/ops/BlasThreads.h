// Threads of matrix products.
#pragma once

namespace gpt2c {

/// Sets the threads of products; false, and nothing changes, where a limit of the address space has
/// no room for their buffers.
bool setProductThreads(int threads);
/// How many there are, 128 at most.
int productThreads();

} // namespace gpt2c
