#include "Machine.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gpt2c::emulated {

/// Of a clock that kernels see: it goes slower than the host's, as they do.
static uint64_t nanoseconds() {
  constexpr int slower = 64;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) / slower;
}

void Thread::enter(const Function &function) {
  if (!frames.empty())
    frame().behind = next;
  frames.emplace_back();
  Frame &f = frame();
  f.function = &function;
  f.registers.resize(size_t(function.registers));
  f.registers.insert(f.registers.end(), function.constants.begin(), function.constants.end());
  f.params.resize(function.paramBytes + 16);
  f.local.resize(function.localBytes + 16);
  next = function.code.data();
  r = f.registers.data();
  r[Function::paramBase] = uint64_t(f.params.data());
  r[Function::localBase] = uint64_t(f.local.data());
}

void Machine::allocate(const void *begin, size_t bytes, int device) {
  allocations_[uint64_t(begin)] = {bytes, device};
}
bool Machine::free(const void *begin) {
  lastBegin_ = lastEnd_ = 0;
  return allocations_.erase(uint64_t(begin)) > 0;
}

char *Machine::global(uint64_t address, size_t bytes) {
  if (address < lastBegin_ || address + bytes > lastEnd_) {
    auto it = allocations_.upper_bound(address);
    if (it != allocations_.begin())
      --it;
    if (it == allocations_.end() || address < it->first ||
        address + bytes > it->first + it->second.bytes)
      throw Error("an access to " + std::to_string(bytes) + " bytes of nobody's memory");
    const int owner = it->second.device;
    if (owner >= 0 && owner != device_ && !access_.contains({device_, owner}))
      throw Error("device " + std::to_string(device_) + " has no access to memory of device " +
                  std::to_string(owner));
    lastBegin_ = it->first;
    lastEnd_ = it->first + it->second.bytes;
  }
  if (address % std::min<size_t>(bytes & -bytes, 16) != 0)
    throw Error("an address that is no multiple of its " + std::to_string(bytes) + " bytes");
  return reinterpret_cast<char *>(address);
}

Block &Machine::blockOf(Thread &thread, uint32_t address) {
  const uint32_t rank = address >> 24;
  if (rank == 0)
    return *thread.block;
  if (rank > thread.block->cluster->blocks.size())
    throw Error("shared memory of a block that the cluster has not");
  return *thread.block->cluster->blocks[rank - 1];
}

char *Machine::shared(Thread &thread, uint32_t address, size_t bytes) {
  Block &block = blockOf(thread, address);
  const uint32_t at = (address & 0xffffff) - sharedOrigin;
  if (at + bytes > block.shared.size())
    throw Error("shared memory at " + std::to_string(at) + ", of which there are " +
                std::to_string(block.shared.size()) + " bytes");
  if (at % std::min<size_t>(bytes & -bytes, 16) != 0)
    throw Error("a shared address that is no multiple of its " + std::to_string(bytes) + " bytes");
  return block.shared.data() + at;
}

char *Machine::generic(Thread &thread, uint64_t address, size_t bytes) {
  if (address >> 48 == sharedWindow >> 48)
    return shared(thread, uint32_t(address), bytes);
  for (Thread::Frame &f : thread.frames)
    for (std::vector<char> *own : {&f.params, &f.local})
      if (address >= uint64_t(own->data()) &&
          address + bytes <= uint64_t(own->data() + own->size()))
        return reinterpret_cast<char *>(address);
  return global(address, bytes);
}

void Machine::later(std::function<void()> action) {
  // As likely twice as late, again and again: others get little done meanwhile, or all they can.
  const uint64_t turns = 1 + below(1u << (1 + below(14)));
  later_.push({turn_ + turns, std::make_shared<std::function<void()>>(std::move(action))});
}
void Machine::wake(Thread *thread) {
  thread->state = Thread::Ready;
  thread->queued = true;
  ready_.push_back(thread);
}
void Machine::wake(std::vector<Thread *> &threads) {
  for (Thread *t : threads)
    wake(t);
  threads.clear();
}

