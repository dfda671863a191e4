#include "SentSums.h"

#include "templates/exchange/Exchange.h"
#include "templates/linear/tma/LinearTma.h"
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace gpt2c::exchange {

namespace {

constexpr int mostRows = 300;

/// Who adds the sums: a launch behind the product, its tiles, or of some rows each rank for all,
/// before a product of the result.
enum class Form { Sends, Receives, Scatters };

/// y[rows, n] = the sum over ranks of x[rows, k] w[n, k]^T, rounded for each rank, + bias +
/// residual.
struct Product {
  std::string name;
  Store type;
  int n, k;
  bool adds;      ///< a bias and a residual
  int statistics; ///< of so many columns; 0: none
  int xRows, bn;  ///< of boxes
  Form form;
  std::function<Grid(int rows)> grid;
  KernelSource product, sum;
  size_t first = 0; ///< of the kernels: product, sum, reader
  /// Scatters: z[rows, readerN] = y w[readerN, n]^T, with statistics of y normed.
  KernelSource reader = {};
  std::function<Grid(int rows)> readerGrid = {};
};
constexpr int readerN = 72;
constexpr float epsilon = 0.1F;

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
    // Rows that each rank ends: whole tiles, columns outside, both warpgroups.
    form_ = Form::Scatters;
    add(bf16, 64 * drawn(1, 5), true, true, LinearTmaPersistentConfig{.bn = 128, .stages = 2});
    add(f16, 192, true, true, LinearTmaPersistentConfig{.bn = 192, .stages = 2, .rasterGroup = 2});
    add(f16, 64 * drawn(4, 6), false, false, LinearTmaPersistentConfig{.bn = 192, .stages = 3});
    add(f16, 400, true, true,
        LinearTmaPersistentConfig{.bn = 200, .stages = 2, .cooperative = true});
    add(bf16, 64 * drawn(1, 6), true, true,
        LinearTmaPersistentConfig{.bn = 256, .stages = 2, .cooperative = true});
    // Tiles that receive: whole ones, columns outside, parts of K.
    form_ = Form::Receives;
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
    const bool inTiles = form_ != Form::Sends;
    c.statistics = inTiles && statistics;
    Product p{nameOf(c), type, n, c.k, adds, statistics ? 32 : 0, c.bm, c.bn, form_, {}, {}, {}};
    constexpr llvm::StringLiteral does[] = {" sends", " receives", " scatters"};
    p.name += (does[size_t(form_)] + (type == Store::F16 ? " f16" : " bf16") +
               " n=" + std::to_string(n) + " k=" + std::to_string(c.k))
                  .str();
    if constexpr (requires { c.xRows; })
      p.xRows = xRowsOf(c);
    p.grid = [=](int rows) { return gridOf(c, rt::constantExpr(rows), n, 3); };
    const std::string number = std::to_string(list_.size());
    constexpr EpilogueStage::Kind ends[] = {EpilogueStage::Send, EpilogueStage::Receive,
                                            EpilogueStage::Scatter};
    EpilogueStage end{.kind = ends[size_t(form_)]};
    end.ranks = ranks_;
    Epilogue epilogue = {end};
    if (inTiles && adds)
      epilogue.insert(epilogue.end(),
                      {{EpilogueStage::AddBias, c.y}, {EpilogueStage::AddMatrix, c.y}});
    AllReduceConfig sum{.x = c.y, .y = c.y};
    sum.n = n;
    sum.ranks = ranks_;
    sum.statistics = statistics;
    if (adds)
      sum.bias = sum.residual = c.y;
    p.sum = form_ == Form::Receives ? allReduceReceived("sum_" + number, {sum})
                                    : allReduceSent("sum_" + number, {sum});
    if constexpr (std::is_same_v<Config, LinearTmaConfig>) {
      p.product = linearTma("product_" + number, c, epilogue);
    } else {
      p.product = linearTmaPersistent("product_" + number, c, epilogue);
      if (form_ == Form::Scatters)
        addReader(p, c, epilogue, number);
    }
    list_.push_back(std::move(p));
  }

  void addReader(Product &p, const LinearTmaPersistentConfig &c, const Epilogue &epilogue,
                 const std::string &number) {
    p.sum = linearTmaPersistentEnd("sum_" + number, c, epilogue);
    LinearTmaPersistentConfig reader{.y = c.y, .bn = 96, .stages = 2};
    reader.w = c.w;
    reader.n = readerN;
    reader.k = p.n;
    if (c.statistics) {
      p.statistics = reader.normWidth = statisticsWidth(c);
      reader.normParts = p.n / reader.normWidth;
    }
    p.reader = linearTmaPersistent("reader_" + number, reader, {}, true);
    p.readerGrid = [=](int rows) { return gridOf(reader, rt::constantExpr(rows), readerN, 3); };
  }

  int ranks_;
  std::mt19937 &random_;
  Form form_ = Form::Sends;
  std::vector<Product> list_;
};

