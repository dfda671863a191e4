// --kv-cache-bytes, and what pages of an engine in host memory are: --host-pages and its kin.
#pragma once

#include "runtime/engine/Engine.h"
#include "tools/runtime-common/Flags.h"

namespace gpt2c {

struct EngineFlags {
  void addTo(Flags &flags);
  /// Usage where a value is no number of its kind.
  rt::Status apply(rt::EngineOptions &options) const;

private:
  uint64_t kvBytes_ = 0;
  std::string hostPages_;
  rt::Comeback comeback_ = rt::Comeback::Auto;
  int turnTokens_ = 0;
  bool checks_ = false;
};

} // namespace gpt2c
