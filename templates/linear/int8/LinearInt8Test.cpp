// linear_int8: sums equal an int32 reference bit for bit; scaled, they are near float64.
#include "templates/linear/int8/LinearInt8.h"

#include "tests/suite/kernels/Int8Cases.h"

namespace gpt2c::kernels {

namespace linear_int8_test {

void int8(Suite &suite, const std::string &label, const LinearInt8Config &c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  int8Product(suite, "linear_int8", linearInt8, label, c, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  const Epilogue gelu = dequantisedGelu(), residual = scaledResidual();
  const std::vector<Shape> any = oddInt8Shapes(), all = int8Shapes(), in64 = groupsOf64(),
                           in128 = groupsOf128(), whole = wholeGroups();
  int8(suite, "128x128 sums", {f32, 128, 128, 3}, plain, all);
  int8(suite, "128x256 sums", {f32, 128, 256, 4}, plain, all);
  int8(suite, "64x128 sums", {f32, 64, 128, 4}, plain, all);
  int8(suite, "64x64 split 2 sums", {f32, 64, 64, 6, 2}, plain, all);
  int8(suite, "128x128 bias+gelu_tanh", {f16, 128, 128, 3}, gelu, all);
  int8(suite, "64x64 bias+gelu_tanh", {f16, 64, 64, 6}, gelu, all);
  int8(suite, "64x64 one scale for x", {f16, 64, 64, 6},
       {{EpilogueStage::ScaleAll}, {EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, f16}},
       any);
  int8(suite, "128x128 x in 64 bias+residual", {f16, 128, 128, 4, 1, 64}, residual, in64);
  int8(suite, "64x64 x in 64 f32", {f32, 64, 64, 6, 1, 64}, scaledColumns(), in64);
  int8(suite, "128x128 x in 128 bias+residual", {f16, 128, 128, 3, 1, 128}, residual, in128);
  int8(suite, "64x128 x in 128 bias+residual", {f16, 64, 128, 3, 1, 128}, residual, in128);
  int8(suite, "64x64 split 4 x in 128 bias+residual", {f16, 64, 64, 4, 4, 128}, residual, in128);
  int8(suite, "128x128 y in 128 bias+gelu_tanh", {i8, 128, 128, 3, 1, 0, 128}, gelu, whole);
  int8(suite, "64x128 y in 64 bias+gelu_tanh", {i8, 64, 128, 4, 1, 0, 64}, gelu, whole);
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    givenProduct<LinearInt8Config>(suite, "linear_int8_given", linearInt8, "128x128 bias+gelu_tanh",
                                   {i8, 128, 128, 3}, gelu, given, all);
    givenProduct<LinearInt8Config>(suite, "linear_int8_given", linearInt8,
                                   "64x64 split 2 bias+gelu_tanh", {i8, 64, 64, 6, 2}, gelu, given,
                                   all);
  }
}

const Cases cases(addCases);
} // namespace linear_int8_test

} // namespace gpt2c::kernels
