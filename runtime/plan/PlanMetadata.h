// From the bytes of the metadata section to objects.
#pragma once

#include "plan_generated.h"
#include "runtime/plan/PlanVerify.h"

#include <cstddef>
#include <memory>
#include <span>

namespace gpt2c::rt {

/// Verifies and unpacks the metadata. Null, with an issue, when the bytes are no FlatBuffer of the
/// plan's schema. Bytes must be aligned to 8.
std::unique_ptr<plan::PlanT> unpackMetadata(std::span<const std::byte> bytes, Issues &issues);

} // namespace gpt2c::rt
