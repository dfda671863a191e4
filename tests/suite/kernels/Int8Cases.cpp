#include "Int8Cases.h"

#include <set>

namespace gpt2c::kernels {

static std::string tileOf(const LinearInt8TmaConfig &c) {
  return std::to_string(c.bm) + "x" + std::to_string(c.bn);
}

void int8Tma(Suite &suite, MakeKernel<LinearInt8TmaConfig> make, const std::string &kernel,
             const std::string &label, LinearInt8TmaConfig c, const Epilogue &epilogue,
             const std::vector<Shape> &shapes) {
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    int8Product(suite, kernel + "_" + tileOf(c), make, label, c, epilogue, {s});
  }
}

void int8TmaByScale(Suite &suite, MakeKernel<LinearInt8TmaConfig> make, const std::string &kernel,
                    const std::string &label, LinearInt8TmaConfig c, const Epilogue &epilogue,
                    Given given, const std::vector<Shape> &shapes) {
  c.y = Scalar::I8;
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    givenProduct(suite, kernel + "_" + tileOf(c), make, label, c, epilogue, given, {s});
  }
}

void int8TmaCandidateCases(Suite &suite, MakeKernel<LinearInt8TmaConfig> make,
                           const std::string &kernel) {
  const Scalar i8 = Scalar::I8;
  const Epilogue gelu =
      scaledColumns({{EpilogueStage::AddBias, Scalar::F16}, {EpilogueStage::GeluTanh}});
  std::set<std::string> done;
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
        LinearProblem p(LinearShape{i8, i8, yGroup > 0 ? i8 : Scalar::F16, n, k, rows});
        p.target = Target::of({"sm_90a"});
        p.int8 = {.group = xGroup, .yGroup = yGroup, .residual = yGroup == 0};
        for (LinearInt8TmaConfig c : int8TmaCandidatesOf(p, kernel)) {
          c.parts = std::min(c.parts, 2); // no matter of the kernel
          const std::string label = "candidate " + nameOf(c) + " x in " + std::to_string(xGroup) +
                                    " y in " + std::to_string(yGroup);
          if (done.insert(label + std::to_string(k)).second)
            int8Tma(suite, make, kernel, label, c, yGroup > 0 ? gelu : scaledResidual(),
                    {{150,
                      c.stationary || c.persistent || c.residual ? n
                      : yGroup > 0                               ? 384
                                                                 : 301,
                      k}});
        }
      }
}

} // namespace gpt2c::kernels
