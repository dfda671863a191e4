// What the arguments and results of an exported graph are to a language model with a KV state.
#pragma once

#include "ir/Ports.h"
#include "passes/Remark.h"

#include <optional>

namespace gpt2c {

/// What the exported graph's arguments and results are.
struct KvInterface {
  Value *ids = nullptr, *keyMask = nullptr, *positionIds = nullptr;
  llvm::SmallVector<Op *> attentions; // in layer order
  llvm::SmallVector<Op *> tokenGathers, positionGathers;
  int64_t positions = 0, vocabulary = 0;
  int logits = -1; // result index; -1: the graph has no head
  std::vector<ExportedPort> inputs, outputs;
};

/// Finds token ids, attentions, mask, position ids, tables and the roles of all ports.
KvInterface findKvInterface(Function &f);

/// The argument that `v` is a copy of (through casts and reshapes); null when it is computed.
Value *copiedArgument(Value *v);

/// The argument, given in any type, that tells `attention` which keys count; null when there is
/// none.
Value *keyMaskOf(const Op &attention);

/// True when `index` equals past + 0, 1, 2, ... along the last axis in every row, with every mask
/// of ones.
bool isPastPlusIota(Function &f, const KvInterface &io, Value *index);

/// The reason why the graph cannot have a KV state; none when it can.
std::optional<Obstacle> kvObstacle(Function &f, const KvInterface &io, int64_t maxContext);

} // namespace gpt2c
