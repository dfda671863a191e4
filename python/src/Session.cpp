// Sessions: the plan as the exported graph, and single steps over its KV state.
#include "cpu/CpuBackend.h"
#include "python/src/Arrays.h"
#include "python/src/OneSession.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaRanks.h"
#include "runtime/device/Device.h"
#include "runtime/device/DeviceName.h"
#include "runtime/group/ThreadRanks.h"
#include "runtime/session/SavedState.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace gpt2c::python {

namespace {

using rt::Tokens;

SessionPtr openSession(const OpenPlan &plan, const std::string &device, int threads, int ranks,
                       int stages, int microRows) {
  const rt::DeviceName wanted = take(rt::parseDeviceName(device));
  if (threads < 0)
    throw StatusError({rt::Code::Usage, "threads is at least 1, or 0 for one on each core"});
  if (rt::Status s = rt::checkRanks(wanted, {ranks, stages, microRows}); !s.ok())
    throw StatusError(s);
  nb::gil_scoped_release released;
  if (wanted.kind == rt::DeviceName::Kind::Cpu && (ranks > 1 || stages > 1))
    return std::make_shared<OneSession>(
        plan,
        take(rt::openThreadRanks(
            plan.plan, {ranks * stages, stages, microRows},
            [&](rt::RankLink &link) { return makeCpuBackend(plan.plan, {threads, &link}); })),
        "");
  if (!wanted.ranks.empty())
    return std::make_shared<OneSession>(
        plan,
        take(
            rt::makeCudaRanks(plan.plan, wanted.ranks, {.stages = stages, .microRows = microRows})),
        "");
  std::string why;
  if (wanted.kind != rt::DeviceName::Kind::Cpu) {
    rt::Result<std::unique_ptr<rt::Backend>> cuda =
        rt::makeCudaBackendOn(plan.plan, wanted.ordinal);
    if (cuda)
      return std::make_shared<OneSession>(plan, cuda.take(), "");
    if (wanted.kind == rt::DeviceName::Kind::Cuda || cuda.status().code() != rt::Code::Incompatible)
      throw StatusError(cuda.status());
    why = cuda.status().message();
  }
  return std::make_shared<OneSession>(plan, take(makeCpuBackend(plan.plan, {.threads = threads})),
                                      std::move(why));
}

std::vector<NumpyArray> forward(OneSession &s, const std::vector<AnyArray> &given) {
  const auto &ports = s.plan.plan->meta().exported_inputs;
  std::vector<rt::HostTensor> inputs;
  for (size_t i = 0; i < given.size(); ++i) // of too many, Session says so
    inputs.push_back(i < ports.size() ? toTensor(given[i], ports[i]->dtype, ports[i]->name)
                                      : rt::HostTensor());
  std::vector<rt::HostTensor> results =
      locked(s, [&](rt::Session &session) { return session.forward(inputs); });
  std::vector<NumpyArray> out;
  for (rt::HostTensor &r : results)
    out.push_back(toArray(std::move(r)));
  return out;
}

/// The next tokens, and logits or None.
nb::tuple stepResult(rt::StepOutput step) {
  const auto batch = int64_t(step.next.size());
  nb::object logits = nb::none();
  if (!step.logits.empty())
    logits = nb::cast(toArray(step.logits, {batch, int64_t(step.logits.size()) / batch}));
  return nb::make_tuple(toArray(std::move(step.next), {batch}), logits);
}

nb::tuple prefill(OneSession &s, const std::vector<Tokens> &sequences, const Tokens &past,
                  bool logits) {
  return stepResult(
      locked(s, [&](rt::Session &session) { return session.prefill(sequences, past, logits); }));
}

nb::tuple extend(OneSession &s, const Tokens &tokens, bool logits) {
  return stepResult(locked(s, [&](rt::Session &session) { return session.step(tokens, logits); }));
}

NumpyArray decode(OneSession &s, int steps) {
  std::vector<Tokens> rows = locked(s, [&](rt::Session &session) { return session.decode(steps); });
  Tokens all;
  for (const Tokens &row : rows)
    all.insert(all.end(), row.begin(), row.end());
  const auto count = int64_t(rows.size());
  return toArray(std::move(all), {count, int64_t(rows[0].size())});
}

NumpyArray logits(OneSession &s, const std::vector<Tokens> &sequences) {
  return toArray(locked(s, [&](rt::Session &session) { return session.logits(sequences); }));
}

/// None until the first generation made the engine, or where there is none.
nb::object engineStats(OneSession &s) {
  if (!s.knowsEngine || !s.engine)
    return nb::none();
  const rt::EngineStats stats = s.engine->stats();
  nb::dict out;
  out["waiting"] = stats.waiting;
  out["running"] = stats.running;
  out["pages"] = stats.pages;
  out["pages_used"] = stats.pagesUsed;
  out["steps"] = stats.calls;
  out["rows"] = stats.rows;
  out["new_tokens"] = stats.newTokens;
  out["prefix_queries"] = stats.prefixQueries;
  out["prefix_hits"] = stats.prefixHits;
  out["page_bytes"] = stats.pageBytes;
  out["host_pages"] = stats.hostPages;
  out["host_pages_used"] = stats.hostPagesUsed;
  out["pages_out"] = stats.pagesOut;
  out["pages_in"] = stats.pagesIn;
  out["pages_read"] = stats.pagesRead;
  out["recomputed_tokens"] = stats.recomputedTokens;
  return out;
}

Tokens lengths(OneSession &s) {
  return locked(s, [](rt::Session &session) {
    return rt::Result<Tokens>(Tokens(session.lengths().begin(), session.lengths().end()));
  });
}

void saveState(OneSession &s, const std::string &path) {
  locked(s, [&](rt::Session &session) {
    const rt::Status status = rt::saveState(session, path);
    return status.ok() ? rt::Result<int>(0) : rt::Result<int>(status);
  });
}

void loadState(OneSession &s, const std::string &path) {
  locked(s, [&](rt::Session &session) {
    const rt::Status status = rt::restoreState(session, path);
    return status.ok() ? rt::Result<int>(0) : rt::Result<int>(status);
  });
}

} // namespace

