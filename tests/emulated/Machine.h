// Threads, warps, blocks and clusters that execute a kernel one instruction at a time, in a random
// order: which thread goes on, how far, and when a copy arrives that nobody waits for yet. A seed
// ($GPT2C_EMULATED_SEED) says which.
#pragma once

#include "Ptx.h"

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <queue>
#include <set>
#include <unordered_map>

namespace gpt2c::emulated {

class Machine;
struct Block;

/// What each instruction reads comes first: threads take turns after some dozens of them.
struct alignas(64) Thread {
  enum State { Ready, AtWarp, Waiting, Done } state = Ready;
  bool queued = false;               ///< among those that are ready
  const Instruction *next = nullptr; ///< to be executed
  uint64_t *r = nullptr;             ///< registers of the last frame
  Machine *machine;
  Block *block;
  Warp *warp;
  int index = 0, lane = 0;
  /// Of the function that runs, and of those that called it.
  struct Frame {
    const Function *function;
    const Instruction *behind; ///< the call that it waits for
    std::vector<uint64_t> registers;
    std::vector<char> params, local;
  };
  std::vector<Frame> frames;
  uint64_t clusterPhase = 0; ///< the next one of the cluster's barrier that it waits for

  /// cp.async: copies of the group that is open, and of those that were committed.
  struct Copy {
    uint32_t to;
    const char *from;
    unsigned bytes, given; ///< zeros follow what is given
  };
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;

  Frame &frame() { return frames.back(); }
  void enter(const Function &function);
};

struct Warp {
  std::array<Thread *, 32> lanes{};
  int count = 0, number = 0; ///< of the block

  uint32_t all() const { return count == 32 ? ~0u : (1u << count) - 1; }
};

/// bar.sync and its kin.
struct BlockBarrier {
  unsigned arrived = 0, wanted = 0; ///< 0: all threads of the block that have not ended
  unsigned votes = 0;               ///< bar.red.popc
  std::vector<Thread *> waiting;
  std::vector<int> results; ///< register of each waiting thread, -1: none
};

struct Launch;
struct Queue;
struct Cluster {
  Launch *launch;
  std::vector<std::unique_ptr<Block>> blocks;
  unsigned alive = 0;   ///< threads
  unsigned arrived = 0; ///< at barrier.cluster
  uint64_t phase = 0;
  std::vector<Thread *> waiting;
};

struct Block {
  Cluster *cluster;
  unsigned index[3];
  unsigned rank;
  std::vector<char> shared;
  std::deque<Thread> threads;
  std::deque<Warp> warps;
  unsigned alive = 0;
  bool released = false; ///< as far as this block goes the next launch may begin
  std::array<BlockBarrier, 16> barriers;
  std::unordered_map<uint32_t, std::vector<Thread *>> waiting; ///< for mbarriers, by address
};

struct Grid {
  unsigned blocks[3];
  unsigned threads;
  size_t dynamicShared;
  bool together = false; ///< a cooperative launch: all blocks run at the same time
  unsigned cluster[3] = {1, 1, 1};
  bool overlaps = false; ///< may begin before the launch in front of it has ended, and waits itself
};

/// A grid that waits for its turn or runs.
struct Launch {
  Queue *queue = nullptr;
  const Function *kernel = nullptr;
  Grid grid{};
  std::vector<char> params;
  unsigned total = 0, started = 0; ///< clusters
  unsigned released = 0;           ///< blocks
  std::list<std::unique_ptr<Cluster>> running;
  unsigned most = 1;             ///< clusters that run at the same time
  std::vector<Thread *> waiting; ///< for the end of the launch in front
  unsigned blocks() const { return grid.blocks[0] * grid.blocks[1] * grid.blocks[2]; }
  bool done() const { return started == total && running.empty(); }
};

/// The launches of a stream, one behind the other. Those of several run side by side.
struct Queue {
  int device = 0;
  std::list<Launch> launches;
  bool failed = false; ///< launches were forgotten, as a kernel of any stream failed
};

class Machine {
public:
  explicit Machine(uint64_t seed) : state_(seed) {}

