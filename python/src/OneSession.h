// A session that several threads may ask: one call at a time.
#pragma once

#include "python/src/Bindings.h"
#include "runtime/session/Session.h"

#include <chrono>
#include <mutex>

namespace gpt2c::python {

struct OneSession {
  OneSession(OpenPlan opened, std::unique_ptr<rt::Backend> backend, std::string why)
      : plan(std::move(opened)), session(plan.plan, std::move(backend)), fallback(std::move(why)) {}

  OpenPlan plan;
  rt::Session session;
  std::string fallback; ///< why "auto" took the CPU; empty where it did not
  std::timed_mutex mutex;
};

using SessionPtr = std::shared_ptr<OneSession>;

/// How long anything waits before it looks whether a signal has come.
constexpr std::chrono::milliseconds signalInterval{20};

/// Runs f(session) without the GIL while no other call runs, and returns its Result's value. A
/// signal that comes while it waits for its turn ends the wait.
template <typename F> auto locked(OneSession &s, F f) {
  std::unique_lock lock(s.mutex, std::defer_lock);
  for (;;) {
    {
      nb::gil_scoped_release released;
      if (lock.try_lock_for(signalInterval))
        return take(f(s.session));
    }
    if (PyErr_CheckSignals() != 0)
      throw nb::python_error();
  }
}

} // namespace gpt2c::python
