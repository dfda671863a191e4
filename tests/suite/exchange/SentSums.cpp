#include "SentSums.h"

#include "templates/exchange/Exchange.h"
#include "templates/linear/tma/LinearTma.h"
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <random>

namespace gpt2c::exchange {

namespace {

constexpr int mostRows = 300;

/// y[rows, n] = the sum over ranks of x[rows, k] w[n, k]^T, rounded for each rank, + bias +
/// residual.
struct Product {
  std::string name;
  Store type;
  int n, k;
  bool adds, statistics; ///< a bias and a residual; statistics of 32 columns
  int xRows, bn;         ///< of boxes
  bool receives;         ///< its tiles add the sums of all ranks
  std::function<Grid(int rows)> grid;
  KernelSource product, sum;
};

class Products {
public:
  Products(int ranks, std::mt19937 &random) : ranks_(ranks), random_(random) {}

  std::vector<Product> make() {
    const auto f16 = Store::F16, bf16 = Store::BF16;
    // Lines of shared memory, rows of quads, columns outside of the last tile, parts of K.
    add(f16, 8 * drawn(4, 30), true, false, LinearTmaConfig{.bm = 64, .bn = 48, .stages = 3});
    add(f16, 32 * drawn(2, 6), true, true, LinearTmaConfig{.bm = 64, .bn = 32, .stages = 4});
    add(bf16, 32 * drawn(2, 6), true, true,
        LinearTmaConfig{.bm = 64, .bn = 64, .stages = 3, .splitK = 2});
    add(bf16, 8 * drawn(4, 30), false, false, LinearTmaConfig{.bm = 128, .bn = 96, .stages = 2});
    add(f16, 8 * drawn(4, 40), true, false, LinearTmaPersistentConfig{.bn = 96, .stages = 3});
    add(bf16, 64 * drawn(1, 5), true, true, LinearTmaPersistentConfig{.bn = 128, .stages = 2});
    add(f16, 200, false, false,
        LinearTmaPersistentConfig{.bn = 200, .stages = 2, .cooperative = true});
    // Tiles that receive: whole ones, columns outside, parts of K.
    receives_ = true;
    add(f16, 32 * drawn(2, 6), true, true, LinearTmaConfig{.bm = 64, .bn = 32, .stages = 4});
    add(bf16, 8 * drawn(4, 30), false, false, LinearTmaConfig{.bm = 128, .bn = 48, .stages = 2});
    add(f16, 32 * drawn(2, 6), true, true,
        LinearTmaConfig{.bm = 64, .bn = 64, .stages = 3, .splitK = 2});
    add(bf16, 8 * drawn(4, 30), true, false,
        LinearTmaConfig{.bm = 128, .bn = 96, .stages = 2, .splitK = 3});
    return std::move(list_);
  }

private:
  int drawn(int first, int last) { return first + int(random_() % unsigned(last - first + 1)); }

  template <typename Config> void add(Store type, int n, bool adds, bool statistics, Config c) {
    c.y = c.w = exchange::scalarOf(type);
    c.n = n;
    c.k = 8 * drawn(c.splitK > 1 ? 17 : 1, 33);
    if constexpr (requires { c.statistics; })
      c.statistics = receives_ && statistics;
    Product p{nameOf(c), type, n, c.k, adds, statistics, c.bm, c.bn, receives_, {}, {}, {}};
    p.name += std::string(receives_ ? " receives" : " sends") +
              (type == Store::F16 ? " f16" : " bf16") + " n=" + std::to_string(n) +
              " k=" + std::to_string(c.k);
    if constexpr (requires { c.xRows; })
      p.xRows = xRowsOf(c);
    p.grid = [=](int rows) { return gridOf(c, rt::constantExpr(rows), n, 3); };
    const std::string number = std::to_string(list_.size());
    EpilogueStage end{.kind = receives_ ? EpilogueStage::Receive : EpilogueStage::Send};
    end.ranks = ranks_;
    Epilogue epilogue = {end};
    if (receives_ && adds)
      epilogue.insert(epilogue.end(),
                      {{EpilogueStage::AddBias, c.y}, {EpilogueStage::AddMatrix, c.y}});
    if constexpr (std::is_same_v<Config, LinearTmaConfig>)
      p.product = linearTma("product_" + number, c, epilogue);
    else
      p.product = linearTmaPersistent("product_" + number, c, epilogue);
    AllReduceConfig sum{.x = c.y, .y = c.y};
    sum.n = n;
    sum.ranks = ranks_;
    sum.statistics = statistics;
    if (adds)
      sum.bias = sum.residual = c.y;
    p.sum = receives_ ? allReduceReceived("sum_" + number, {sum})
                      : allReduceSent("sum_" + number, {sum});
    list_.push_back(std::move(p));
  }

