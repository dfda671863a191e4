// linear_stream_tma: the product against float64, and the greedy choice that it and argmax_parts
// make.
#include "templates/linear/stream_tma/LinearStreamTma.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c::kernels {

namespace linear_stream_tma_test {

/// Without `logits` it leaves the choice alone.
void streamTma(Suite &suite, const std::string &label, LinearStreamTmaConfig c,
               const Epilogue &epilogue, const std::vector<Shape> &shapes, bool logits = true) {
  const bool bytes = isQuantised(c.w);
  const std::string group = llvm::formatv("linear_stream_tma {0} {1}x{2}",
                                          c.w == Scalar::I8 ? "i8"
                                          : bytes           ? "fp8"
                                                            : typeName(c.x),
                                          c.bm, c.bn)
                                .str();
  const int choose = choiceKernel(suite, group);
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    int id = suite.kernel(group,
                          [&](llvm::StringRef name) { return linearStreamTma(name, c, epilogue); });
    suite.test(
        {llvm::formatv("{0}/{1}/{2}", group, label, text(s)).str(), work(s)},
        [=](Run &run) {
          Problem p(run, s, c.x, c.w, c.y, epilogue);
          const int columns = int(divideCeilSigned(s.n, c.bn));
          Tensor best = run.zeroed(size_t(8) * s.m * columns);
          Arguments arguments = p.mapped(xRowsOf(c), c.bn, s.k, bytes ? s.k / 2 : s.k);
          if (c.best)
            arguments.set("best", &best).set("choices", nullptr);
          check(run, id, p, gridOfRounds(c, s), arguments, c.y);
          if (!c.best)
            return;
          if (!logits) {
            best = run.zeroed(size_t(8) * s.m * columns);
            run.launch(id, gridOfRounds(c, s), arguments.set("y", nullptr));
          }
          expectChoice(run, p, choose, best, columns);
          const DrawnRows drawn(run, s.m);
          run.launch(id, gridOfRounds(c, s), arguments.set("choices", &drawn.tensor));
          expectChoice(run, p, choose, best, columns, &drawn);
        },
        true);
  }
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16;
  for (int bm : {64, 128})
    for (int bn : {96, 128, 192}) {
      const std::vector<Shape> shapes = {{bm, 1021, 768},
                                         {1, 1, 64},
                                         {bm - 3, 2500, 776},
                                         {2 * bm, 1022, 128},
                                         {bm + 5, 400, 1600}};
      LinearStreamTmaConfig c{.bm = bm, .bn = bn, .stages = 4, .best = true};
      streamTma(suite, "f32", c, plain, shapes);
      streamTma(suite, "f32 choice alone", c, plain, {{bm, 1021, 768}}, false);
      LinearStreamTmaConfig few = c;
      few.xRows = 32;
      streamTma(suite, "f32 few rows", few, plain, {{29, 1021, 776}, {32, 400, 1600}});
      LinearStreamTmaConfig narrow = c;
      narrow.x = narrow.w = narrow.y = bf16;
      streamTma(suite, "bf16", narrow, plain, {{bm, 1021, 768}, {bm + 5, 400, 1600}});
      narrow.y = Scalar::F32;
      streamTma(suite, "bf16 to f32", narrow, bias(bf16), {{bm - 3, 500, 776}, {1, 1, 64}});
      c.stages = 3;
      c.rawStages = 2;
      c.w = Scalar::I8;
      c.y = f16;
      streamTma(suite, "i8 w f16", c, scaledBias(f16),
                {{bm, 1021, 768}, {bm + 5, 500, 1616}, {1, 1, 64}});
      c.best = false;
      streamTma(suite, "i8 w", c, scaledBias(f16), {{2 * bm, 1022, 192}});
      c.w = Scalar::F8E4M3;
      streamTma(suite, "fp8 w", c, scaledBias(f16), {{2 * bm, 1022, 192}});
    }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearStreamTmaConfig &c) {
  streamTma(suite, of.label, c, of.scales(), {{of.rows, 2500, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_stream_tma", addCandidate);
} // namespace linear_stream_tma_test

} // namespace gpt2c::kernels