std::unique_ptr<Block> Machine::makeBlock(Cluster &cluster, const unsigned *index, unsigned rank) {
  const Launch &launch = *cluster.launch;
  const Function *kernel = launch.kernel;
  const Grid &grid = launch.grid;
  auto block = std::make_unique<Block>();
  block->cluster = &cluster;
  std::copy(index, index + 3, block->index);
  block->rank = rank;
  block->shared.resize(kernel->sharedBytes + grid.dynamicShared);
  for (size_t i = 0; i + 8 <= block->shared.size(); i += 8) { // what nobody writes is anything
    const uint64_t bits = random();
    std::memcpy(block->shared.data() + i, &bits, 8);
  }
  block->alive = grid.threads;
  for (unsigned i = 0; i < grid.threads; ++i) {
    if (i % 32 == 0) {
      block->warps.emplace_back();
      block->warps.back().number = int(i / 32);
    }
    Warp &warp = block->warps.back();
    Thread &t = block->threads.emplace_back();
    t.machine = this;
    t.block = block.get();
    t.warp = &warp;
    t.index = int(i);
    t.lane = int(i % 32);
    warp.lanes[size_t(warp.count++)] = &t;
    t.enter(*kernel);
    std::copy(launch.params.begin(), launch.params.end(), t.frame().params.begin());
    for (auto [constant, special] : kernel->specials) {
      auto valueOf = [&](Special s) -> uint64_t {
        switch (s) {
        case Special::Thread:
          return i;
        case Special::Threads:
          return grid.threads;
        case Special::BlockX:
        case Special::BlockY:
        case Special::BlockZ:
          return index[int(s) - int(Special::BlockX)];
        case Special::BlocksX:
        case Special::BlocksY:
        case Special::BlocksZ:
          return grid.blocks[int(s) - int(Special::BlocksX)];
        case Special::Rank:
          return rank;
        case Special::Processor:
          return index[0];
        }
        return 0;
      };
      t.r[kernel->registers + constant] = valueOf(special);
    }
    wake(&t);
  }
  cluster.alive += grid.threads;
  return block;
}

void Machine::launch(const Function &kernel, const Grid &grid, std::vector<char> params,
                     Stream stream) {
  unsigned total = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid.blocks[i] == 0 || grid.blocks[i] % grid.cluster[i] != 0)
      throw Error("a grid that clusters do not divide");
    total *= grid.blocks[i] / grid.cluster[i];
  }
  if (grid.threads == 0 || grid.threads > kernel.maxThreads)
    throw Error("a block of " + std::to_string(grid.threads) + " threads");
  if (kernel.sharedBytes + grid.dynamicShared > 227 * 1024)
    throw Error("a block with too much shared memory");
  if (!grid.overlaps)
    finish(stream);
  Queue &queue = queues_[stream];
  Launch &added = queue.launches.emplace_back();
  added.queue = &queue;
  added.kernel = &kernel;
  added.grid = grid;
  added.params = std::move(params);
  added.total = total;
  added.most = grid.together ? total : 1 + below(3);
}

void Machine::startClusters() {
  for (auto &[stream, queue] : queues_) {
    while (!queue.launches.empty() && queue.launches.front().done())
      queue.launches.pop_front();
    const Launch *before = nullptr;
    for (Launch &launch : queue.launches) {
      if (before && (before->started < before->total || before->released < before->blocks()))
        break;
      while (launch.started < launch.total && launch.running.size() < launch.most)
        startCluster(launch);
      before = &launch;
    }
  }
}
void Machine::startCluster(Launch &launch) {
  const unsigned *size = launch.grid.cluster;
  const unsigned columns = launch.grid.blocks[0] / size[0], rows = launch.grid.blocks[1] / size[1];
  const unsigned number = launch.started++;
  const unsigned first[3] = {number % columns * size[0], number / columns % rows * size[1],
                             number / columns / rows * size[2]};
  launch.running.push_back(std::make_unique<Cluster>());
  Cluster &cluster = *launch.running.back();
  cluster.launch = &launch;
  for (unsigned z = 0; z < size[2]; ++z)
    for (unsigned y = 0; y < size[1]; ++y)
      for (unsigned x = 0; x < size[0]; ++x) {
        const unsigned index[3] = {first[0] + x, first[1] + y, first[2] + z};
        cluster.blocks.push_back(makeBlock(cluster, index, x + size[0] * (y + size[1] * z)));
      }
}

