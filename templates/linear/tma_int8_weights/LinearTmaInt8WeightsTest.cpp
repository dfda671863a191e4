// linear_tma_int8_weights against Y = epilogue(X W^T) in float64: what a product of GPT-2 124M can
// get.
#include "templates/linear/tma_int8_weights/LinearTmaInt8Weights.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearTmaCases.h"

namespace gpt2c::kernels {

namespace linear_tma_int8_weights_test {

void addCandidate(Suite &suite, const LinearCandidateCase &of,
                  const LinearTmaInt8WeightsConfig &c) {
  tma(suite, linearTmaInt8Weights, "linear_tma_int8_weights", of.label, c, of.epilogue(),
      {tmaShape(of, c)});
  if (c.bm == 64 && c.splitK <= 2 && of.rows == 64) {
    LinearTmaInt8WeightsConfig floats = c;
    floats.w = Scalar::F8E4M3;
    tma(suite, linearTmaInt8Weights, "linear_tma_int8_weights", of.label + " fp8", floats,
        of.epilogue(), {tmaShape(of, c)});
  }
  if (c.bm != 64 || c.normParts > 0 || c.statistics)
    return;
  Epilogue turned = rotate(c.y, 64, 32, 2);
  turned.insert(turned.begin(), {EpilogueStage::ScaleColumn});
  for (const auto &[end, epilogue] :
       {std::pair(" gate", scaledGate(EpilogueStage::Silu)), std::pair(" rotate", turned)})
    tma(suite, linearTmaInt8Weights, "linear_tma_int8_weights", of.label + end, c, epilogue,
        {{of.rows, 192, of.k}});
}

const LinearCandidates candidates("linear_tma_int8_weights", addCandidate);
} // namespace linear_tma_int8_weights_test

} // namespace gpt2c::kernels
