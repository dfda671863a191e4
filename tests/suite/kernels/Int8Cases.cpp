#include "Int8Cases.h"

namespace gpt2c::kernels {

void forInt8Products(llvm::function_ref<void(const LinearProblem &)> add) {
  for (Scalar x : {Scalar::I8, Scalar::F8E4M3})
    for (auto [n, k] : {std::pair(2304, 768),
                        {768, 768},
                        {3072, 768},
                        {768, 3072},
                        {4800, 1600},
                        {6400, 1600},
                        {1600, 6400}})
      for (int rows : {64, 128, 512, 1024, 4096})
        for (auto [xGroup, yGroup] : {std::pair(0, 0), {0, 128}, {64, 0}, {128, 0}}) {
          if (xGroup > 0 && k % xGroup != 0)
            continue; // no scales are of such groups
          LinearProblem p(LinearShape{x, x, yGroup > 0 ? x : Scalar::F16, n, k, rows});
          p.target = Target::of({"sm_90a"});
          p.int8 = {.group = xGroup, .yGroup = yGroup, .residual = yGroup == 0};
          add(p);
        }
}

} // namespace gpt2c::kernels
