// gpt2c._core: the runtime and the CPU device for the Python package in ../gpt2c.
#include "python/src/Bindings.h"

namespace gpt2c::python {

void bindErrors(nb::module_ &) {
  nb::register_exception_translator([](const std::exception_ptr &e, void *) {
    try {
      std::rethrow_exception(e);
    } catch (const StatusError &error) {
      const rt::Status &status = error.status();
      nb::object made =
          nb::module_::import_("gpt2c._errors").attr("error_of")(int(status.code()), error.what());
      PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(made.ptr())), made.ptr());
    }
  });
}

} // namespace gpt2c::python

NB_MODULE(_core, m) {
  m.attr("__doc__") = "The runtime of gpt2c. Use the package gpt2c, which is over it.";
  m.attr("__version__") = GPT2C_VERSION;
  gpt2c::python::bindErrors(m);
  gpt2c::python::bindTokenizer(m);
  gpt2c::python::bindPlan(m);
  gpt2c::python::bindSession(m);
  gpt2c::python::bindGeneration(m);
}
