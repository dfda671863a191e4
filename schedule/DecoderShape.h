// What kind of decoder a function of single tokens is, read from the IR once: who decides how its
// steps run, and who emits them as one kernel, ask here.
#pragma once

#include "ir/Function.h"
#include "schedule/Scalar.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Whether the op joins columns of all ranks: all_gather, or a slice of them without padding.
bool joinsColumnsOfRanks(const Op &op);
/// What `v` is but for its shape, for the type of the logits, or for columns of other ranks.
Value *sourceOf(Value *v);

/// x + attention(norm(x)), and y + MLP(norm(y)) behind it; the ops are in that order.
struct DecoderLayer {
  Op *firstNorm = nullptr, *qkv = nullptr;
  Op *rope = nullptr; ///< null: heads do not turn
  Op *attention = nullptr, *projection = nullptr;
  Op *secondNorm = nullptr, *hidden = nullptr;
  Op *gate = nullptr; ///< null: the MLP is not gated
  Op *output = nullptr;
};

/// An embedding, a chain of layers of one kind, a norm, logits and the largest of them.
struct DecoderShape {
  Op *embed = nullptr, *finalNorm = nullptr, *logits = nullptr, *choice = nullptr;
  std::vector<DecoderLayer> layers;

  DType type = DType::F32;        ///< of what ops hand on
  DType weights = DType::F32;     ///< of the layers' products
  DType lastWeights = DType::F32; ///< of the vocabulary's
  /// Of quantised weights: elements of a row that share a scale in all products, the largest number
  /// that divides those of each; 0: a row has one.
  int64_t weightGroup = 0, lastGroup = 0;
  bool weightZeros = false; ///< a zero point of weights of a byte stands beside its scale
  int64_t width = 0, hidden = 0, vocabulary = 0;
  int64_t tokens = 0; ///< of all ranks: those that are chosen from
  int64_t ranks = 1;  ///< that share every layer: heads, hidden columns and vocabulary are of one
  int64_t heads = 0, keyHeads = 0, headDim = 0;
  int64_t context = 0; ///< tokens of the KV state; 0: it is a symbol
  int64_t rotary = 0;  ///< pairs of a head that turn; 0: none
  bool normed = false; ///< queries and keys are normed by heads before they turn
  bool gated = false;
  bool bias = false; ///< a product of the layers has one
  NormKind norm = NormKind::None, lastNorm = NormKind::None;
  std::string activation; ///< of hidden columns, or of the gate

  bool sharesKeys() const { return keyHeads != heads; }
  /// Heads turn or share keys, or the MLP is gated.
  bool isGrouped() const { return rotary > 0 || sharesKeys() || gated; }
};

/// Elements of a row of a product's weights that share a scale, of less than a byte always some; 0:
/// a row has one, or none.
int64_t weightGroupOf(const Op &product);

/// Fails with the first op that does not continue such a chain, and why. Errors have no code.
llvm::Expected<DecoderShape> readDecoder(Function &decode);

/// One line: "12 layers of 768 columns, 12 heads of 64, ...".
std::string describe(const DecoderShape &shape);

/// What is known of any function of single tokens, whatever its layers are.
struct DecoderWeights {
  int64_t bytesOfLayer = 0; ///< of the products of a layer, on average; not of the vocabulary's
  bool grouped = false;     ///< heads turn or share keys, or an MLP is gated
  bool quantised = false;   ///< a product has int8 weights

  static DecoderWeights of(const Function &decode);
};

} // namespace gpt2c
