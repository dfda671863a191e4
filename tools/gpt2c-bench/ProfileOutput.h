// Profiles as Markdown, CSV or JSON.
#pragma once

#include "tools/gpt2c-bench/Profile.h"

#include "tools/runtime-common/Json.h"

namespace gpt2c {

/// Each profile by kernels and by launches, and how to read them; nothing where there are none.
void printMarkdown(std::span<const Profile> profiles, const Peak &peak, std::ostream &os);
/// An empty line and one table of all launches, of profiles of one kind of measurement; nothing
/// where there are none.
void printCsv(std::span<const Profile> profiles, const Peak &peak, std::ostream &os);
Json profilesJson(std::span<const Profile> profiles);

} // namespace gpt2c
