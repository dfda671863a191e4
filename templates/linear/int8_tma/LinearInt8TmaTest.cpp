// linear_int8_tma: sums equal an int32 reference bit for bit; scaled, they are near float64.
#include "templates/linear/int8_tma/LinearInt8Tma.h"

#include "tests/suite/kernels/Int8Cases.h"

namespace gpt2c::kernels {

namespace linear_int8_tma_test {

void int8(Suite &suite, const std::string &label, const LinearInt8TmaConfig &c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  int8Tma(suite, linearInt8Tma, "linear_int8_tma", label, c, epilogue, shapes);
}

void addProducts(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}}),
                 residual = scaledResidual();
  const std::vector<Shape> all = int8Shapes(), in64 = groupsOf64(), in128 = groupsOf128(),
                           whole = wholeGroups(), deep = {{130, 192, 3072}, {65, 96, 784}};
  int8(suite, "64x48 sums", {.y = f32, .bm = 64, .bn = 48, .stages = 6}, plain, all);
  int8(suite, "64x144 bias+gelu_tanh", {.bm = 64, .bn = 144, .rowScale = true}, scaledGelu, all);
  int8(suite, "128x192 bias+residual", {.bn = 192, .rowScale = true}, residual, all);
  int8(suite, "64x64 split 4 bias+residual",
       {.bm = 64, .bn = 64, .stages = 6, .splitK = 4, .rowScale = true}, residual, deep);
  int8(suite, "64x48 x in 64 bias+residual", {.bm = 64, .bn = 48, .stages = 6, .xGroup = 64},
       residual, in64);
  int8(suite, "64x96 x in 128 bias+residual", {.bm = 64, .bn = 96, .stages = 6, .xGroup = 128},
       residual, in128);
  int8(suite, "64x64 split 4 x in 128 f32",
       {.y = f32, .bm = 64, .bn = 64, .stages = 3, .splitK = 4, .xGroup = 128}, scaledColumns(),
       {{130, 192, 3072}});
  for (int group : {64, 128})
    int8(suite, "128x128 split 2 x in " + std::to_string(group) + " bias+residual",
         {.stages = 4, .splitK = 2, .xGroup = group}, residual,
         {{130, 192, 3072}, {1, 128, 384}, {129, 256, 1600 / group * group}, {300, 400, 896}});
  int8(suite, "128x96 x in 64 f32", {.y = f32, .bn = 96, .xGroup = 64}, scaledColumns(), in64);
  int8(suite, "128x192 x in 64 bias+residual", {.bn = 192, .xGroup = 64}, residual, in64);
  int8(suite, "128x192 x in 128 bias+residual", {.bn = 192, .xGroup = 128}, residual, in128);
  const std::vector<Shape> columns192 = {{1, 192, 128}, {129, 384, 384}, {300, 768, 768}};
  int8(suite, "64x64 residual by map", {.bm = 64, .bn = 64, .rowScale = true, .residual = true},
       residual, columns192);
  int8(suite, "64x64 x in 128 residual by map",
       {.bm = 64, .bn = 64, .stages = 6, .xGroup = 128, .residual = true}, residual, columns192);
  int8(suite, "128x192 x in 64 residual by map", {.bn = 192, .xGroup = 64, .residual = true},
       residual, columns192);
  int8(suite, "64x128 y in 128 bias+gelu_tanh",
       {.y = i8, .bm = 64, .yGroup = 128, .rowScale = true}, scaledGelu, whole);
  int8(suite, "128x128 y in 64 bias+gelu_tanh", {.y = i8, .yGroup = 64, .rowScale = true},
       scaledGelu, whole);
  int8(suite, "64x128 x in 128 y in 128 bias",
       {.y = i8, .bm = 64, .stages = 3, .xGroup = 128, .yGroup = 128},
       scaledColumns({{EpilogueStage::AddBias, f16}}), {{1, 128, 128}, {130, 384, 3072}});
  int8(suite, "128x128 y in 128 bias+gelu_tanh in fp16",
       {.y = i8, .yGroup = 128, .rowScale = true, .gelu = true}, scaledBias, whole);
  int8(suite, "64x192 y in 64 bias+gelu_tanh in fp16",
       {.y = i8, .bm = 64, .bn = 192, .stages = 3, .yGroup = 64, .rowScale = true, .gelu = true},
       scaledBias, whole);
}

void addGiven(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  const Epilogue approxGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanhHalf}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}});
  const std::vector<Shape> all = int8Shapes(), in64 = groupsOf64(),
                           deep = {{130, 192, 3072}, {65, 96, 784}};
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](const char *label, const LinearInt8TmaConfig &c, const Epilogue &epilogue,
                       const std::vector<Shape> &shapes) {
      int8TmaByScale(suite, linearInt8Tma, "linear_int8_given_tma", label, c, epilogue, given,
                     shapes);
    };
    byScale("bias+gelu_tanh", {.bm = 64, .bn = 48, .stages = 6, .rowScale = true}, approxGelu, all);
    byScale("bias", {.bm = 64, .bn = 64, .stages = 6, .splitK = 4, .rowScale = true}, scaledBias,
            deep);
    byScale("bias+gelu_tanh", {.bn = 192, .rowScale = true}, approxGelu, all);
    byScale("x in 64 bias", {.bm = 64, .bn = 96, .stages = 6, .xGroup = 64}, scaledBias, in64);
    for (int bn : {48, 144})
      byScale("bias+gelu_tanh in fp16",
              {.bm = 64, .bn = bn, .rowScale = true, .gelu = true, .given = given}, scaledBias,
              {{1, 8, 16}, {129, 136, 784}, {300, 2304, 768}});
  }
}

void addCases(Suite &suite) {
  addProducts(suite);
  int8TmaCandidateCases(suite, linearInt8Tma, "linear_int8_tma");
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace linear_int8_tma_test

} // namespace gpt2c::kernels