  int ranks_;
  std::mt19937 &random_;
  bool receives_ = false;
  std::vector<Product> list_;
};

/// A product of so many rows: what each rank gives, and what all must have then.
struct Case {
  const Product *of;
  size_t number; ///< of the product
  int rows;
  std::vector<std::vector<uint32_t>> x, w; ///< of each rank
  std::vector<uint32_t> bias, residual;
  std::vector<double> want, bound;
  size_t count() const { return size_t(rows) * size_t(of->n); }
};

std::vector<uint32_t> values(Store type, size_t count, double deviation, std::mt19937 &random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<uint32_t> bits(count);
  for (uint32_t &b : bits)
    b = bitsOf(type, normal(random));
  return bits;
}

/// Adds the sums of rank r: what rounding them and summing them up in fp32 may be off by.
void addPartial(Case &c, size_t r, double rounding) {
  const size_t n = size_t(c.of->n), k = size_t(c.of->k);
  auto floats = [&](const std::vector<uint32_t> &bits) {
    std::vector<double> list;
    for (const uint32_t b : bits)
      list.push_back(valueOf(c.of->type, b));
    return list;
  };
  const std::vector<double> x = floats(c.x[r]), w = floats(c.w[r]);
  for (size_t i = 0; i < c.count(); ++i) {
    double sum = 0, size = 0;
    for (size_t j = 0; j < k; ++j) {
      const double p = x[i / n * k + j] * w[i % n * k + j];
      sum += p;
      size += std::fabs(p);
    }
    c.want[i] += sum;
    c.bound[i] += size * 2e-6 + std::fabs(sum) * rounding;
  }
}

Case draw(llvm::ArrayRef<Product> products, size_t ranks, std::mt19937 &random) {
  const size_t number = random() % products.size();
  const Product &p = products[number];
  Case c{&p, number, 1 + int(random() % (random() % 2 ? 40 : mostRows)), {}, {}, {}, {}, {}, {}};
  const double rounding = p.type == Store::F16 ? 1.01 / 2048 : 1.01 / 256;
  c.want.resize(c.count());
  c.bound.resize(c.count());
  for (size_t r = 0; r < ranks; ++r) {
    c.x.push_back(values(p.type, size_t(c.rows) * size_t(p.k), 1, random));
    c.w.push_back(values(p.type, size_t(p.n) * size_t(p.k), 1 / std::sqrt(p.k), random));
    addPartial(c, r, rounding);
  }
  if (p.adds) {
    c.bias = values(p.type, size_t(p.n), 1, random);
    c.residual = values(p.type, c.count(), 1, random);
  }
  for (size_t i = 0; i < c.count(); ++i) {
    if (p.adds)
      c.want[i] += valueOf(p.type, c.bias[i % size_t(p.n)]) + valueOf(p.type, c.residual[i]);
    c.bound[i] += 1e-6 * (2 + std::fabs(c.want[i]));
  }
  return c;
}

/// A case on a rank's device.
struct Placed {
  DeviceMemory x, w, bias, residual, y, statistics;

