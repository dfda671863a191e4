// linear_int8_tma: sums of int8 equal an int32 reference bit for bit; scaled, and of fp8, they are
// near float64.
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

void addFp8(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, bf16 = Scalar::BF16, f8 = Scalar::F8E4M3;
  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}}),
                 residual = scaledResidual();
  const std::vector<Shape> all = int8Shapes(), whole = wholeGroups();
  int8(suite, "fp8 64x48 sums", {.x = f8, .y = f32, .bm = 64, .bn = 48, .stages = 6}, plain, all);
  int8(suite, "fp8 64x96 bias+gelu_tanh", {.x = f8, .bm = 64, .bn = 96, .rowScale = true},
       scaledGelu, all);
  int8(suite, "fp8 128x192 bf16", {.x = f8, .y = bf16, .bn = 192, .rowScale = true},
       scaledColumns(), all);
  int8(suite, "fp8 128x128 split 2 bias+residual",
       {.x = f8, .stages = 4, .splitK = 2, .rowScale = true}, residual,
       {{130, 192, 3072}, {129, 256, 1600}});
  int8(suite, "fp8 64x48 x in 64 bias+residual",
       {.x = f8, .bm = 64, .bn = 48, .stages = 6, .xGroup = 64}, residual, groupsOf64());
  int8(suite, "fp8 128x192 x in 128 bias+residual", {.x = f8, .bn = 192, .xGroup = 128}, residual,
       groupsOf128());
  int8(suite, "fp8 128x192 residual by map",
       {.x = f8, .bn = 192, .rowScale = true, .residual = true}, residual,
       {{1, 192, 128}, {300, 768, 784}});
  int8(suite, "fp8 128x128 y in 64 bias+gelu_tanh",
       {.x = f8, .y = f8, .yGroup = 64, .rowScale = true}, scaledGelu, whole);
  int8(suite, "fp8 64x128 x in 128 y in 128 bias",
       {.x = f8, .y = f8, .bm = 64, .stages = 3, .xGroup = 128, .yGroup = 128}, scaledBias,
       {{1, 128, 128}, {130, 384, 3072}});
  int8(suite, "fp8 128x128 y in 128 bias+gelu_tanh in fp16",
       {.x = f8, .y = f8, .yGroup = 128, .rowScale = true, .gelu = true}, scaledBias, whole);
  int8TmaByScale(suite, linearInt8Tma, "linear_int8_given_tma", "fp8 bias+gelu_tanh",
                 {.x = f8, .bm = 64, .bn = 48, .stages = 6, .rowScale = true}, scaledGelu,
                 Given::Fp8Scale, all);
}

/// Sums of numbers of one sign keep what tensor cores' registers would lose: a fiftieth of 4096.
void addSumsOfOneSign(Suite &suite) {
  const Shape s = {65, 96, 4096};
  for (int bm : {64, 128}) {
    const LinearInt8TmaConfig c = {
        .x = Scalar::F8E4M3, .y = Scalar::F32, .bm = bm, .bn = 96, .stages = 4, .n = s.n, .k = s.k};
    Int8Tiles<LinearInt8TmaConfig> tiles{
        suite.kernel("linear_int8_tma_" + tileOf(c),
                     [&](llvm::StringRef name) { return linearInt8Tma(name, c, plain); }),
        c};
    suite.test(
        caseOf("linear_int8_tma_" + tileOf(c), "fp8 sums of one sign", s),
        [=](Run &run) {
          Problem p(run, s, c.x, c.x, c.y, plain);
          for (Tensor *t : {&p.x, &p.w}) {
            for (double &v : t->values)
              v = std::fabs(v);
            *t = run.input(t->values, c.x);
          }
          p.sumError = 0.005;
          p.compute(p.x.values, p.w.values, plain, c.y);
          check(run, tiles.id, p, gridOfRounds(c, s), tiles.arguments(p, nullptr, nullptr, nullptr),
                c.y, 0);
        },
        true);
  }
}

void addCases(Suite &suite) {
  addProducts(suite);
  addFp8(suite);
  addSumsOfOneSign(suite);
  int8TmaCandidateCases(suite, linearInt8Tma, "linear_int8_tma");
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace linear_int8_tma_test

} // namespace gpt2c::kernels
