#include "LinearCases.h"

#include "templates/tokens/Tokens.h"

#include <algorithm>

namespace gpt2c::kernels {

int choiceKernel(Suite &suite, const std::string &group) {
  return suite.kernel(group, [](llvm::StringRef name) { return argmaxParts(name); });
}

void expectChoice(Run &run, Problem &p, int choose, const Tensor &best, int parts,
                  const DrawnRows *drawn) {
  const int rows = p.shape.m, n = p.shape.n;
  Tensor next = run.integerInput(std::vector<int>(rows, -1));
  run.launch(choose, argmaxPartsGrid(rt::constantExpr(rows)),
             {{"best", &best},
              {"next", &next},
              {"choices", drawn ? Argument(&drawn->tensor) : Argument(nullptr)},
              {"parts", parts}});
  const std::vector<double> y = run.read(p.y);
  std::vector<int> want;
  for (int i = 0; i < rows; ++i) {
    const auto row = y.begin() + (ptrdiff_t)i * n;
    want.push_back(int(std::max_element(row, row + n) - row));
    if (drawn && !run.isDry())
      want.back() = drawn->choice(i, {row, row + n}, want.back());
  }
  run.expectEqual(run.readIntegers(next), want, "next");
}

} // namespace gpt2c::kernels
