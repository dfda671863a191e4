#include "python/src/OneSession.h"

#include <utility>

namespace gpt2c::python {

/// In the session's turn.
static rt::Status makeEngine(OneSession &s) {
  rt::Result<std::unique_ptr<rt::Engine>> made = rt::Engine::create(s.session, s.engineOptions);
  if (!made)
    return made.status().code() == rt::Code::Unsupported ? rt::Status() : made.status();
  auto begin = [&s](rt::Engine &engine) {
    s.engineTurn.emplace(s.queue);
    while (!s.engineTurn->hasCome()) {
    }
    if (std::exchange(s.usedBesideEngine, false))
      engine.forget();
    s.session.endBatch();
  };
  s.engine = std::make_unique<rt::EngineThread>(
      made.take(), rt::EngineTurns{.begin = begin,
                                   .end = [&s] { s.engineTurn.reset(); },
                                   .othersWait = [&s] { return s.queue.othersWait(); }});
  return {};
}

rt::EngineThread *engineOf(OneSession &s) {
  if (!s.knowsEngine)
    locked(s, [&](rt::Session &) -> rt::Result<bool> {
      if (s.knowsEngine)
        return true;
      if (rt::Status made = makeEngine(s); !made.ok())
        return made;
      return s.knowsEngine = true;
    });
  return s.engine.get();
}

} // namespace gpt2c::python