void Machine::finish(Stream stream) {
  constexpr unsigned turnsOfOne = 4096; // until another thread may launch something
  Queue &queue = queues_[stream];
  try {
    for (unsigned turns = 1;; ++turns) {
      if (std::exchange(queue.failed, false))
        throw Error("a kernel of another stream failed");
      startClusters();
      if (queue.launches.empty())
        return;
      if (ready_.empty() && later_.empty())
        throw Error("all threads wait:\n" + stateOfAll());
      runOne();
      if (turns % turnsOfOne == 0)
        pause();
    }
  } catch (...) {
    ready_.clear();
    later_ = {};
    for (auto &[other, of] : queues_) {
      of.failed |= &of != &queue && !of.launches.empty();
      of.launches.clear();
    }
    throw;
  }
}
void Machine::finishAll() {
  for (auto &[stream, queue] : queues_)
    finish(stream);
}

void Machine::finishOthers(Stream stream) {
  for (auto &[other, queue] : queues_)
    if (other != stream)
      finish(other);
}

void Machine::runOne() {
  ++turn_;
  if (ready_.empty())
    turn_ = std::max(turn_, later_.top().due);
  while (!later_.empty() && later_.top().due <= turn_) {
    auto action = later_.top().action;
    later_.pop();
    (*action)();
  }
  if (ready_.empty())
    return;
  std::swap(ready_[below(unsigned(ready_.size()))], ready_.back());
  Thread *t = ready_.back();
  ready_.pop_back();
  t->queued = false;
  try {
    runThread(*t);
  } catch (const Error &error) {
    const Instruction &i = t->next[-1];
    const unsigned *block = t->block->index;
    throw Error(std::string(error.what()) + "\n  block " + std::to_string(block[0]) + " " +
                std::to_string(block[1]) + " " + std::to_string(block[2]) + ", thread " +
                std::to_string(t->index) + ", " + t->frame().function->name + ", line " +
                std::to_string(i.line) + ": " + i.text);
  }
  if (t->state == Thread::Done) {
    end(*t);
  } else if (t->state == Thread::Ready && !t->queued) {
    if (below(1024) == 0) { // it sleeps for a while
      t->queued = true;
      later([this, t] { wake(t); });
    } else {
      wake(t);
    }
  }
}

void Machine::release(Block &block) {
  if (!block.released) {
    block.released = true;
    ++block.cluster->launch->released;
  }
}
void Machine::waitForPredecessor(Thread &t) {
  Launch *launch = t.block->cluster->launch;
  std::list<Launch> &launches = launch->queue->launches;
  auto it = std::ranges::find(launches, launch, [](const Launch &l) { return &l; });
  if (it == launches.begin() || std::prev(it)->done())
    return;
  t.state = Thread::Waiting;
  launch->waiting.push_back(&t);
}

void Machine::runThread(Thread &t) {
  if (const int device = t.block->cluster->launch->queue->device; device != device_) {
    device_ = device;
    lastBegin_ = lastEnd_ = 0;
  }
  if (const Function &f = *t.frame().function; f.time >= 0)
    t.r[f.registers + f.time] = nanoseconds();
  for (unsigned left = 1 + below(turn_ % 8 == 0 ? 1000 : 60);
       left > 0 && t.state == Thread::Ready && !t.queued; --left) {
    const Instruction &i = *t.next++;
    if (i.guard >= 0 && (t.r[i.guard] & 1) == i.unless)
      continue;
    if (i.runWarp)
      arrive(t, i);
    else
      i.run(t, i);
  }
}

void Machine::arrive(Thread &t, const Instruction &i) {
  t.state = Thread::AtWarp;
  Warp &warp = *t.warp;
  const uint32_t mask = i.mask >= 0 ? get<uint32_t>(t, i.mask) & warp.all() : warp.all();
  if (!(mask >> t.lane & 1))
    throw Error("a lane that its mask does not have");
  for (int lane = 0; lane < warp.count; ++lane) {
    const Thread &other = *warp.lanes[size_t(lane)];
    if ((mask >> lane & 1) && (other.state != Thread::AtWarp || other.next - 1 != &i))
      return;
  }
  i.runWarp(warp, mask, i);
  for (int lane = 0; lane < warp.count; ++lane)
    if (mask >> lane & 1) {
      Thread *other = warp.lanes[size_t(lane)];
      if (other == &t)
        t.state = Thread::Ready; // still runs
      else
        wake(other);
    }
}

static void finish(Machine &machine, BlockBarrier &barrier) {
  for (size_t i = 0; i < barrier.waiting.size(); ++i)
    put<uint32_t>(*barrier.waiting[i], barrier.results[i], barrier.votes);
  barrier.arrived = barrier.votes = 0;
  barrier.results.clear();
  machine.wake(barrier.waiting);
}

