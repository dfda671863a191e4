#include "runtime/cuda/StepProfiler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>

namespace gpt2c::rt::cuda {

namespace {
constexpr int kWarmup = 2;

/// Mean of the middle half: single replays may be disturbed, and the clock has coarse ticks, which
/// a median would keep.
double middleMean(std::vector<double> samples) {
  std::ranges::sort(samples);
  size_t cut = samples.size() / 4;
  return std::accumulate(samples.begin() + cut, samples.end() - cut, 0.0) /
         double(samples.size() - 2 * cut);
}
} // namespace

Result<std::vector<FunctionProfile::StepTime>>
profileSteps(const std::shared_ptr<CudaDevice> &device, CudaExecutor &executor,
             const plan::FunctionT &function, std::span<const int64_t> symbols,
             std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs,
             int repetitions, const Backend::WantedSteps &wanted) {
  Result<Timer> created = Timer::create(device);
  if (!created)
    return created.status();
  Timer timer = created.take();

  /// Time from the start to the end of `last`, or to the start itself.
  auto timeTo = [&](std::optional<size_t> last) -> Result<double> {
    auto capture = [&]() -> Status {
      if (Status s = timer.startInGraph(); !s.ok())
        return s;
      if (!last)
        if (Status s = timer.stopInGraph(); !s.ok())
          return s;
      return executor.enqueue(function, symbols, inputs, outputs, [&](size_t step) -> Result<bool> {
        if (step != last)
          return false;
        if (Status s = timer.stopInGraph(); !s.ok())
          return s;
        return true;
      });
    };
    if (Status s = Graph::beginCapture(*device); !s.ok())
      return s;
    Result<Graph> graph = Graph::finishCapture(device, capture());
    if (!graph)
      return graph.status();
    std::vector<double> samples;
    for (int i = 0; i < kWarmup + repetitions; ++i) {
      if (Status s = graph->launch(); !s.ok())
        return s;
      if (Status s = device->synchronize(); !s.ok())
        return s;
      Result<double> elapsed = timer.milliseconds();
      if (!elapsed)
        return elapsed.status();
      if (i >= kWarmup)
        samples.push_back(*elapsed);
    }
    return middleMean(std::move(samples));
  };

  std::vector<size_t> launched;
  Status counted = executor.enqueue(function, symbols, inputs, outputs, [&](size_t step) {
    launched.push_back(step);
    return Result<bool>(false);
  });
  if (!counted.ok())
    return counted;
  Result<double> none = timeTo(std::nullopt);
  if (!none)
    return none.status();
  std::vector<FunctionProfile::StepTime> times;
  std::optional<double> begin = 0; // where the step begins, if that is measured
  for (size_t i = 0; i < launched.size(); ++i) {
    if (wanted && !wanted(*function.steps[launched[i]])) {
      begin.reset();
      continue;
    }
    double ends[2];
    for (int k : {0, 1}) {
      if (k == 0 && begin) {
        ends[0] = *begin;
        continue;
      }
      Result<double> to = timeTo(launched[i + k - 1]);
      if (!to)
        return to.status();
      ends[k] = *to - *none;
    }
    times.push_back({launched[i], ends[0], ends[1]});
    begin = ends[1];
  }
  inOrder(times);
  return times;
}

void inOrder(std::vector<FunctionProfile::StepTime> &times) {
  double next = std::numeric_limits<double>::infinity();
  for (FunctionProfile::StepTime &t : std::views::reverse(times)) {
    t.end = std::max(0.0, std::min(t.end, next));
    t.begin = std::max(0.0, std::min(t.begin, t.end));
    next = t.begin;
  }
}

} // namespace gpt2c::rt::cuda
