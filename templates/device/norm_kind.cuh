// Norms of rows, as ir/Norms.h names them.
#pragma once

namespace gpt2c {

enum class NormKind : unsigned char { None, Layer, Rms };

} // namespace gpt2c
