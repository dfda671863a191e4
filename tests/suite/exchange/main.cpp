// suite_exchange: all_reduce and all_gather among ranks on devices of this machine, launches of
// random sizes one behind the other, alone and as graphs, against float64; products whose sums
// ranks exchange (SentSums.h); and a rank that does not come.
#include "SentSums.h"

#include "codegen/Nvrtc.h"
#include "runtime/plan/Expr.h"
#include "templates/exchange/Exchange.h"
#include "tests/suite/Skip.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cmath>
#include <random>

using namespace gpt2c;
using namespace gpt2c::exchange;
namespace cl = llvm::cl;

static cl::list<int> devices("devices", cl::CommaSeparated,
                             cl::desc("A rank on each of these; one that is named twice is two"));
static cl::opt<std::string> arch("arch", cl::desc("Compile for this one (default: the device's)"));
static cl::opt<unsigned> launches("launches", cl::init(40), cl::desc("How many one after another"));
static cl::opt<unsigned> seed("seed", cl::init(1), cl::desc("Of sizes and values"));
static cl::opt<double> patience("patience", cl::init(1), cl::desc("Seconds of a wait"));
static cl::opt<double> slower("slower", cl::init(1),
                              cl::desc("How much slower the device's clock is than the host's"));

static cl::opt<std::string> filter("filter", cl::desc("Products alone whose names contain this"));

namespace {

/// One kernel of the module and what it computes.
struct Kind {
  std::string name;
  Store x, y;
  bool gathers = false, adds = false; ///< adds: a bias and a residual
  int n = 0;
  bool statistics = false;
  KernelSource source = {};
};

std::vector<Kind> kindsFor(int ranks) {
  std::vector<Kind> kinds = {{"all_reduce f32", Store::F32, Store::F32, false, false, 37},
                             {"all_reduce f32 +", Store::F32, Store::F32, false, true, 64, true},
                             {"all_reduce f16 +", Store::F32, Store::F16, false, true, 129},
                             {"all_reduce bf16 +", Store::F32, Store::BF16, false, true, 48},
                             {"all_reduce of f16", Store::F16, Store::F16, false, false, 33},
                             {"all_gather f32", Store::F32, Store::F32, true, false, 41},
                             {"all_gather bf16", Store::BF16, Store::BF16, true, false, 30}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    Kind &k = kinds[i];
    const std::string name = "kernel_" + std::to_string(i);
    if (k.gathers) {
      k.source = allGather(name, {.wide = k.x == Store::F32, .n = k.n, .ranks = ranks});
      continue;
    }
    AllReduceConfig c{.x = exchange::scalarOf(k.x), .y = exchange::scalarOf(k.y)};
    c.n = k.n;
    c.ranks = ranks;
    c.statistics = k.statistics;
    if (k.adds)
      c.bias = c.residual = c.y;
    k.source = allReduce(name, c);
  }
  return kinds;
}

/// A launch: what each rank gives, and what all must have then.
struct Case {
  const Kind *kind;
  size_t number; ///< of the kernel
  int rows;
  std::vector<std::vector<uint32_t>> x; ///< of each rank
  std::vector<uint32_t> bias, residual;
  std::vector<double> want, bound;
  unsigned blocks = 0; ///< of the launch; 0: as many as in a plan
  size_t count() const { return size_t(rows) * size_t(kind->n); }
  size_t results() const { return kind->gathers ? count() * x.size() : count(); }
  plan::ExprT words() const { return rt::constantExpr(int64_t(count())); }
};

class Cases {
public:
  Cases(llvm::ArrayRef<Kind> kinds, size_t ranks, unsigned seed)
      : kinds_(kinds), ranks_(ranks), random_(seed) {}

