#include "tools/runtime-common/DeviceFlags.h"

#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaRanks.h"
#include "runtime/device/Device.h"
#include "runtime/device/DeviceName.h"
#include "runtime/group/SocketRanks.h"

#include <cstdio>
#include <optional>
#include <utility>

namespace gpt2c {

void DeviceFlags::addTo(Flags &flags) {
  flags
      .value("device", "auto|cuda|cuda:N[,M,..]|cpu",
             "Where to run: cuda (the first GPU), cuda:N, several as --gpus does, cpu (from the IR "
             "in the plan), or auto: the GPU where the plan has code for the first, else the CPU "
             "(default)",
             device)
      .value("gpus", "N,M,..",
             "Run as a rank on each of these GPUs of a host: each with its part of every layer, of "
             "a plan of gpt2c --tensor-parallel, or as --pipeline-parallel says; one that is named "
             "twice is two ranks",
             gpus)
      .value("threads", "N", "Threads of the CPU device; 0: one for each core", threads)
      .value("ranks", "N|env",
             "Run as so many ranks on the CPU device, of a plan of gpt2c "
             "--tensor-parallel: N threads of this process, or env: the processes that RANK, "
             "WORLD_SIZE, MASTER_ADDR and MASTER_PORT name, of which rank 0 answers",
             ranks)
      .value("pipeline-parallel", "N",
             "Run in N stages that stand behind each other, each with some of the layers, of any "
             "plan with a KV state: N ranks, or as many groups of --ranks=N; with --gpus and "
             "--ranks=env those that there are, dealt to the stages in their order",
             stages)
      .value("micro-batch", "ROWS",
             "With --pipeline-parallel: rows of a call on which a stage works at a time; 0: as "
             "many as the device thinks best (default)",
             microRows)
      .value("ranks-wait", "SECONDS", "With --ranks=env: how long ranks may come late (30)",
             ranksWait)
      .value("rank-silence", "SECONDS",
             "A rank that is silent for so long is lost: a process of --ranks=env (0.8), or one of "
             "--gpus that another waits for (1)",
             rankSilence)
      .flag("skip-weight-checksum", "Do not read all weights at start to verify their checksum",
            skipWeightChecksum);
}

static rt::Result<std::unique_ptr<rt::Backend>>
openBackend(const rt::Plan::Ptr &plan, const rt::DeviceName &wanted, int threads) {
  if (wanted.kind == rt::DeviceName::Kind::Cpu)
    return rt::openCpuDevice(plan, threads);
  rt::Result<std::unique_ptr<rt::Backend>> cuda = rt::makeCudaBackendOn(plan, wanted.ordinal);
  if (std::string note = cuda ? (*cuda)->note() : ""; !note.empty())
    std::fprintf(stderr, "note: %s\n", note.c_str());
  if (cuda || wanted.kind == rt::DeviceName::Kind::Cuda ||
      cuda.status().code() != rt::Code::Incompatible)
    return cuda;
  static bool told = false;
  if (!std::exchange(told, true)) {
    std::string why = cuda.status().message();
    for (const char *end : {"\n", " (", ". "})
      why = why.substr(0, why.find(end));
    std::fprintf(stderr, "note: running on the CPU: %s\n", why.c_str());
  }
  return rt::openCpuDevice(plan, threads);
}

namespace {

/// What --ranks asks for.
struct Ranks {
  int threads = 1;                       ///< of this process
  std::optional<rt::Rendezvous> meeting; ///< of processes
};

bool namesGpus(const DeviceFlags &flags) {
  return !flags.gpus.empty() || flags.device.starts_with("cuda:");
}

rt::Result<Ranks> ranksOf(const DeviceFlags &flags) {
  Ranks ranks;
  if (flags.stages < 1 || flags.stages > 64)
    return {rt::Code::Usage, "--pipeline-parallel is a number from 1 to 64"};
  int64_t n = 0;
  if (flags.microRows < 0)
    return {rt::Code::Usage, "--micro-batch is at least 1, or 0 for as many as a device thinks"};
  if (flags.ranks.empty()) {
    ranks.threads = namesGpus(flags) ? 1 : flags.stages;
  } else if (flags.ranks == "env") {
    rt::Result<rt::Rendezvous> at = rt::rendezvousOfEnvironment();
    if (!at)
      return at.status();
    at->waitSeconds = flags.ranksWait;
    if (flags.rankSilence != 0)
      at->silenceSeconds = flags.rankSilence;
    if (!(flags.ranksWait > 0) || !(at->silenceSeconds >= 0.3))
      return {rt::Code::Usage, "--ranks-wait is more than 0 and --rank-silence at least 0.3 "
                               "seconds: a process says ten times in a second that it lives"};
    at->stages = flags.stages;
    at->microRows = flags.microRows;
    if (at->ranks > 1 || flags.stages > 1)
      ranks.meeting = at.take();
  } else if (readValue(flags.ranks, n) || n < 1 || n > 64) {
    return {rt::Code::Usage, "--ranks=" + flags.ranks + ": there are 1 to 64 ranks, or env"};
  } else {
    ranks.threads = int(n) * flags.stages;
  }
  if ((ranks.threads > 1 || ranks.meeting) && flags.device != "cpu")
    return {rt::Code::Usage, "--ranks: these are ranks of the CPU device: give --device=cpu, or "
                             "name the GPUs that are to be ranks with --gpus=0,1"};
  return ranks;
}

/// What --device and --gpus name.
rt::Result<rt::DeviceName> deviceOf(const DeviceFlags &flags) {
  rt::Result<rt::DeviceName> device = rt::parseDeviceName(flags.device);
  if (!device)
    return {rt::Code::Usage, "--device=" + flags.device +
                                 " is no device; there are auto, cuda, cuda:N, cuda:N,M,.. and "
                                 "cpu"};
  if (flags.gpus.empty())
    return device;
  if (device->kind == rt::DeviceName::Kind::Cpu || flags.device.starts_with("cuda:"))
    return {rt::Code::Usage, "--gpus names the GPUs: leave --device=" + flags.device + " out"};
  rt::Result<rt::DeviceName> gpus = rt::parseDeviceName("cuda:" + flags.gpus);
  if (!gpus)
    return {rt::Code::Usage,
            "--gpus=" + flags.gpus + ": GPUs are numbers, as the driver counts: 0,1"};
  return gpus;
}

} // namespace

bool followsRank(const DeviceFlags &flags) {
  const rt::Result<Ranks> ranks = ranksOf(flags);
  return ranks && ranks->meeting && ranks->meeting->rank > 0;
}

rt::Status followRank(const std::string &planPath, const DeviceFlags &flags) {
  rt::Result<Ranks> ranks = ranksOf(flags);
  if (!ranks)
    return ranks.status();
  rt::OpenOptions options;
  options.verifyWeights = !flags.skipWeightChecksum;
  rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(planPath, options);
  if (!plan)
    return plan.status();
  return rt::followRank(*plan, *ranks->meeting, [&](rt::RankLink &link) {
    return rt::openCpuDevice(*plan, flags.threads, &link);
  });
}

rt::Result<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan, const DeviceFlags &flags) {
  if (flags.threads < 0)
    return {rt::Code::Usage, "--threads is at least 1, or 0 for one on each core"};
  const rt::Result<Ranks> ranks = ranksOf(flags);
  if (!ranks)
    return ranks.status();
  if (ranks->meeting && ranks->meeting->rank > 0)
    return {rt::Code::Usage, "--ranks=env: this tool does not follow rank 0; gpt2c-run, "
                             "gpt2c-bench and gpt2c-serve do, and --ranks=N goes everywhere"};
  if (ranks->threads > 1 || ranks->meeting) {
    auto open = [&](rt::RankLink &link) { return rt::openCpuDevice(plan, flags.threads, &link); };
    rt::Result<std::unique_ptr<rt::Backend>> group =
        ranks->meeting
            ? rt::openSocketRanks(plan, *ranks->meeting, open)
            : rt::openThreadRanks(plan, {ranks->threads, flags.stages, flags.microRows}, open);
    if (!group)
      return group.status();
    return std::make_unique<rt::Session>(std::move(plan), group.take());
  }
  rt::Result<rt::DeviceName> wanted = deviceOf(flags);
  if (!wanted)
    return wanted.status();
  if (wanted->ranks.empty() && flags.stages > 1)
    return {rt::Code::Usage, "--pipeline-parallel: name the GPUs, as --gpus=0,1"};
  if (!wanted->ranks.empty()) {
    rt::Result<std::unique_ptr<rt::Backend>> group = rt::makeCudaRanks(
        plan, wanted->ranks,
        {.patience = flags.rankSilence, .stages = flags.stages, .microRows = flags.microRows});
    if (!group)
      return group.status();
    if (const std::string note = (*group)->note(); !note.empty())
      std::fprintf(stderr, "note: %s\n", note.c_str());
    return std::make_unique<rt::Session>(std::move(plan), group.take());
  }
  rt::Result<std::unique_ptr<rt::Backend>> backend = openBackend(plan, *wanted, flags.threads);
  if (!backend)
    return backend.status();
  return std::make_unique<rt::Session>(std::move(plan), backend.take());
}

rt::Result<std::unique_ptr<rt::Session>> openSession(const std::string &planPath,
                                                     const DeviceFlags &flags) {
  rt::OpenOptions options;
  options.verifyWeights = !flags.skipWeightChecksum;
  rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(planPath, options);
  if (!plan)
    return plan.status();
  return openSession(plan.take(), flags);
}

} // namespace gpt2c
