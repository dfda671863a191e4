// adapter_config.json: which modules of a model a LoRA adapter changes, and how much.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt2c {

struct AdapterConfig {
  /// What matches regular expressions, as Python's re does: the same syntax, but for what is rare.
  using Patterns = std::vector<std::pair<std::string, double>>;
  enum class Bias { None, All, Adapted };

  int64_t rank = 8;
  double alpha = 8;
  bool rootOfRank = false; ///< use_rslora
  Patterns ranks, alphas;  ///< of modules, where they differ
  std::vector<std::string> targets, excluded, saved;
  std::optional<std::string> targetPattern, excludedPattern; ///< instead of a list
  std::vector<int64_t> layers;                               ///< empty: all
  std::vector<std::string> layerPatterns; ///< how the list of layers is called; empty: any way
  Bias bias = Bias::None;

  /// `name` stands for the file in messages. InvalidModel, and Unsupported with every key that
  /// asks for what is not known here.
  static llvm::Expected<AdapterConfig> parse(llvm::StringRef text, llvm::StringRef name);

  /// Whether the module, by its whole name ("model.layers.0.self_attn.q_proj"), gets a low-rank
  /// term. Unsupported for patterns that cannot be matched.
  llvm::Expected<bool> changes(llvm::StringRef module) const;
  /// Whether its whole tensors are in the adapter: "norm" of modules_to_save means every module
  /// whose name ends so, "input_layernorm" too.
  bool saves(llvm::StringRef module) const;
  /// Of a module that changes.
  llvm::Expected<int64_t> rankOf(llvm::StringRef module) const;
  /// alpha / r or alpha / sqrt(r), by which B A is multiplied.
  llvm::Expected<double> scaleOf(llvm::StringRef module) const;
};

} // namespace gpt2c