  Case draw(int rows) {
    const size_t number = random_() % kinds_.size();
    return draw(&kinds_[number], number, rows);
  }
  Case draw(const Kind *kind, size_t number, int rows) {
    Case c{kind, number, rows, {}, {}, {}, {}, {}, 0};
    for (size_t r = 0; r < ranks_; ++r)
      c.x.push_back(values(c.kind->x, c.count()));
    if (c.kind->adds) {
      c.bias = values(c.kind->y, size_t(c.kind->n));
      c.residual = values(c.kind->y, c.count());
    }
    c.want.resize(c.results());
    c.bound.resize(c.results());
    c.kind->gathers ? gather(c) : reduce(c);
    return c;
  }
  /// Of about so many words by so few blocks that several rounds or tiles are one launch.
  Case drawLong(unsigned words, unsigned blocks) {
    Case c = draw(1);
    c = draw(c.kind, c.number, 1 + int(words) / c.kind->n);
    c.blocks = blocks;
    return c;
  }
  unsigned below(unsigned n) { return random_() % n; }

private:
  std::vector<uint32_t> values(Store type, size_t count) {
    std::normal_distribution<double> normal;
    std::vector<uint32_t> bits(count);
    for (uint32_t &b : bits)
      b = bitsOf(type, normal(random_));
    return bits;
  }
  void gather(Case &c) const {
    const auto n = size_t(c.kind->n);
    for (size_t r = 0; r < ranks_; ++r)
      for (size_t i = 0; i < c.count(); ++i)
        c.want[i / n * n * ranks_ + r * n + i % n] = valueOf(c.kind->x, c.x[r][i]);
  }
  void reduce(Case &c) const {
    const double rounding = c.kind->y == Store::F32   ? 0
                            : c.kind->y == Store::F16 ? 1.01 / 2048
                                                      : 1.01 / 256;
    for (size_t i = 0; i < c.count(); ++i) {
      double sum = 0, size = 0;
      auto add = [&](double v) {
        sum += v;
        size += std::fabs(v);
      };
      for (size_t r = 0; r < ranks_; ++r)
        add(valueOf(c.kind->x, c.x[r][i]));
      if (c.kind->adds) {
        add(valueOf(c.kind->y, c.bias[i % size_t(c.kind->n)]));
        add(valueOf(c.kind->y, c.residual[i]));
      }
      c.want[i] = sum;
      c.bound[i] = size * double(ranks_ + 2) * 0x1p-24 + std::fabs(sum) * rounding + 0x1p-24;
    }
  }

  llvm::ArrayRef<Kind> kinds_;
  size_t ranks_;
  std::mt19937 random_;
};

/// A case on a rank's device.
struct Placed {
  DeviceMemory x, bias, residual, y, statistics; ///< statistics: f32x2[n / 32, rows]