  Placed(Rank &rank, const Case &c, size_t r)
      : x(rank.memory(c.of->type, c.x[r])), w(rank.memory(c.of->type, c.w[r])) {
    const Store type = c.of->type;
    if (c.of->adds) {
      bias = rank.memory(type, c.bias);
      residual = rank.memory(type, c.residual);
    }
    y = rank.memory(type, std::vector<uint32_t>(c.count(), bitsOf(type, NAN)));
    if (c.of->statistics)
      statistics = rank.memory(Store::F32, std::vector<uint32_t>(c.count() / 16));
  }
  void launch(Rank &rank, const Case &c) const {
    const Product &p = *c.of;
    const CUdeviceptr stored = p.receives ? y.address() : 0;
    rank.launch(2 * c.number, p.grid(c.rows),
                {{"xMap", MapOf{x.address(), c.rows, p.k, p.xRows}},
                 {"wMap", MapOf{w.address(), p.n, p.k, p.bn}},
                 {"y", stored},
                 {"m", c.rows},
                 {"backwards", c.rows % 2},
                 {"e0", bias.address()},
                 {"e1", residual.address()},
                 {"yStatistics", statistics.address()}});
    if (p.receives && rank.end().areApart())
      return;
    const plan::ExprT count = rt::constantExpr(int64_t(c.count()));
    rank.launch(2 * c.number + 1,
                p.receives ? exchangeGrid(ceilDivExpr(count, 2)) : sentGrid(count, 3),
                {{"bias", bias.address()},
                 {"residual", residual.address()},
                 {"y", y.address()},
                 {"statistics", statistics.address()},
                 {"rows", c.rows}});
  }
};

/// The mean of each 32 columns of a row and the sum of squares around it, before they are rounded.
void checkStatistics(Rank &rank, const Case &c, const Placed &p) {
  const size_t n = size_t(c.of->n), rows = size_t(c.rows);
  const std::vector<uint32_t> got = rank.read(Store::F32, p.statistics, c.count() / 16);
  for (size_t part = 0; part < n / 32; ++part)
    for (size_t row = 0; row < rows; ++row) {
      const double *v = c.want.data() + row * n + part * 32,
                   *off = c.bound.data() + (v - &c.want[0]);
      double mean = 0, ofMean = 1e-6, square = 0, ofSquare = 1e-4;
      for (int i = 0; i < 32; ++i) {
        mean += v[i] / 32;
        ofMean += off[i] / 32;
      }
      for (int i = 0; i < 32; ++i) {
        const double d = v[i] - mean, e = off[i] + ofMean;
        square += d * d;
        ofSquare += 2 * std::fabs(d) * e + e * e;
      }
      const size_t at = 2 * (part * rows + row);
      expect(std::fabs(valueOf(Store::F32, got[at]) - mean) <= ofMean &&
                 std::fabs(valueOf(Store::F32, got[at + 1]) - square) <= ofSquare,
             c.of->name + ": the statistics of row " + std::to_string(row) + " of " +
                 std::to_string(rows) + ", part " + std::to_string(part));
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
                    if (c.of->statistics)
                      checkStatistics(rank, c, p);
                    out.push_back(rank.read(c.of->type, p.y, c.count()));
                  }
                  return out;
                }};
  };
}

void check(Ranks &ranks, llvm::ArrayRef<Case> cases, unsigned replays) {
  const auto got = play(ranks, placing(cases), replays);
  for (auto [number, c] : llvm::enumerate(cases)) {
    const double rounding = c.of->type == Store::F16 ? 1.01 / 2048 : 1.01 / 256;
    compare(
        got, number, c.of->type, c.want,
        [&](size_t i) { return c.bound[i] + std::fabs(c.want[i]) * rounding; },
        [&](size_t i) {
          return c.of->name + ", row " + std::to_string(i / size_t(c.of->n)) + " of " +
                 std::to_string(c.rows) + ", column " + std::to_string(i % size_t(c.of->n));
        });
  }
}

} // namespace

void checkSentSums(llvm::ArrayRef<std::shared_ptr<CudaDevice>> devices, const Nvrtc &nvrtc,
                   const std::string &arch, const SentOptions &options) {
  std::mt19937 random(options.seed);
  const std::vector<Product> products = Products(int(devices.size()), random).make();
  std::vector<KernelSource> sources;
  int widest = 0;
  for (const Product &p : products) {
    sources.push_back(p.product);
    sources.push_back(p.sum);
    widest = std::max(widest, p.n);
  }
  auto image = nvrtc.compile(moduleSource(sources), "sent_sums.cu", arch);
  if (!image)
    throw Failure{toString(image.takeError())};
  auto ends =
      rt::cuda::Exchange::connect(devices, options.patience, uint64_t(mostRows) * widest * 2);
  expectOk(ends.status());
  Ranks ranks;
  for (size_t r = 0; r < devices.size(); ++r)
    ranks.push_back(std::make_unique<Rank>(devices[r], std::move((*ends)[r]), *image, sources));
  std::vector<Case> list;
  for (unsigned i = 0; i < options.launches; ++i)
    list.push_back(draw(products, devices.size(), random));
  check(ranks, list, 0);
  llvm::outs() << list.size() << " products whose sums ranks exchange\n";
  list.resize(std::min<size_t>(list.size(), 4));
  check(ranks, list, 2);
  llvm::outs() << "a graph of " << list.size() << " of them, twice\n";
  expectFault(ranks, placing(list[0]));
  llvm::outs() << "a rank that does not come to a product\n";
}

} // namespace gpt2c::exchange