void arriveAtBlock(Thread &t, unsigned number, unsigned wanted, int result, bool vote) {
  BlockBarrier &barrier = t.block->barriers.at(number);
  barrier.wanted = wanted;
  barrier.votes += vote;
  barrier.waiting.push_back(&t);
  barrier.results.push_back(result);
  t.state = Thread::Waiting;
  if (++barrier.arrived == (wanted ? wanted : t.block->alive))
    finish(*t.machine, barrier);
}

/// Whoever has ended is not waited for. With its last thread a cluster goes.
void Machine::end(Thread &t) {
  Block &block = *t.block;
  Cluster &cluster = *block.cluster;
  --block.alive;
  --cluster.alive;
  for (BlockBarrier &barrier : block.barriers)
    if (barrier.wanted == 0 && barrier.arrived > 0 && barrier.arrived == block.alive)
      gpt2c::emulated::finish(*this, barrier);
  if (cluster.arrived > 0 && cluster.arrived == cluster.alive)
    endClusterPhase(cluster);
  if (block.alive == 0)
    release(block);
  if (cluster.alive > 0)
    return;
  Launch &launch = *cluster.launch;
  // Copies on their way would write to memory that is gone.
  while (!later_.empty()) {
    auto action = later_.top().action;
    later_.pop();
    (*action)();
  }
  std::erase_if(launch.running, [&](const auto &c) { return c.get() == &cluster; });
  std::list<Launch> &launches = launch.queue->launches;
  auto next = std::next(std::ranges::find(launches, &launch, [](const Launch &l) { return &l; }));
  if (launch.done() && next != launches.end())
    wake(next->waiting);
}

void Machine::endClusterPhase(Cluster &cluster) {
  cluster.arrived = 0;
  ++cluster.phase;
  wake(cluster.waiting);
}

void advance(Machine &machine, Block &block, uint32_t address, unsigned arrivals, int64_t bytes) {
  const uint32_t at = (address & 0xffffff) - sharedOrigin;
  if (at % 8 != 0 || at + 8 > block.shared.size())
    throw Error("no barrier at this shared address");
  MBarrier b;
  std::memcpy(&b, block.shared.data() + at, 8);
  if (b.pending < arrivals)
    throw Error("more arrivals at a barrier than it has");
  b.pending -= arrivals;
  b.bytes -= bytes;
  const bool done = b.pending == 0 && b.bytes == 0;
  if (done) {
    b.pending = b.expected;
    b.phase ^= 1;
  }
  std::memcpy(block.shared.data() + at, &b, 8);
  if (auto it = block.waiting.find(address & 0xffffff); done && it != block.waiting.end())
    machine.wake(it->second);
}

/// What the mbarrier that a thread waits for lacks.
static std::string barrierOf(const Thread &t, const Instruction &i) {
  if (!i.text.starts_with("mbarrier") || i.o.size() < 3)
    return "";
  const uint32_t at = (get<uint32_t>(t, i.o[1]) & 0xffffff) + uint32_t(i.offset) - sharedOrigin;
  MBarrier b{};
  if (at + 8 <= t.block->shared.size())
    std::memcpy(&b, t.block->shared.data() + at, 8);
  return "(phase " + std::to_string(b.phase) + ", " + std::to_string(b.pending) + " of " +
         std::to_string(b.expected) + " arrivals and " + std::to_string(b.bytes) +
         " bytes to come) ";
}

std::string Machine::stateOfAll() const {
  std::string text;
  int lines = 0;
  auto add = [&](const Block &block) {
    for (const Thread &t : block.threads) {
      if (t.state == Thread::Done || t.lane % 31 != 0 || ++lines > 64)
        continue;
      const Instruction &i = t.next[-1];
      text += "  block " + std::to_string(block.index[0]) + " " + std::to_string(block.index[1]) +
              " " + std::to_string(block.index[2]) + ", thread " + std::to_string(t.index) +
              ", line " + std::to_string(i.line) + ": " + i.text + barrierOf(t, i) + "\n";
    }
  };
  for (const auto &[stream, queue] : queues_)
    for (const Launch &launch : queue.launches)
      for (const auto &cluster : launch.running)
        for (const auto &block : cluster->blocks)
          add(*block);
  return text;
}

} // namespace gpt2c::emulated