  Placed(Rank &rank, const Case &c, size_t r) : x(rank.memory(c.kind->x, c.x[r])) {
    if (c.kind->adds) {
      bias = rank.memory(c.kind->y, c.bias);
      residual = rank.memory(c.kind->y, c.residual);
    }
    y = rank.memory(c.kind->y, std::vector<uint32_t>(c.results(), bitsOf(c.kind->y, NAN)));
    if (c.kind->statistics)
      statistics = rank.memory(Store::F32, std::vector<uint32_t>(c.count() / 16));
  }
  void launch(Rank &rank, const Case &c) const {
    rank.launch(c.number, c.blocks ? blocks(c.blocks) : exchangeGrid(c.words()),
                {{"x", x.address()},
                 {"bias", bias.address()},
                 {"residual", residual.address()},
                 {"y", y.address()},
                 {"statistics", statistics.address()},
                 {"rows", c.rows}});
  }
};

/// The mean of each 32 columns of a row and the sum of squares around it.
void checkStatistics(Rank &rank, const Case &c, const Placed &p) {
  if (!c.kind->statistics)
    return;
  const std::vector<uint32_t> got = rank.read(Store::F32, p.statistics.address(), c.count() / 16);
  for (size_t part = 0; part < size_t(c.kind->n) / 32; ++part)
    for (size_t row = 0; row < size_t(c.rows); ++row) {
      const double *v = c.want.data() + row * size_t(c.kind->n) + part * 32;
      double mean = 0, square = 0;
      for (int i = 0; i < 32; ++i)
        mean += v[i] / 32;
      for (int i = 0; i < 32; ++i)
        square += (v[i] - mean) * (v[i] - mean);
      const size_t at = 2 * (part * size_t(c.rows) + row);
      expect(std::fabs(valueOf(Store::F32, got[at]) - mean) < 1e-5 &&
                 std::fabs(valueOf(Store::F32, got[at + 1]) - square) < 1e-4 * (1 + square),
             "the statistics of row " + std::to_string(row) + ", part " + std::to_string(part));
    }
}

Place placing(llvm::ArrayRef<Case> cases) {
  return [=](size_t r, Rank &rank) {
    auto placed = std::make_shared<std::vector<Placed>>();
    for (const Case &c : cases)
      placed->emplace_back(rank, c, r);
    return Work{[=, &rank] {
                  for (auto [c, p] : llvm::zip_equal(cases, *placed))
                    p.launch(rank, c);
                },
                [=, &rank] {
                  std::vector<Bits> out;
                  for (auto [c, p] : llvm::zip_equal(cases, *placed)) {
                    checkStatistics(rank, c, p);
                    out.push_back(rank.read(c.kind->y, p.y.address(), c.results()));
                  }
                  return out;
                }};
  };
}

void check(Ranks &ranks, llvm::ArrayRef<Case> cases, unsigned replays) {
  const auto got = play(ranks, placing(cases), replays);
  for (auto [number, c] : llvm::enumerate(cases))
    compare(
        got, number, c.kind->y, c.want, [&](size_t i) { return c.bound[i]; },
        [&](size_t i) {
          return c.kind->name + ", " + std::to_string(c.rows) + " rows, element " +
                 std::to_string(i);
        });
}

/// The wait of expectFault() is one.
void checkFault(Ranks &ranks, const Case &c) {
  const auto begin = std::chrono::steady_clock::now();
  expectFault(ranks, placing(c));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  expect(took.count() < 2 * patience * slower + 1,
         "the wait took " + std::to_string(took.count()) + " s");
}

void run(llvm::ArrayRef<std::shared_ptr<CudaDevice>> on, const Nvrtc &nvrtc) {
  std::string target = arch;
  if (target.empty()) {
    const rt::ComputeCapability c = on[0]->capability();
    target = "sm_" + std::to_string(c.major) + std::to_string(c.minor) + (c.major == 9 ? "a" : "");
  }
  if (!filter.empty())
    return checkSentSums(on, nvrtc, target, {seed, launches, patience, filter});
  const std::vector<Kind> kinds = kindsFor(int(on.size()));
  std::vector<KernelSource> sources;
  for (const Kind &k : kinds)
    sources.push_back(k.source);
  auto image = nvrtc.compile(moduleSource(sources), "exchange.cu", target);
  if (!image)
    throw Failure{toString(image.takeError())};
  auto ends = rt::cuda::Exchange::connect(on, patience);
  expectOk(ends.status());
  Ranks ranks;
  for (size_t r = 0; r < on.size(); ++r)
    ranks.push_back(std::make_unique<Rank>(on[r], std::move((*ends)[r]), *image, sources));
  Cases cases(kinds, on.size(), seed);
  std::vector<Case> list;
  for (unsigned i = 0; i < launches; ++i)
    list.push_back(cases.draw(1 + int(cases.below(i % 4 == 0 ? 60 : 4))));
  check(ranks, list, 0);
  llvm::outs() << list.size() << " launches\n";
  list.resize(std::min<size_t>(list.size(), 5));
  check(ranks, list, 3);
  llvm::outs() << "a graph of " << list.size() << " launches, three times\n";
  // Rounds and tiles, the last of which are not full, and few words between them.
  list.clear();
  for (unsigned i = 0; i < 8; ++i) {
    list.push_back(cases.drawLong(8000 + cases.below(30000), 1 + i % 2));
    list.push_back(cases.draw(1));
  }
  check(ranks, list, 0);
  check(ranks, list, 2);
  llvm::outs() << "launches of several rounds and tiles\n";
  list = {cases.draw(5000), cases.draw(1), cases.draw(4500)};
  check(ranks, list, 0);
  llvm::outs() << "launches of all blocks\n";
  checkFault(ranks, cases.draw(3));
  llvm::outs() << "a rank that does not come\n";
  if (target.starts_with("sm_90a") || target.starts_with("compute_90a"))
    checkSentSums(on, nvrtc, target, {seed, launches, patience, ""});
}

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "kernels of ranks\n");
  std::vector<int> ordinals(devices.begin(), devices.end());
  if (ordinals.empty())
    ordinals = {0, 0};
  std::vector<std::shared_ptr<CudaDevice>> on;
  for (const int ordinal : ordinals) {
    auto device = CudaDevice::open(ordinal);
    if (!device)
      return suite::skipped(device.status().message());
    on.push_back(device.take());
  }
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return suite::skipped(toString(nvrtc.takeError()));
  try {
    run(on, **nvrtc);
  } catch (const Failure &failure) {
    llvm::outs() << "FAIL  " << failure.message << "\n";
    return 1;
  }
  llvm::outs() << "passed\n";
  return 0;
}
