#include "ir/Group.h"

namespace gpt2c {

static thread_local Group *innermost = nullptr;

Group *Group::current() { return innermost; }

Group::Scope::Scope(Group *group) : before_(innermost) { innermost = group; }

Group::Scope::~Scope() { innermost = before_; }

} // namespace gpt2c
