// linear_stream: the product against float64, and the greedy choice that it and argmax_parts make.
#include "templates/linear/stream/LinearStream.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_stream_test {

void stream(Suite &suite, const std::string &label, const LinearStreamConfig &c,
            const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  streamed(suite, "linear_stream", linearStream, label, c, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16;
  for (int m : {8, 16, 32, 64}) {
    const std::string tag = "rows " + std::to_string(m);
    for (int k : {64, 768, 1600}) {
      LinearStreamConfig c;
      c.rows = m;
      c.k = k;
      c.best = k != 64;
      c.warps = k == 768 ? 12 : 8;
      stream(suite, tag + " f32", c, plain, {{m, 1021, k}, {1, 1, k}, {m - 1, 2500, k}});
      c.p = f16;
      c.norm = NormKind::Layer;
      stream(suite, tag + " f32 norm", c, plain, {{m, 1021, k}});
      LinearStreamConfig narrow = c;
      narrow.x = narrow.w = narrow.y = bf16;
      stream(suite, tag + " bf16 norm", narrow, bias(bf16), {{m, 1021, k}, {1, 1, k}});
      narrow.p = bf16;
      narrow.norm = NormKind::None;
      narrow.y = Scalar::F32;
      stream(suite, tag + " bf16 to f32", narrow, plain, {{m - 1, 500, k}});
      c.w = Scalar::I8;
      c.y = f16;
      stream(suite, tag + " i8 w norm f16", c, scaledBias(f16), {{m, 1021, k}});
      c.w = Scalar::F8E4M3;
      stream(suite, tag + " fp8 w norm f16", c, scaledBias(f16), {{m, 1021, k}});
    }
  }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearStreamConfig &c) {
  stream(suite, of.label, c, of.scales(), {{of.rows, 2500, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_stream", addCandidate);
} // namespace linear_stream_test

} // namespace gpt2c::kernels
