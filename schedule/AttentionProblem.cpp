#include "schedule/AttentionProblem.h"

namespace gpt2c {

AttentionAbility attentionTypes(Scalar x, Scalar kv, bool tf32) {
  using enum AttentionAbility;
  if (kv == Scalar::I8)
    return x == Scalar::F16    ? F16I8
           : x == Scalar::BF16 ? BF16I8
           : x == Scalar::F32  ? F32I8
                               : MixedTypes;
  if (kv != x)
    return MixedTypes;
  return x == Scalar::F16    ? F16
         : x == Scalar::BF16 ? BF16
         : x != Scalar::F32  ? MixedTypes
         : tf32              ? Tf32
                             : F32;
}

AttentionAbilities AttentionProblem::wants() const {
  using enum AttentionAbility;
  return AttentionAbilities{attentionTypes(config.x, config.kv, tf32)}
      .addIf(!hasOwnKeys(), SharedKeys)
      .addIf(config.mask, KeyMask)
      .addIf(config.pageTokens > 0, Pages)
      .addIf(config.window > 0, Window)
      .addIf(config.softCap > 0, SoftCap)
      .addIf(config.alibi, Alibi)
      .addIf(config.last, Last)
      .addIf(!config.causal, NotCausal)
      .addIf(config.ropePairs > 0, Rope)
      .addIf(config.quantise && config.given != Given::None, GivenScale)
      .addIf(findsScales(), OwnScales);
}

} // namespace gpt2c
