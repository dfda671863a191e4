// linear_int8_stationary: sums equal an int32 reference bit for bit; scaled, they are near float64.
#include "templates/linear/int8_stationary/LinearInt8Stationary.h"

#include "tests/suite/kernels/Int8Cases.h"

namespace gpt2c::kernels {

namespace linear_int8_stationary_test {

void addProducts(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}}),
                 residual = scaledResidual();
  auto stationary = [&](const char *label, LinearInt8StationaryConfig c, const Epilogue &epilogue) {
    for (int rows : {1, 129, 500})
      int8Tma(suite, linearInt8Stationary, "linear_int8_stationary", label, c, epilogue,
              {{rows, c.n, c.k}});
  };
  stationary("128 sums", {.y = f32, .stages = 2, .n = 384, .k = 16, .parts = 3}, plain);
  stationary("128 bias+residual parts of different sizes",
             {.stages = 3, .rowScale = true, .n = 640, .k = 784, .parts = 3}, residual);
  stationary("96 bias+gelu_tanh", {.bn = 96, .rowScale = true, .n = 768, .k = 768, .parts = 3},
             scaledGelu);
  stationary("96 f32 bias", {.y = f32, .bn = 96, .stages = 3, .n = 576, .k = 208}, scaledBias);
  stationary("144 bias", {.bn = 144, .stages = 5, .rowScale = true, .n = 720, .k = 768},
             scaledBias);
  stationary("96 bias", {.bn = 96, .stages = 7, .rowScale = true, .n = 1152, .k = 768, .parts = 2},
             scaledBias);
  stationary("80 bias", {.bn = 80, .stages = 2, .rowScale = true, .n = 560, .k = 400}, scaledBias);
  stationary("128 y in 64 bias+gelu_tanh",
             {.y = i8, .stages = 5, .yGroup = 64, .rowScale = true, .n = 384, .k = 768},
             scaledGelu);
  stationary("128 y in 128 bias+gelu_tanh in fp16",
             {.y = i8,
              .stages = 7,
              .yGroup = 128,
              .rowScale = true,
              .gelu = true,
              .n = 3072,
              .k = 768,
              .parts = 4},
             scaledBias);
  stationary("64 y in 64 bias+gelu_tanh in fp16",
             {.y = i8,
              .bn = 64,
              .stages = 6,
              .yGroup = 64,
              .rowScale = true,
              .gelu = true,
              .n = 448,
              .k = 208,
              .parts = 2},
             scaledBias);
}

void addGiven(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  const Epilogue approxGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanhHalf}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}});
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](const char *label, const LinearInt8StationaryConfig &c,
                       const Epilogue &epilogue, Shape s) {
      int8TmaByScale(suite, linearInt8Stationary, "linear_int8_given_stationary", label, c,
                     epilogue, given, {s});
    };
    for (int bn : {80, 96, 128, 144})
      for (int rows : {1, 300}) {
        LinearInt8StationaryConfig c{.bn = bn, .stages = 2, .rowScale = true, .parts = 2};
        byScale("bias+gelu_tanh", c, approxGelu, {rows, 5 * bn, 784});
        c.gelu = true;
        c.given = given;
        byScale("bias+gelu_tanh in fp16", c, scaledBias, {rows, 5 * bn, 784});
      }
  }
}

void addCases(Suite &suite) {
  addProducts(suite);
  int8TmaCandidateCases(suite, linearInt8Stationary, "linear_int8_stationary");
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace linear_int8_stationary_test

} // namespace gpt2c::kernels
