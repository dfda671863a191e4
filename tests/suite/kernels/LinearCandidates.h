// linear: every configuration that the compiler or the tuner may choose for a product of GPT-2
// 124M, from the lists that they choose from. The test of each kernel says how one is tested.
#pragma once

#include "Suite.h"

#include "templates/linear/Kernels.h"

#include <algorithm>
#include <functional>

namespace gpt2c::kernels {

/// A configuration that is listed for `problem`. Its case is a smaller product of the same K.
struct LinearCandidateCase {
  std::string label;
  LinearShape problem;
  int k = int(problem.k), rows = int(std::min<int64_t>(problem.rows, 150));

  std::string group(llvm::StringRef kernel) const;
  /// Scales of columns for int8 weights, else nothing.
  Epilogue scales() const;
  /// The same and a bias.
  Epilogue epilogue() const;
};

/// Registers how candidates of a kernel are tested:
/// `static const LinearCandidates candidates("linear_rows", addCandidate);`.
class LinearCandidates {
public:
  using Add = std::function<void(Suite &, const LinearCandidateCase &, const LinearCandidate &)>;
  template <typename Config>
  LinearCandidates(llvm::StringRef kernel,
                   void (*of)(Suite &, const LinearCandidateCase &, const Config &)) {
    add(kernel, [of](Suite &suite, const LinearCandidateCase &test, const LinearCandidate &c) {
      of(suite, test, *c.get<Config>());
    });
  }

private:
  static void add(llvm::StringRef kernel, Add add);
};

} // namespace gpt2c::kernels