void bindSession(nb::module_ &m) {
  nb::class_<OneSession>(m, "Session")
      .def(nb::new_(&openSession), nb::arg("plan"), nb::arg("device"), nb::arg("threads"),
           nb::arg("ranks"), nb::arg("stages"), nb::arg("micro_rows"))
      .def_prop_ro("device", [](OneSession &s) { return s.session.backend().kind(); })
      .def_prop_ro("device_name", [](OneSession &s) { return s.session.backend().name(); })
      .def_prop_ro("device_note", [](OneSession &s) { return s.session.backend().note(); })
      .def_prop_ro("fallback", [](OneSession &s) { return s.fallback; })
      .def_prop_ro("has_kv_state", [](OneSession &s) { return s.session.hasKvState(); })
      .def_prop_ro("lengths", &lengths)
      .def("save_state", &saveState, nb::arg("path"))
      .def("load_state", &loadState, nb::arg("path"))
      .def(
          "set_engine_memory",
          [](OneSession &s, uint64_t kvBytes, int32_t hostPages) {
            s.engineOptions.kvBytes = kvBytes;
            s.engineOptions.hostPages = hostPages;
          },
          nb::arg("kv_bytes"), nb::arg("host_pages"))
      .def("engine_stats", &engineStats, nb::sig("def engine_stats(self) -> dict[str, int] | None"))
      .def("forward", &forward, nb::arg("inputs"),
           nb::sig("def forward(self, inputs: collections.abc.Sequence[typing.Any]) -> "
                   "list[numpy.typing.NDArray[typing.Any]]"))
      .def("prefill", &prefill, nb::arg("sequences"), nb::arg("past"), nb::arg("logits"),
           nb::sig("def prefill(self, sequences: collections.abc.Sequence["
                   "collections.abc.Sequence[int]], past: collections.abc.Sequence[int], "
                   "logits: bool) -> tuple[numpy.typing.NDArray[numpy.int32], "
                   "numpy.typing.NDArray[numpy.float32] | None]"))
      .def("extend", &extend, nb::arg("tokens"), nb::arg("logits"),
           nb::sig("def extend(self, tokens: collections.abc.Sequence[int], logits: bool) -> "
                   "tuple[numpy.typing.NDArray[numpy.int32], "
                   "numpy.typing.NDArray[numpy.float32] | None]"))
      .def("decode", &decode, nb::arg("steps"),
           nb::sig("def decode(self, steps: int) -> numpy.typing.NDArray[numpy.int32]"))
      .def("sequence_logits", &logits, nb::arg("sequences"),
           nb::sig("def sequence_logits(self, sequences: collections.abc.Sequence["
                   "collections.abc.Sequence[int]]) -> numpy.typing.NDArray[numpy.float32]"));
}

} // namespace gpt2c::python
