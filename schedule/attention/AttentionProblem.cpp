#include "schedule/attention/AttentionProblem.h"

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
  AttentionAbilities wants = {attentionTypes(config.x, config.kv, tf32)};
#define ATTENTION_WISH(Name, text, wanted) wants.addIf(wanted, AttentionAbility::Name);
#include "schedule/Abilities.def"
  return wants;
}

} // namespace gpt2c
