// What a checkpoint's configuration says of a decoder, whatever family names it how.
#pragma once

#include "ir/DType.h"
#include "ir/Norms.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

/// How a family calls its weights. `{}` in the name of a layer's tensor stands for its number;
/// ".weight" and ".bias" come behind. Null: there is no such tensor.
struct WeightNames {
  const char *base = nullptr; ///< in front of all but the head; the base model's files lack it
  const char *layers = nullptr;
  const char *tokens = nullptr, *positions = nullptr;
  const char *inputNorm = nullptr;
  const char *qkv = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;
  const char *queryNorm = nullptr, *keyNorm = nullptr;
  const char *out = nullptr, *attentionNorm = nullptr;
  const char *mlpNorm = nullptr;
  const char *gateUp = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  const char *mlpOutNorm = nullptr;
  const char *norm = nullptr, *head = nullptr;
};

/// How weights of products are stored in a few bits, by whose tools: see PackedWeights.h, and
/// BlockWeights.h for Fp8.
struct Packing {
  enum class Kind { Gptq, Awq, Fp8 } kind = Kind::Gptq;
  int64_t bits = 4;
  int64_t group = 0;         ///< inputs that share a scale; 0: all
  int64_t rows = 1;          ///< outputs that share a scale
  bool zerosLessOne = false; ///< zero points are stored less 1
};

struct Decoder {
  /// One product for queries, keys and values: side by side, or [q k v] for each head.
  enum class Qkv { Apart, Joined, JoinedByHead };

  /// Angles of positions: position times frequency, over the first 2 * frequencies.size() elements
  /// of each head, in two halves.
  struct Rope {
    std::vector<float> frequencies;
  };
  struct Layer {
    int64_t window = 0; ///< a query sees the last keys alone, itself one of them; 0: all
    size_t rope = 0;
    double scale = 1; ///< of the scores
  };

  std::string family; ///< as config.json calls it: "llama"
  const WeightNames *names = nullptr;
  DType dtype = DType::F32; ///< in which the graph computes
  int64_t vocabulary = 0, width = 0, hidden = 0, heads = 0, keyHeads = 0, headDim = 0;
  int64_t positions = 0; ///< rows of the table of positions; 0: there is none

  NormKind norm = NormKind::Rms;
  double epsilon = 0;
  bool gainPlusOne = false; ///< x / rms * (1 + gain), in single precision
  bool normsBehind = false; ///< also of what attention and MLP give
  bool headNorms = false;   ///< of each query and key
  bool parallel = false;    ///< attention and MLP read the same x

  Qkv qkv = Qkv::Apart;
  bool qkvBias = false, outBias = false, mlpBias = false;
  bool inputsFirst = false; ///< weights of products are [in, out], not [out, in]
  bool gated = true;        ///< down(activation(gate(x)) * up(x)), else down(activation(up(x)))
  bool gateUpJoined = false;
  std::string activation; ///< as config.json calls it

  double tokenScale = 1;
  double scoreCap = 0, logitCap = 0; ///< cap * tanh(x / cap); 0: none
  bool tied = false;

  std::optional<Packing> packing; ///< of products whose weights are not there themselves

  std::vector<Rope> ropes; ///< empty: positions are in the table
  std::vector<Layer> layers;
};

} // namespace gpt2c
