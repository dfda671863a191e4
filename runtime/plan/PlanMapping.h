// What becomes of the file of a plan while it is mapped. A file that is written beside it and
// renamed over it, as gpt2c does, is another file: the one that is open stays as it is.
#pragma once

#include "runtime/Status.h"

#include <cstddef>

namespace gpt2c::rt {

/// By Plan alone: `bytes` from `begin` are those of the file `fd`, until they are forgotten.
void rememberMapping(const void *begin, size_t bytes, int fd);
void forgetMapping(const void *begin);

/// For tools: from now on the process ends with code 2 and a line on stderr where a page of a plan
/// cannot be read any more, since its file was cut in place or its disk fails. Without it the
/// system ends it with SIGBUS.
void endWhereAPlanIsCut();

/// Ok, or Code::Io where the file of a plan that is open was written to since it was opened: what
/// was computed may come of both.
Status plansUnchanged();

} // namespace gpt2c::rt
