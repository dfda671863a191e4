#include "runtime/cuda/CudaBackend.h"

namespace gpt2c::rt {

Result<std::unique_ptr<Backend>> makeCudaBackend(Plan::Ptr) {
  return Status(Code::Incompatible, "this version cannot run plans on a GPU; use --device=cpu");
}

} // namespace gpt2c::rt
