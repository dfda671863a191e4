// The parts of the extension module gpt2c._core, and how the runtime's errors leave it.
#pragma once

#include "runtime/Status.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <utility>

namespace gpt2c::python {

namespace nb = nanobind;

/// A failed Status on its way to Python, where it becomes the class of its code (gpt2c/_errors.py).
class StatusError : public std::exception {
public:
  explicit StatusError(rt::Status status) : status_(std::move(status)) {}
  const rt::Status &status() const { return status_; }
  const char *what() const noexcept override { return status_.message().c_str(); }

private:
  rt::Status status_;
};

inline void check(const rt::Status &status) {
  if (!status.ok())
    throw StatusError(status);
}

template <typename T> T take(rt::Result<T> result) {
  check(result.status());
  return result.take();
}

/// An open plan and the tokenizer in it. Immutable, shared by all that were made from it.
struct OpenPlan {
  rt::Plan::Ptr plan;
  std::shared_ptr<const rt::Tokenizer> tokenizer; ///< null: the plan has none
};

void bindErrors(nb::module_ &m);
void bindTokenizer(nb::module_ &m);
void bindPlan(nb::module_ &m);
void bindSession(nb::module_ &m);
void bindGeneration(nb::module_ &m);

} // namespace gpt2c::python
