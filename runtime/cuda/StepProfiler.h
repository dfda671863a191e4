// How long each step of a function takes where it stands, among the others.
#pragma once

#include "runtime/cuda/CudaExecutor.h"
#include "runtime/device/Backend.h"

namespace gpt2c::rt::cuda {

/// Step i takes T(i) - T(i - 1), where T(i) is the time from the function's start to the end of
/// step i within a run of all steps: caches are what they are in use, the times sum up to the
/// function's, and what it costs to take a time cancels out. Each T is an average over
/// `repetitions` replays of a graph, put in order by inOrder(). Addresses and symbols as for
/// CudaExecutor::enqueue.
Result<std::vector<FunctionProfile::StepTime>>
profileSteps(const std::shared_ptr<CudaDevice> &device, CudaExecutor &executor,
             const plan::FunctionT &function, std::span<const int64_t> symbols,
             std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs,
             int repetitions, const Backend::WantedSteps &wanted = {});

/// `times`, one behind the other, so that no step ends behind a later one. To take a time behind a
/// step holds back the next one, which else begins before it ends: that may delay T(i) beyond
/// T(i + 1), in whose run step i had ended, too. Sums stay the last end.
void inOrder(std::vector<FunctionProfile::StepTime> &times);

} // namespace gpt2c::rt::cuda
