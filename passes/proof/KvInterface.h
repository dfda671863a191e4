// What the arguments and results of an exported graph are to a language model with a KV state.
#pragma once

#include "ir/Ports.h"
#include "passes/Remark.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace gpt2c {

/// What the exported graph's arguments and results are.
struct KvInterface {
  Value *ids = nullptr, *keyMask = nullptr, *positionIds = nullptr, *tokenTypes = nullptr;
  llvm::SmallVector<Op *> attentions; // in layer order
  /// Tables read by a function of ids alone, of token types alone, and by anything else: gathers,
  /// and ropes; operand Gather::Indices of either has the rows.
  llvm::SmallVector<Op *> tokenGathers, typeGathers, positionGathers;
  int64_t positions = 0; ///< positions in the shortest table of them; 0: there is none
  /// Rows of a table in front of that of position 0, by its gather; once kvObstacle has found them.
  llvm::DenseMap<const Op *, int64_t> rowsInFront;
  int64_t vocabulary = 0; ///< ids that every table of tokens takes; 0: not known
  int logits = -1;        // result index; -1: the graph has no head
  /// What takes the last token in front of the logits; null where they are those of every token.
  Op *lastToken = nullptr;
  /// The softmax that makes an output of the logits; null where none is one.
  const Op *softmax = nullptr;
  /// Why there are no ids or no logits, where several ports may be meant.
  std::string idsDoubt, logitsDoubt;
  std::vector<ExportedPort> inputs, outputs;
  bool addsLogits = false; ///< the last of `outputs` is no output of the export
};

static_assert(ops::sameNumber<ops::Gather::Indices, ops::Rope::Positions>);

/// Where the output in the place of logits holds probabilities: the function gives their logits
/// besides, as one output more.
void addLogits(Function &f, KvInterface &io);

/// Finds token ids, attentions, mask, position ids, tables and the roles of all ports.
KvInterface findKvInterface(Function &f);

/// Which inputs are ids, positions and types, and which tables they read: by what the graph does
/// with them and by their names. Where both leave a doubt, there are no ids.
void findIndexInputs(Function &f, KvInterface &io);

/// Which output holds the logits, once the ids are known.
void findLogits(Function &f, KvInterface &io);

/// The argument that `v` is a copy of (through reshapes and casts to i32 and i64); null when it is
/// computed.
Value *copiedArgument(Value *v);

/// The argument, given in any type, that tells `attention` which keys count; null when there is
/// none.
Value *keyMaskOf(const Op &attention);

/// The layer of the KV state of each attention, in their order: a new one, but that of an earlier
/// attention where both read the same keys and values, new and past.
std::vector<int64_t> stateLayers(llvm::ArrayRef<Op *> attentions);

/// Whether @generation stands for `f`, the exported graph, in what a KV state is for: its attention
/// stays as it was exported.
bool isStoodFor(const Module &m, const Function &f);

/// The reason why the graph cannot have a KV state; none when it can. Finds where tables of
/// positions begin.
std::optional<Obstacle> kvObstacle(Function &f, KvInterface &io, int64_t maxContext);

} // namespace gpt2c
