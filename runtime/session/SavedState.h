// The KV state of a session's batch in a file, so that another process goes on behind it.
#pragma once

#include "runtime/session/Session.h"

#include <string>

namespace gpt2c::rt {

/// Writes keys and values of all layers, with the tokens that they are of. Whole heads are written,
/// whatever device or number of ranks holds them. Unsupported: the state is int8. Usage: there is
/// none. "-" is stdout.
Status saveState(Session &session, const std::string &path);

/// Reads such a file into a session over the same plan: its batch is then the one that was saved,
/// on any device, by any number of ranks. Incompatible: it is of another plan, or holds more than
/// the plan does. Corrupt: the file is damaged or cut off, or none of these; then the batch has
/// ended.
Status restoreState(Session &session, const std::string &path);

} // namespace gpt2c::rt
