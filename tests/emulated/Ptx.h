// Kernels in PTX as a machine of threads runs them: names of registers, labels and variables are
// resolved, and each instruction has the function that executes it.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt2c::emulated {

/// What is wrong with a module, a launch or an instruction.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Thread;
struct Warp;
struct Function;
struct Instruction;
using Execute = void (*)(Thread &, const Instruction &);
/// Of the lanes of `mask`, which have all arrived.
using ExecuteWarp = void (*)(Warp &, uint32_t mask, const Instruction &);

struct Instruction {
  Execute run = nullptr;         ///< of one thread, or
  ExecuteWarp runWarp = nullptr; ///< of lanes of a warp together
  std::vector<int> o;            ///< operands as in the text: registers, and constants behind them
  int64_t offset = 0;            ///< of the address
  int guard = -1;                ///< a predicate
  bool unless = false;           ///< executed where the guard is false
  int mask = -1;                 ///< operand of runWarp: the lanes; none: all of the warp
  int jump = 0;                  ///< of a branch: to the instruction so far behind this one
  int count = 1;                 ///< elements of a vector; columns of a matrix
  int bytes = 0;                 ///< of an element
  int mode = 0;                  ///< what else the function has to know
  const Function *callee = nullptr;
  int line = 0; ///< of the text
  std::string text;
};

/// A variable that a function or a module declares.
struct Variable {
  enum Space { Global, Shared, Param, Local } space = Global;
  size_t bytes = 0, align = 1;
  uint64_t at = 0; ///< an address (Global, Shared) or an offset from a base register
};

/// What a thread is told of itself.
enum class Special {
  Thread,
  Threads,
  BlockX,
  BlockY,
  BlockZ,
  BlocksX,
  BlocksY,
  BlocksZ,
  Rank,
  Processor
};

/// Registers 0 and 1 have the addresses of parameters and of local memory.
struct Function {
  enum : int { paramBase = 0, localBase = 1, firstRegister = 2 };
  std::string name;
  std::vector<Instruction> code;
  int registers = firstRegister;   ///< the constants follow them
  std::vector<uint64_t> constants; ///< what is behind the registers when a thread begins
  std::vector<std::pair<int, Special>> specials; ///< of the constants, those of the thread
  int time = -1;                                 ///< the constant that has the time; none: -1
  std::vector<Variable> params;
  size_t paramBytes = 0, localBytes = 0;
  size_t sharedBytes = 0; ///< where dynamic shared memory begins
  int64_t result = -1;    ///< offset in local memory of what it returns
  size_t resultBytes = 0;
  unsigned cluster[3] = {1, 1, 1};
  unsigned maxThreads = 1024;
};

struct Module {
  std::map<std::string, Function> functions;
  std::vector<std::vector<char>> globals;
  std::map<std::string, size_t> names; ///< of globals
  /// Throws Error for what is not understood.
  explicit Module(const std::string &text);
  Module(const Module &) = delete;
};

/// Shared memory begins here, so that no variable's address is zero.
constexpr uint32_t sharedOrigin = 1024;

/// Finds what executes an instruction by its name, such as "add.f32", and sets what that needs.
void decode(Instruction &instruction, const std::string &name);

} // namespace gpt2c::emulated
