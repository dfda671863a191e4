// What the inputs and outputs of the exported graph mean to the functions made from it. Kept in the
// module's properties, so that they survive the text form.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// `role` is one of: plain, ids, key_mask, position_ids, logits, probabilities, log_probabilities,
/// past, present. For past and
/// present `layer` and `part` (key, value, or both for one tensor [2, batch, heads, tokens,
/// head_dim]) say which part of the KV state it is. `port` is what @forward calls a plain port:
/// token_type_ids, or another name than its own where that means something in functions; empty: it
/// is called `name`. Probabilities are like plain ports: @forward gives the logits that they are
/// the softmax of besides, as "logits".
struct ExportedPort {
  std::string name;
  std::string role = "plain";
  int layer = -1;
  std::string part;
  std::string port;
  DType dtype = DType::F32; // as exported
  bool operator==(const ExportedPort &) const = default;
};

inline bool isProbabilities(const ExportedPort &p) {
  return p.role == "probabilities" || p.role == "log_probabilities";
}
/// Whether @forward knows the port by a name.
inline bool isNamed(const ExportedPort &p) { return p.role == "plain" || isProbabilities(p); }

void setExportedPorts(Module &m, llvm::ArrayRef<ExportedPort> inputs,
                      llvm::ArrayRef<ExportedPort> outputs);
llvm::Expected<std::vector<ExportedPort>> exportedInputs(const Module &m);
llvm::Expected<std::vector<ExportedPort>> exportedOutputs(const Module &m);

/// An input that holds an element for each query and key, [.., seq, keys]: text is generated with
/// `keep` up to a query's own key, and `hide` behind it.
struct WholeMask {
  std::string name;
  double keep = 0, hide = 0;
};
void setWholeMask(Module &m, const WholeMask &mask);
std::optional<WholeMask> wholeMask(const Module &m);

/// An input of one number, or of one for each new token, whose value text is generated with.
struct GivenInput {
  enum class Kind : uint8_t {
    One,       ///< 1
    Past,      ///< how many tokens came before
    Positions, ///< where each new token stands
  };
  std::string name;
  Kind kind = Kind::One;
};
/// As messages name it: "1".
llvm::StringRef describe(const GivenInput &input);
void setGivenInputs(Module &m, llvm::ArrayRef<GivenInput> inputs);
std::vector<GivenInput> givenInputsOf(const Module &m);

/// The narrowest of f32, f16 and bf16 that values of the exported graph have.
void setExportedPrecision(Module &m, DType precision);
DType exportedPrecision(const Module &m);

} // namespace gpt2c