/// A product of so many rows: what each rank gives, and what all must have then.
struct Case {
  const Product *of;
  int rows;
  std::vector<std::vector<uint32_t>> x, w; ///< of each rank
  std::vector<uint32_t> bias, residual, readerW;
  std::vector<double> want, bound;
  size_t count() const { return size_t(rows) * size_t(of->n); }
  size_t parts() const { return size_t(of->n) / size_t(of->statistics); } ///< of a row's statistics
};

std::vector<uint32_t> values(Store type, size_t count, double deviation, std::mt19937 &random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<uint32_t> bits(count);
  for (uint32_t &b : bits)
    b = bitsOf(type, normal(random));
  return bits;
}

std::vector<double> floats(Store type, llvm::ArrayRef<uint32_t> bits) {
  std::vector<double> list;
  for (const uint32_t b : bits)
    list.push_back(valueOf(type, b));
  return list;
}

/// Adds the sums of rank r: what rounding them and summing them up in fp32 may be off by.
void addPartial(Case &c, size_t r, double rounding) {
  const size_t n = size_t(c.of->n), k = size_t(c.of->k);
  const std::vector<double> x = floats(c.of->type, c.x[r]), w = floats(c.of->type, c.w[r]);
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
  const Product &p = products[random() % products.size()];
  Case c{&p, 1 + int(random() % (random() % 2 ? 40 : mostRows)), {}, {}, {}, {}, {}, {}, {}};
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
  if (p.form == Form::Scatters)
    c.readerW = values(p.type, size_t(readerN) * size_t(p.n), 1 / std::sqrt(p.n), random);
  for (size_t i = 0; i < c.count(); ++i) {
    if (p.adds)
      c.want[i] += valueOf(p.type, c.bias[i % size_t(p.n)]) + valueOf(p.type, c.residual[i]);
    c.bound[i] += 1e-6 * (2 + std::fabs(c.want[i]));
  }
  return c;
}

/// What other ranks write of a rank's, laid out alike on all.
class Arena {
public:
  explicit Arena(CUdeviceptr base) : next_(base) {}
  CUdeviceptr take(size_t bytes) { return std::exchange(next_, next_ + (bytes + 255) / 256 * 256); }

private:
  CUdeviceptr next_;
};

/// A case on a rank's device.
struct Placed {
  DeviceMemory x, w, bias, residual, readerW, readerSums, z;
  CUdeviceptr y, statistics = 0;

