// linear_quantised_rows against Y = epilogue(norm(X) W^T) in float64.
#include "templates/linear/quantised_rows/LinearQuantisedRows.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_quantised_rows_test {

void quantisedRows(Suite &suite, const std::string &group, const std::string &label,
                   const LinearQuantisedRowsConfig &c, const Epilogue &epilogue,
                   const std::vector<Shape> &shapes) {
  fewRows(suite, group, linearQuantisedRows, label, c, {Scalar::F16, Scalar::I8}, epilogue, shapes,
          c.wGroup);
}
void quantisedRows(Suite &suite, const std::string &label, const LinearQuantisedRowsConfig &c,
                   const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  quantisedRows(suite, "linear_quantised_rows", label, c, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  for (int rows : {8, 16, 32, 64}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{rows, 768, k}, {rows, 1021, k}, {1, 1, k}, {rows - 1, 65, k}};
    };
    for (int k : {16, 80, 768, 1600})
      quantisedRows(suite, tag + " i8 w bias", {.rows = rows, .kSplit = 4, .warps = 4, .k = k},
                    scaledBias(f16), shapes(k));
    quantisedRows(suite, tag + " i8 w bias+residual",
                  {.rows = rows, .kSplit = 8, .warps = 8, .k = 3072},
                  {{EpilogueStage::ScaleColumn},
                   {EpilogueStage::AddBias, f16},
                   {EpilogueStage::AddMatrix, f16}},
                  shapes(3072));
    for (int group : {64, 128})
      quantisedRows(suite, tag + " i8 w in groups of " + std::to_string(group),
                    {.rows = rows, .kSplit = 3, .warps = 6, .k = 768, .wGroup = group}, bias(f16),
                    shapes(768));
    if (rows <= 16)
      for (int k : {768, 112})
        quantisedRows(
            suite, tag + " i8 w norm bias+gelu",
            {.p = f16, .rows = rows, .kSplit = 6, .warps = 6, .k = k, .norm = NormKind::Layer},
            scaledBias(f16, EpilogueStage::GeluTanh), shapes(k));
  }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearQuantisedRowsConfig &c) {
  quantisedRows(suite, of.group("linear_quantised_rows"), of.label, c, of.epilogue(),
                {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_quantised_rows", addCandidate);
} // namespace linear_quantised_rows_test

} // namespace gpt2c::kernels