  /// Names of streams are the caller's.
  using Stream = const void *;
  /// Where kernels of a stream run: device 0, unless it is said before its first launch.
  void setDevice(Stream stream, int device) { queues_[stream].device = device; }
  /// Adds a kernel to those of the stream; `params` are laid out as the function wants them. What
  /// may not overlap waits for the launch in front.
  void launch(const Function &kernel, const Grid &grid, std::vector<char> params,
              Stream stream = nullptr);
  /// Runs all streams until this one's launches have ended. Throws Error, and forgets the rest of
  /// all streams, each of which throws in turn.
  void finish(Stream stream = nullptr);
  void finishAll();
  void finishOthers(Stream stream);
  /// Called now and then while kernels run: another thread may use the machine meanwhile.
  std::function<void()> pause = [] {};
  /// A thread of this block says that the next launch may begin.
  void release(Block &block);
  void endClusterPhase(Cluster &cluster);
  /// Whether the launch in front of the thread's has ended; if not the thread sleeps until then.
  void waitForPredecessor(Thread &thread);

  /// Memory that kernels may touch: of a device, for those of others that have access to it, or of
  /// the host (-1). `free` says whether there was one.
  void allocate(const void *begin, size_t bytes, int device = -1);
  bool free(const void *begin);
  void enableAccess(int device, int peer) { access_.emplace(device, peer); }

  unsigned below(unsigned n) { return unsigned((random() >> 32) * n >> 32); }
  /// Later, by a random number of turns.
  void later(std::function<void()> action);
  void wake(Thread *thread);
  void wake(std::vector<Thread *> &threads);

  /// Where an address leads; throws where `bytes` from there on are nobody's.
  char *global(uint64_t address, size_t bytes);
  char *shared(Thread &thread, uint32_t address, size_t bytes);
  /// An address of any space.
  char *generic(Thread &thread, uint64_t address, size_t bytes);
  Block &blockOf(Thread &thread, uint32_t sharedAddress);

private:
  struct Later {
    uint64_t due;
    std::shared_ptr<std::function<void()>> action;
    bool operator<(const Later &o) const { return due > o.due; }
  };
  void startClusters();
  void startCluster(Launch &launch);
  std::unique_ptr<Block> makeBlock(Cluster &cluster, const unsigned *index, unsigned rank);
  void runOne();
  void runThread(Thread &thread);
  void arrive(Thread &thread, const Instruction &instruction);
  void end(Thread &thread);
  std::string stateOfAll() const;

  /// splitmix64
  uint64_t random() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  uint64_t state_;
  struct Allocation {
    size_t bytes;
    int device;
  };
  std::map<uint64_t, Allocation> allocations_;
  std::set<std::pair<int, int>> access_; ///< device, peer
  int device_ = 0;                       ///< of the thread that runs
  uint64_t lastBegin_ = 0, lastEnd_ = 0; ///< of memory that it may touch
  std::vector<Thread *> ready_;
  std::priority_queue<Later> later_;
  uint64_t turn_ = 0;
  std::map<Stream, Queue> queues_;
};

/// Shared memory as generic addresses have it.
constexpr uint64_t sharedWindow = 0xfff0ull << 48;

template <typename T> T get(const Thread &t, int slot) {
  T value;
  std::memcpy(&value, &t.r[slot], sizeof(T));
  return value;
}
template <typename T> void put(Thread &t, int slot, T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  if (slot >= 0)
    t.r[slot] = bits;
}

/// An mbarrier as shared memory has it.
struct MBarrier {
  uint64_t phase : 1, pending : 20, expected : 20;
  int64_t bytes : 23;
};
static_assert(sizeof(MBarrier) == 8);
/// Of the block that the address leads to: so many arrivals and bytes of copies less to come.
void advance(Machine &machine, Block &block, uint32_t address, unsigned arrivals, int64_t bytes);

void arriveAtBlock(Thread &t, unsigned number, unsigned wanted, int result, bool vote);

// What decode() asks in turn; false: it is none of theirs.
bool decodeArithmetic(Instruction &i, const std::vector<std::string> &parts);
bool decodeMemory(Instruction &i, const std::vector<std::string> &parts);
bool decodeControl(Instruction &i, const std::vector<std::string> &parts);
bool decodeWarp(Instruction &i, const std::vector<std::string> &parts);

float halfToFloat(uint16_t bits);
/// Of an 8-bit float E4M3.
float valueOfFp8(uint8_t bits);
uint16_t floatToHalf(float value);
inline float bfloatToFloat(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
uint16_t floatToBfloat(float value);

/// A CUtensorMap as this driver has it.
struct Tensor {
  uint64_t address;
  uint32_t rank, elementBytes;
  uint64_t sizes[3], strides[3]; ///< bytes from one to the next; strides[0] is elementBytes
  uint32_t box[3];
  uint32_t swizzled;
};
static_assert(sizeof(Tensor) <= 128);

} // namespace gpt2c::emulated