  Placed(Rank &rank, const Case &c, size_t r, Arena &arena)
      : x(rank.memory(c.of->type, c.x[r])), w(rank.memory(c.of->type, c.w[r])) {
    const Store type = c.of->type;
    if (c.of->adds) {
      bias = rank.memory(type, c.bias);
      residual = rank.memory(type, c.residual);
    }
    const std::vector<uint32_t> none(c.count(), bitsOf(type, NAN));
    y = arena.take(c.count() * bytesOf(type));
    rank.write(type, y, none);
    if (c.of->statistics) {
      const std::vector<uint32_t> unknown(2 * c.parts() * size_t(c.rows), bitsOf(Store::F32, NAN));
      statistics = arena.take(unknown.size() * 4);
      rank.write(Store::F32, statistics, unknown);
    }
    if (c.of->form == Form::Scatters)
      placeReader(rank, c);
  }
  void placeReader(Rank &rank, const Case &c) {
    const size_t n = size_t(c.of->n);
    readerW = rank.memory(c.of->type, c.readerW);
    std::vector<uint32_t> sums;
    const std::vector<double> w = floats(c.of->type, c.readerW);
    for (size_t i = 0; i < readerN; ++i)
      sums.push_back(bitsOf(Store::F32, std::accumulate(&w[i * n], &w[i * n] + n, 0.0)));
    readerSums = rank.memory(Store::F32, sums);
    z = rank.memory(c.of->type, std::vector<uint32_t>(size_t(c.rows) * readerN));
  }
  void launch(Rank &rank, const Case &c) const {
    const Product &p = *c.of;
    const CUdeviceptr stored = p.form == Form::Sends ? 0 : y;
    const Arguments arguments = {{"xMap", MapOf{x.address(), c.rows, p.k, p.xRows}},
                                 {"wMap", MapOf{w.address(), p.n, p.k, p.bn}},
                                 {"y", stored},
                                 {"m", c.rows},
                                 {"backwards", p.form == Form::Scatters ? 0 : c.rows % 2},
                                 {"e0", bias.address()},
                                 {"e1", residual.address()},
                                 {"yStatistics", statistics}};
    rank.launch(p.first, p.grid(c.rows), arguments);
    const bool apart = rank.end().areApart();
    if (p.form == Form::Scatters) {
      // What reads the rows waits for those of other ranks, or a launch in front of it.
      if (!apart || c.rows % 4 == 0)
        rank.launch(p.first + 1, blocks(rt::constantExpr(2)), arguments);
      rank.launch(p.first + 2, p.readerGrid(c.rows),
                  {{"xMap", MapOf{y, c.rows, p.n, 128}},
                   {"wMap", MapOf{readerW.address(), readerN, p.n, 96}},
                   {"y", z.address()},
                   {"m", c.rows},
                   {"backwards", 0},
                   {"xStatistics", statistics},
                   {"rowSums", readerSums.address()},
                   {"epsilon", std::bit_cast<int>(epsilon)}});
      return;
    }
    if (p.form == Form::Receives && apart)
      return;
    const plan::ExprT count = rt::constantExpr(int64_t(c.count()));
    rank.launch(p.first + 1,
                p.form == Form::Receives ? exchangeGrid(ceilDivExpr(count, 2)) : sentGrid(count, 3),
                {{"bias", bias.address()},
                 {"residual", residual.address()},
                 {"y", y},
                 {"statistics", statistics},
                 {"rows", c.rows}});
  }
};

