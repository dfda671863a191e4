// Branches, calls, barriers of a block and of a cluster, and what this machine has no use for.
#include "Machine.h"

#include <algorithm>

namespace gpt2c::emulated {

namespace {

void branch(Thread &t, const Instruction &i) { t.next = &i + i.jump; }

void call(Thread &t, const Instruction &i) {
  t.enter(*i.callee);
  Thread::Frame &f = t.frame(), &caller = *(&f - 1);
  for (size_t k = 0; k < i.o.size(); ++k) {
    const Variable &to = i.callee->params[k];
    std::memcpy(f.params.data() + to.at, caller.local.data() + i.o[k], to.bytes);
  }
}
void leave(Thread &t, const Instruction &) {
  if (t.frames.size() == 1) {
    t.state = Thread::Done;
    return;
  }
  Thread::Frame done = std::move(t.frame());
  t.frames.pop_back();
  Thread::Frame &f = t.frame();
  t.r = f.registers.data();
  t.next = f.behind;
  if (done.function->result >= 0)
    std::memcpy(f.local.data() + f.behind[-1].offset, done.local.data() + done.function->result,
                done.function->resultBytes);
}
void trap(Thread &, const Instruction &) { throw Error("the kernel gave up"); }
void nothing(Thread &, const Instruction &) {}
void release(Thread &t, const Instruction &) { t.machine->release(*t.block); }
void waitForPredecessor(Thread &t, const Instruction &) { t.machine->waitForPredecessor(t); }

void meetBlock(Thread &t, const Instruction &i) {
  arriveAtBlock(t, get<uint32_t>(t, i.o[0]), i.o.size() > 1 ? get<uint32_t>(t, i.o[1]) : 0, -1,
                false);
}
/// bar.red.popc result, barrier, predicate.
void countInBlock(Thread &t, const Instruction &i) {
  arriveAtBlock(t, get<uint32_t>(t, i.o[1]), 0, i.o[0], get<uint64_t>(t, i.o[2]) & 1);
}
/// An arrival without a wait: the thread goes on.
void arriveOnly(Thread &t, const Instruction &i) {
  BlockBarrier &barrier = t.block->barriers.at(get<uint32_t>(t, i.o[0]));
  const auto wanted = get<uint32_t>(t, i.o[1]);
  barrier.wanted = wanted;
  if (++barrier.arrived < wanted)
    return;
  barrier.arrived = 0;
  barrier.results.clear();
  t.machine->wake(barrier.waiting);
}

void arriveAtCluster(Thread &t, const Instruction &) {
  Cluster &c = *t.block->cluster;
  if (++c.arrived == c.alive)
    t.machine->endClusterPhase(c);
}
void waitForCluster(Thread &t, const Instruction &) {
  Cluster &c = *t.block->cluster;
  if (t.clusterPhase++ < c.phase)
    return;
  t.state = Thread::Waiting;
  c.waiting.push_back(&t);
}

} // namespace

bool decodeControl(Instruction &i, const std::vector<std::string> &parts) {
  const std::string &op = parts[0];
  auto has = [&](const char *name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  if (op == "bra")
    i.run = branch;
  else if (op == "call")
    i.run = call;
  else if (op == "ret" || op == "exit")
    i.run = leave;
  else if (op == "trap")
    i.run = trap;
  else if ((op == "bar" || op == "barrier") && has("cluster"))
    i.run = has("arrive") ? arriveAtCluster : waitForCluster;
  else if ((op == "bar" || op == "barrier") && !has("warp"))
    i.run = has("red")      ? (has("popc") ? countInBlock : nullptr)
            : has("arrive") ? arriveOnly
                            : meetBlock;
  else if (op == "griddepcontrol")
    i.run = has("wait") ? waitForPredecessor : release;
  else if (op == "fence" || op == "membar" || op == "setmaxnreg" || op == "nanosleep" ||
           op == "pragma")
    i.run = nothing;
  return i.run != nullptr;
}

void decode(Instruction &instruction, const std::string &name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!decodeArithmetic(instruction, parts) && !decodeMemory(instruction, parts) &&
      !decodeControl(instruction, parts) && !decodeWarp(instruction, parts))
    throw Error("line " + std::to_string(instruction.line) + ": unknown instruction " + name);
}

} // namespace gpt2c::emulated
