// linear_int8_persistent: sums equal an int32 reference bit for bit; scaled, they are near float64.
#include "templates/linear/int8_persistent/LinearInt8Persistent.h"

#include "tests/suite/kernels/Int8Cases.h"

namespace gpt2c::kernels {

namespace linear_int8_persistent_test {

void addProducts(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}}),
                 residual = scaledResidual();
  auto persistent = [&](const char *label, LinearInt8PersistentConfig c, const Epilogue &epilogue) {
    for (int rows : {1, 129, 700})
      int8Tma(suite, linearInt8Persistent, "linear_int8_persistent", label, c, epilogue,
              {{rows, c.n, c.k}});
  };
  persistent("128 sums", {.y = f32, .stages = 2, .n = 384, .k = 16}, plain);
  persistent("128 bias+residual", {.stages = 3, .rowScale = true, .n = 640, .k = 784}, residual);
  persistent("160 bias", {.bn = 160, .stages = 4, .rowScale = true, .n = 1600, .k = 1600},
             scaledBias);
  persistent("192 bias", {.bn = 192, .stages = 5, .rowScale = true, .n = 4800, .k = 1600},
             scaledBias);
  persistent("160 bias+residual", {.bn = 160, .stages = 4, .rowScale = true, .n = 1600, .k = 6400},
             residual);
  persistent("96 f32 bias", {.y = f32, .bn = 96, .stages = 3, .n = 576, .k = 208}, scaledBias);
  persistent("128 y in 64 bias+gelu_tanh",
             {.y = i8, .stages = 5, .yGroup = 64, .rowScale = true, .n = 384, .k = 768},
             scaledGelu);
  persistent(
      "128 y in 128 bias+gelu_tanh in fp16",
      {.y = i8, .stages = 6, .yGroup = 128, .rowScale = true, .gelu = true, .n = 6400, .k = 1600},
      scaledBias);
}

void addGiven(Suite &suite) {
  const Epilogue scaledBias = scaledColumns({{EpilogueStage::AddBias, Scalar::F16}});
  for (Given given : {Given::Scale, Given::ScaleAndZero})
    for (int bn : {96, 128, 144})
      for (int rows : {1, 300})
        int8TmaByScale(suite, linearInt8Persistent, "linear_int8_given_persistent",
                       "bias+gelu_tanh in fp16",
                       {.bn = bn, .stages = 2, .rowScale = true, .gelu = true, .given = given},
                       scaledBias, given, {{rows, 5 * bn, 784}});
}

void addCases(Suite &suite) {
  addProducts(suite);
  int8TmaCandidateCases(suite, linearInt8Persistent, "linear_int8_persistent");
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace linear_int8_persistent_test

} // namespace gpt2c::kernels
