#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

AttentionAbility attentionTypes(Scalar x, Scalar kv, bool tf32) {
  using enum AttentionAbility;
  if (isQuantised(kv)) {
    const bool int8 = kv == Scalar::I8;
    return x == Scalar::F16    ? (int8 ? F16I8 : F16F8)
           : x == Scalar::BF16 ? (int8 ? BF16I8 : BF16F8)
           : x == Scalar::F32  ? (int8 ? F32I8 : F32F8)
                               : MixedTypes;
  }
  if (kv != x)
    return MixedTypes;
  return x == Scalar::F16    ? F16
         : x == Scalar::BF16 ? BF16
         : x != Scalar::F32  ? MixedTypes
         : tf32              ? Tf32
                             : F32;
}

AttentionAbilities AttentionProblem::wants() const {
  AttentionAbilities wants = {attentionTypes(config.x, config.kv, tf32)};
#define ATTENTION_WISH(Name, text, wanted) wants.addIf(wanted, AttentionAbility::Name);
#include "schedule/Abilities.def"
  return wants;
}

} // namespace gpt2c
