#include "schedule/products/LinearProblem.h"

namespace gpt2c {

static LinearAbility typesOf(const LinearShape &s) {
  using enum LinearAbility;
  if (infoOf(s.w).bits < 8)
    return s.x == Scalar::F16    ? F16Nibbles
           : s.x == Scalar::BF16 ? BF16Nibbles
           : s.x == Scalar::F32  ? F32Nibbles
                                 : MixedTypes;
  if (isQuantised(s.w))
    return s.x == Scalar::F16      ? F16Bytes
           : s.x == Scalar::BF16   ? BF16Bytes
           : s.x == Scalar::F32    ? F32Bytes
           : s.x != s.w            ? MixedTypes
           : s.x == Scalar::I8     ? I8
           : s.x == Scalar::F8E4M3 ? F8
                                   : MixedTypes;
  if (s.w != s.x)
    return MixedTypes;
  return s.x == Scalar::F16    ? F16
         : s.x == Scalar::BF16 ? BF16
         : s.x != Scalar::F32  ? MixedTypes
         : s.tf32              ? Tf32
                               : F32;
}

LinearAbilities LinearProblem::wants() const {
  using enum LinearAbility;
  LinearAbilities wants = {typesOf(*this)};
  const bool steps = isQuantised(x);
  wants.addIf(x == Scalar::I8 && y == Scalar::BF16, I8ToBF16)
      .addIf(!steps && w == Scalar::F8E4M3, FloatSteps)
      .addIf(wGroup != 0, WeightGroups)
      .addIf(wZeros, WeightZeros)
      .addIf(!steps && xGroup >= 0, QuantisesRows)
      .addIf(int8.group > 0, RowGroups)
      .addIf(int8.yGroup > 0, ResultGroups)
      .addIf(fused.rowScales, RowScales)
#define PRODUCT_END(Name, ...) .addIf(fused.end == ProductEndKind::Name, Name)
#include "schedule/products/ProductEnds.def"
      .addIf(fused.sharedRows, SharedRows)
      .addIf(fused.statistics, Statistics)
      .addIf(fused.best, Best)
      .addIf(batchInvariant, AnyRows);
  if (hasNorm())
    wants.add(!fused.normSums        ? Norm
              : fused.normParts == 0 ? NormBySums
                                     : NormByStatistics)
        .addIf(!fused.plainNorm, NormGain);
  return wants;
}

} // namespace gpt2c
