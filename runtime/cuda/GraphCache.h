// CUDA graphs of launch sequences that come again.
#pragma once

#include "runtime/cuda/CudaDevice.h"
#include "runtime/plan/PlanFile.h"

#include <functional>
#include <map>

namespace gpt2c::rt::cuda {

/// Keeps the graphs used last. The sequence behind a key must always be the same launches with the
/// same arguments.
class GraphCache {
public:
  /// A function at given symbols and outputs, repeated.
  struct Key {
    const plan::FunctionT *function = nullptr;
    std::vector<int64_t> symbols;
    std::vector<CUdeviceptr> outputs;
    int repeats = 1;
    auto operator<=>(const Key &) const = default;
  };

  explicit GraphCache(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

  /// Enqueues what `enqueue` does: by calling it for the first `directUses` uses of the key, then
  /// as a graph captured from it. Capturing costs several times what the launches do, so it pays
  /// where a sequence comes at least twice.
  Status run(const Key &key, int directUses, const std::function<Status()> &enqueue);
  /// Makes the graph of the key where there is none, so that run() has nothing to do that waits for
  /// kernels of the device.
  Status prepare(const Key &key, const std::function<Status()> &enqueue);

private:
  struct Entry {
    Graph graph;
    int uses = 0;
    uint64_t lastUse = 0;
  };
  Entry &entryOf(const Key &key);
  Status capture(Entry &entry, const std::function<Status()> &enqueue);
  void evict();

  std::shared_ptr<CudaDevice> device_;
  std::map<Key, Entry> entries_;
  uint64_t clock_ = 0;
};

} // namespace gpt2c::rt::cuda
