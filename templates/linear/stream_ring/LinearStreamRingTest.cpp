// linear_stream_ring: the product against float64, and the greedy choice that it and argmax_parts
// make.
#include "templates/linear/stream_ring/LinearStreamRing.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_stream_ring_test {

void stream(Suite &suite, const std::string &label, const LinearStreamRingConfig &c,
            const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  streamed(suite, "linear_stream_ring", linearStreamRing, label, c, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16;
  for (int k : {64, 768, 1600})
    for (int some : {1, 2, 4}) {
      const std::string label = std::to_string(some) + " rows";
      LinearStreamRingConfig c;
      c.rows = some;
      c.k = k;
      c.columns = some == 2 || k == 1600 ? 2 : 4;
      c.slots = k == 64 ? 3 : streamSlots(c);
      c.best = k != 64;
      stream(suite, label + " f32", c, plain, {{some, 1021, k}, {1, 1, k}});
      c.p = f16;
      c.norm = NormKind::Layer;
      stream(suite, label + " f32 norm", c, plain, {{(some + 1) / 2, 2500, k}});
      LinearStreamRingConfig narrow = c;
      narrow.x = narrow.w = narrow.p = narrow.y = bf16;
      stream(suite, label + " bf16 norm", narrow, plain, {{some, 1021, k}, {1, 1, k}});
      narrow.norm = NormKind::None;
      narrow.y = Scalar::F32;
      stream(suite, label + " bf16 to f32", narrow, bias(bf16), {{some, 500, k}});
      c.w = Scalar::I8;
      c.y = f16;
      stream(suite, label + " i8 w norm f16", c, scaledBias(f16), {{some, 1021, k}});
    }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearStreamRingConfig &c) {
  stream(suite, of.label, c, plain, {{of.rows, 2500, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_stream_ring", addCandidate);
} // namespace linear_stream_ring_test

} // namespace gpt2c::kernels
