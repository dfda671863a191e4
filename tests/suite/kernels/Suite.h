// Runs kernels against float64 references: every tensor has guard bytes on both sides, every output
// starts as NaN (int8 as -128).
#pragma once

#include "Arguments.h"

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "codegen/Nvrtc.h"
#include "runtime/cuda/CudaDevice.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace gpt2c::kernels {

uint16_t toHalf(double v);
/// "f16", "bf16", "f32", and the same behind a space.
inline std::string typeName(Scalar t) {
  return t == Scalar::F16 ? "f16" : t == Scalar::BF16 ? "bf16" : "f32";
}
inline std::string typeLabel(Scalar t) { return " " + typeName(t); }
/// The most that rounding once changes a number of the type, relative to it; `single` for fp32.
inline double roundingOf(Scalar t, double single) {
  return t == Scalar::F16 ? 1.02 / 2048 : t == Scalar::BF16 ? 1.02 / 256 : single;
}
double fromHalf(uint16_t bits);
/// The value a tensor of that type stores for v.
double rounded(double v, Scalar type);
/// What a kernel is told of a scale that is given; what v becomes, and what that is before it is
/// rounded.
constexpr float givenInverse = 11.7F, givenZero = -37;
double givenInteger(Given given, double v);
double givenValue(Given given, double v);
/// What rounding to the steps of a quantised type changes v at most.
double halfStep(Scalar type, double v);

/// Fails the running case; caught by the suite.
struct CaseFailure {
  std::string message;
};

/// A tensor on the device. `values` are what the kernel sees.
struct Tensor {
  Scalar type = Scalar::F32;
  std::vector<double> values;
  rt::cuda::DeviceMemory memory;
  uint64_t address = 0; ///< of the first element, 16-byte aligned
  size_t bytes = 0;
};

/// Sets the parameters that tell a kernel of a scale that is given.
void setGiven(Given given, Arguments &arguments);
/// The numbers of blocks; a grid whose sizes are not all constants fails the case.
std::array<unsigned, 3> blocksOf(const Grid &grid);

class Suite;

/// What a case's body works with.
class Run {
public:
  Run(Suite &suite, uint32_t seed) : suite_(suite), random_(seed) {}

  /// There is no GPU: launches look whether their arguments fit the kernel. All inputs are zeros,
  /// results too, and nothing is compared, so references need not be computed.
  bool isDry() const;

  std::vector<double> normal(size_t count, double deviation = 1.0);
  std::vector<int> integers(size_t count, int low, int high);

  Tensor input(std::vector<double> values, Scalar type);
  Tensor output(size_t count, Scalar type);
  Tensor integerInput(const std::vector<int> &values);
  /// Zeroed workspace.
  Tensor zeroed(size_t bytes);

  void launch(int kernel, const Grid &grid, const Arguments &arguments);
  /// Reads the tensor back and checks its guards.
  std::vector<double> read(const Tensor &tensor);
  std::vector<int> readIntegers(const Tensor &tensor);

  /// |got - want| <= relative * |want| + bound[i] for each element; bound may be empty. NaN equals
  /// NaN.
  void expectNear(const Tensor &tensor, std::span<const double> want, double relative,
                  std::span<const double> bound);
  void expectEqual(std::span<const int> got, std::span<const int> want, const char *what);
  void expect(bool condition, const std::string &message);

  /// Largest error seen, as a share of what was allowed.
  double worst = 0;

private:
  Tensor allocate(Scalar type, size_t bytes, const void *contents);
  std::vector<uint8_t> fetch(const Tensor &tensor);
  Suite &suite_;
  std::mt19937 random_;
};

struct CaseName {
  // NOLINTNEXTLINE(google-explicit-constructor): most cases have a name alone
  CaseName(std::string text, double work = 0) : text(std::move(text)), work(work) {}
  CaseName(const char *text) : text(text) {} // NOLINT(google-explicit-constructor)
  std::string text;
  double work = 0; ///< about how many multiplications
};

class Suite {
public:
  /// Adds a kernel to the module `group` and returns its number. `make` is called with the kernel's
  /// name.
  int kernel(const std::string &group, const std::function<KernelSource(llvm::StringRef)> &make);
  /// A case of the kernel added last. With `hopper`, a case that only a GPU for which sm_90a code
  /// is made can run.
  void test(const CaseName &name, std::function<void(Run &)> body, bool hopper = false);

  struct Options {
    std::vector<std::string> filters; ///< texts of which a case's name has one; empty: all cases
    bool smoke = false;               ///< one case of each kernel, a small one of several blocks
    bool oneOfEach = false;           ///< one case of each template, the smallest that is no trifle
    std::string arch;                 ///< empty: the device's own
    std::string kernelCache;          ///< a folder; empty: none
    bool list = false;                ///< the names of the cases alone
    bool checkArguments = false;      ///< dry runs
    bool compileOnly = false;
    std::string keep; ///< with compileOnly: the folder that gets the images
    bool ptx = false;
    unsigned shard = 0, shards = 1; ///< of every `shards` cases that one
  };
  /// Returns the exit code: 0, 1, or 77 without a GPU or NVRTC.
  int run(const Options &options);

private:
  friend class Run;
  struct Kernel {
    std::string group;
    KernelSource source;
    rt::cuda::CUfunction function = nullptr;
    std::string refusal; ///< why the device has no such function
  };
  struct Case {
    std::string name;
    std::string group; ///< of the kernel added last: the one that the case runs
    std::function<void(Run &)> body;
    bool hopper;
    size_t kernel;
    double work;
  };
  /// Leaves of the cases those that `options` ask for.
  void select(const Options &options);
  /// Of the cases with the same key the one with the least work that is `enough`, or else the most.
  template <typename Key> void selectOne(double enough, Key key);
  int list() const;
  int checkArguments();
  /// The numbers of the kernels that the cases launch, by dry runs of them.
  std::set<int> launched();
  /// Compiles the kernels of the cases, of a selection those alone that it launches, a module for
  /// each group.
  bool compile(const Nvrtc &nvrtc, const std::string &arch, const Options &options,
               std::map<std::string, std::vector<char>> &images);

  std::vector<Kernel> kernels_;
  /// Kernels have numbers within their group, so that a new one leaves other groups as they are.
  std::map<std::string, int> kernelsOf_;
  std::vector<Case> cases_;
  bool dry_ = false;
  std::set<int> launched_; ///< in dry runs
  std::shared_ptr<rt::cuda::CudaDevice> device_;
  std::map<std::string, rt::cuda::Module> modules_;
};

/// Registers the cases of a file: `static const Cases cases(addCases);`.
class Cases {
public:
  explicit Cases(void (*add)(Suite &),
                 std::source_location where = std::source_location::current());
};
/// Adds the cases of all files, in the order of the files' names.
void addAllCases(Suite &suite);

} // namespace gpt2c::kernels