/// The mean of each part of a row and the sum of squares around it, before they are rounded.
void checkStatistics(Rank &rank, const Case &c, const Placed &p) {
  const size_t n = size_t(c.of->n), rows = size_t(c.rows);
  const int width = c.of->statistics;
  const std::vector<uint32_t> got =
      rank.read(Store::F32, p.statistics, 2 * c.parts() * size_t(c.rows));
  for (size_t part = 0; part < c.parts(); ++part)
    for (size_t row = 0; row < rows; ++row) {
      const double *v = c.want.data() + row * n + part * size_t(width),
                   *off = c.bound.data() + (v - &c.want[0]);
      double mean = 0, ofMean = 1e-6, square = 0, ofSquare = 1e-4;
      for (int i = 0; i < width; ++i) {
        mean += v[i] / width;
        ofMean += off[i] / width;
      }
      for (int i = 0; i < width; ++i) {
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

/// The product of the rows that all ranks have ended, of what they are.
void checkReader(Rank &rank, const Case &c, const Placed &p, llvm::ArrayRef<uint32_t> bits) {
  const Store type = c.of->type;
  const size_t n = size_t(c.of->n);
  const std::vector<double> y = floats(type, bits), w = floats(type, c.readerW),
                            z = floats(type,
                                       rank.read(type, p.z.address(), size_t(c.rows) * readerN));
  const double rounding = type == Store::F16 ? 1.01 / 2048 : 1.01 / 256;
  // Statistics are of what is not rounded yet.
  const double ofStatistics = c.of->statistics ? 4 * rounding : 0;
  for (size_t row = 0; row < size_t(c.rows); ++row) {
    const double *x = &y[row * n];
    double mean = 0, square = 0;
    if (c.of->statistics) {
      mean = std::accumulate(x, x + n, 0.0) / double(n);
      for (size_t i = 0; i < n; ++i)
        square += (x[i] - mean) * (x[i] - mean) / double(n);
    }
    const double scale = c.of->statistics ? 1 / std::sqrt(square + double(epsilon)) : 1;
    for (size_t column = 0; column < readerN; ++column) {
      double want = 0, size = 0;
      for (size_t i = 0; i < n; ++i) {
        want += (x[i] - mean) * scale * w[column * n + i];
        size += std::fabs(x[i] * scale * w[column * n + i]);
      }
      expect(std::fabs(z[row * readerN + column] - want) <=
                 size * 1e-5 + (std::fabs(want) + 1e-3) * rounding + size * ofStatistics,
             c.of->name + ": the product behind, row " + std::to_string(row) + " of " +
                 std::to_string(c.rows) + ", column " + std::to_string(column) + ": " +
                 std::to_string(z[row * readerN + column]) + ", not " + std::to_string(want));
    }
  }
}

/// `arenas`: of each rank.
Place placing(llvm::ArrayRef<Case> cases, llvm::ArrayRef<DeviceMemory> arenas) {
  return [=](size_t r, Rank &rank) {
    auto placed = std::make_shared<std::vector<Placed>>();
    Arena arena(arenas[r].address());
    for (const Case &c : cases)
      placed->emplace_back(rank, c, r, arena);
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
                    if (c.of->form == Form::Scatters)
                      checkReader(rank, c, p, out.back());
                  }
                  return out;
                }};
  };
}

void check(Ranks &ranks, llvm::ArrayRef<Case> cases, llvm::ArrayRef<DeviceMemory> arenas,
           unsigned replays) {
  const auto got = play(ranks, placing(cases, arenas), replays);
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
  std::vector<Product> products = Products(int(devices.size()), random).make();
  llvm::erase_if(
      products, [&](const Product &p) { return p.name.find(options.filter) == std::string::npos; });
  expect(!products.empty(), "there is no product like that");
  std::vector<KernelSource> sources;
  int widest = 0;
  for (Product &p : products) {
    p.first = sources.size();
    sources.push_back(p.product);
    sources.push_back(p.sum);
    if (p.form == Form::Scatters)
      sources.push_back(p.reader);
    widest = std::max(widest, p.n);
  }
  auto image = nvrtc.compile(moduleSource(sources), "sent_sums.cu", arch);
  if (!image)
    throw Failure{toString(image.takeError())};
  auto ends = rt::cuda::Exchange::connect(
      devices, options.patience, uint64_t(llvm::alignTo(mostRows, 128)) * (widest + 255) * 2);
  expectOk(ends.status());
  Ranks ranks;
  for (size_t r = 0; r < devices.size(); ++r)
    ranks.push_back(std::make_unique<Rank>(devices[r], std::move((*ends)[r]), *image, sources));
  std::vector<Case> list;
  for (unsigned i = 0; i < options.launches; ++i)
    list.push_back(draw(products, devices.size(), random));
  size_t bytes = 0;
  for (const Case &c : list)
    bytes += 4 * c.count() + 512;
  std::vector<DeviceMemory> arenas;
  std::vector<rt::cuda::Exchange::Memory> memory;
  for (const auto &rank : ranks) {
    auto arena = rank->device().allocate(bytes, "results");
    expectOk(arena.status());
    memory.push_back({.arena = arena->address()});
    arenas.push_back(arena.take());
  }
  for (const auto &rank : ranks)
    expectOk(rank->end().setMemory(memory));
  check(ranks, list, arenas, 0);
  llvm::outs() << list.size() << " products whose sums ranks exchange\n";
  list.resize(std::min<size_t>(list.size(), 4));
  check(ranks, list, arenas, 2);
  llvm::outs() << "a graph of " << list.size() << " of them, twice\n";
  expectFault(ranks, placing(list[0], arenas));
  llvm::outs() << "a rank that does not come to a product\n";
}

} // namespace gpt2c::exchange
