// Keys about zero, for a KV state of few bits.
//
// A query's scores q . k_j of keys that are all moved by one vector c are moved by one number q .
// c, which softmax leaves out: so the bias of keys is free where nothing turns them and no soft cap
// bends scores. With it as
//   b_k = -W_k b,    b the shift of the norm in front, about the mean of what it gives
// keys are about zero on average, and what rounding is relative to is what tells them apart.
#pragma once

#include "ir/Function.h"

#include <map>

namespace gpt2c {

/// Of all functions of a module: they share the state, so a layer's keys move in all or in none.
class KeyCentring {
public:
  /// Takes note of the attention over `state`, an argument of `f`.
  void look(Function &f, const Value &state);
  /// Changes the biases of the products that give keys; returns of how many layers.
  int apply();

private:
  struct Site {
    Function *function = nullptr;
    Op *product = nullptr;        ///< null: its keys have to stay
    int64_t first = 0, count = 0; ///< rows of its weights that give keys
  };
  static Site siteOf(Function &f, Op &attention);
  std::map<int64_t, std::vector<Site>> layers_;
};

} // namespace gpt2c
