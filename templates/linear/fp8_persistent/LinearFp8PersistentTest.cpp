// linear_fp8_persistent: sums and what becomes of them are near float64.
#include "templates/linear/fp8_persistent/LinearFp8Persistent.h"

#include "tests/suite/kernels/Int8Cases.h"

namespace gpt2c::kernels {

namespace linear_fp8_persistent_test {

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, f8 = Scalar::F8E4M3;
  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}}),
                 residual = scaledResidual();
  auto persistent = [&](const char *label, LinearFp8PersistentConfig c, const Epilogue &epilogue) {
    for (int rows : {1, 129, 700})
      int8Tma(suite, linearFp8Persistent, "linear_fp8_persistent", label, c, epilogue,
              {{rows, c.n, c.k}});
  };
  persistent("128 sums", {.y = f32, .stages = 2, .n = 384, .k = 16}, plain);
  persistent("192 bias+residual", {.bn = 192, .rowScale = true, .n = 576, .k = 784}, residual);
  persistent("160 bf16 bias",
             {.y = Scalar::BF16, .bn = 160, .stages = 3, .rowScale = true, .n = 480, .k = 1600},
             scaledBias);
  persistent("96 x in 64 bias", {.bn = 96, .stages = 3, .xGroup = 64, .n = 288, .k = 832},
             scaledBias);
  persistent("192 x in 128 f32",
             {.y = f32, .bn = 192, .stages = 3, .xGroup = 128, .n = 384, .k = 896},
             scaledColumns());
  persistent("128 y in 64 bias+gelu_tanh",
             {.y = f8, .stages = 5, .yGroup = 64, .rowScale = true, .n = 384, .k = 768},
             scaledGelu);
  persistent("128 y in 128 bias+gelu_tanh in fp16",
             {.y = f8, .yGroup = 128, .rowScale = true, .gelu = true, .n = 640, .k = 400},
             scaledBias);
  int8TmaCandidateCases(suite, linearFp8Persistent, "linear_fp8_persistent");
  for (int rows : {1, 300})
    int8TmaByScale(suite, linearFp8Persistent, "linear_fp8_given_persistent", "bias+gelu_tanh",
                   {.bn = 96, .stages = 2, .rowScale = true}, scaledGelu, Given::Fp8Scale,
                   {{rows, 480, 784}});
}

const Cases cases(addCases);
} // namespace linear_fp8_persistent_test

} // namespace gpt2c::kernels
