// What linear_tma, linear_tma_persistent and linear_tma_int8_weights share in their tests.
#pragma once

#include "LinearCandidates.h"
#include "LinearCases.h"

#include "templates/linear/parts/TmaTiles.h"

namespace gpt2c::kernels {

/// Adds a kernel for each shape, with a case. With c.normParts x lies far from zero and is normed;
/// with c.statistics those of y are read.
void tma(Suite &suite, MakeKernel<LinearTmaConfig> make, const std::string &kernel,
         const std::string &label, LinearTmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes);
/// The shape of a candidate's case: columns that some configurations have to fill, and lines leave
/// whole where they do.
Shape tmaShape(const LinearCandidateCase &of, const LinearTmaConfig &c);

} // namespace gpt2c::kernels
