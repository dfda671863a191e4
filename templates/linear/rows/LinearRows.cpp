// The record of linear_rows.
#include "templates/linear/rows/LinearRows.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearRowsConfig &c) {
  return llvm::formatv("linear_rows groups={0} warps={1} splits={2}", c.groups, c.warps, c.splits)
      .str();
}

Grid gridOf(const LinearRowsConfig &c, const plan::ExprT &, int64_t n, int64_t) {
  return blocks(c.splits, divideCeilSigned(n, rowsColumns(c)));
}

KernelSource linearRows(llvm::StringRef name, const LinearRowsConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/rows/linear_rows.cuh", "tile::linearRows");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Groups", c.groups);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.constant("V", c.pairs ? 2 : 1);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.flag("WZeros", c.wZeros);
  normMember(w, c.norm);
  if (c.splits > 1)
    w.cluster(c.splits, 1);
  passOperands(w, c.x, c.w, c.y);
  passWeightScales(w, c.wGroup, c.wZeros);
  passNormSums(w, c.norm, c.p);
  w.pass("blockIdx.x, blockIdx.y");
  passShared(w, "float");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearRows");
  w.check("LinearRows", "columns", rowsColumns(c));
  return w.finish(32 * c.warps, rowsSharedBytes(c));
}

namespace linear_rows {

LinearRowsConfig rowsConfig(const LinearProblem &s) {
  LinearRowsConfig c;
  c.y = s.y;
  c.k = s.k;
  c.norm = s.fused.norm;
  c.p = s.fused.gain;
  c.x = s.x;
  c.w = s.w;
  c.wGroup = s.wGroup;
  c.wZeros = s.wZeros;
  c.pairs = s.n % 2 == 0;
  c.rows = powerOfTwoRows(s);
  // Every block reads its part of all rows: more columns a block where there are more than enough.
  if (s.n >= 16 * s.target.multiprocessors)
    c.groups = 2;
  while (s.target.has({Feature::Clusters}) && !s.hasNorm() && c.splits < 4 &&
         s.k >= 1536 * c.splits)
    c.splits *= 2;
  return c;
}

} // namespace linear_rows

/// Of four bits weights are no more than what blocks read of x, each all of K for its columns, and
/// bytes of both count alike.
static double nibblesMicroseconds(const LinearProblem &p) {
  constexpr double bytes = 3.1e6; // a microsecond
  const LinearRowsConfig c = linear_rows::rowsConfig(p);
  const double blocks = double(divideCeilSigned(p.n, rowsColumns(c))),
               rows = blocks * double(p.rows) * double(p.k) * scalarBytes(p.x);
  const TargetRates &rates = p.target.rates;
  return 2.0 * rates.launches() + rates.reads() * (double(p.weightBytes()) + rows) / bytes;
}

/// Whether all floats of a short K are on their way at once: warps ask for those of one round, and
/// in the next one memory rests, but where it has all of two rounds from blocks that are there at
/// the same time, two on a multiprocessor.
static bool areAllOnTheirWay(const LinearRowsConfig &c, const LinearProblem &p) {
  constexpr int64_t chunk = 32, shortK = 1024; // k of a load of a quad
  const int64_t chunks =
                    divideCeilSigned(divideCeilSigned(p.k, chunk), int64_t(c.warps) * c.splits),
                round = std::max(1, (c.rows > 32 ? 4 : 6) / c.groups),
                blocks = divideCeilSigned(p.n, rowsColumns(c)) * c.splits;
  return !isQuantised(p.w) && p.k <= shortK &&
         (chunks <= round || blocks <= 2 * p.target.multiprocessors);
}

double rowsMicroseconds(const LinearProblem &p) {
  if (infoOf(p.w).bits < 8)
    return nibblesMicroseconds(p);
  // Parts of K in several blocks have more on its way, of few rows, too. Weights of a byte are
  // multiplied no sooner than floats, of up to 8 rows a third sooner, and later where their rows
  // are no units of 16 bytes.
  const LinearRowsConfig c = linear_rows::rowsConfig(p);
  const bool split = !rowsAreWhole(p), shortK = areAllOnTheirWay(c, p);
  const double size = !isQuantised(p.w) ? scalarBytes(p.w)
                      : p.k % 16 != 0   ? 2.5
                      : p.rows <= 8     ? 1.3
                                        : 2,
               rate = p.rows > 16 ? (split ? 1.25e6 : 1.75e6)
                      : split     ? 3.5e6
                      : shortK    ? 3.1e6
                                  : 2.1e6;
  // A block reads its part of all rows, too, and where it sums them up, or the sums cross a
  // cluster, that binds.
  const bool reads = p.rows > 16 && (p.hasNorm() || split);
  const double ofBlock =
      reads ? double(p.k) / c.splits * (double(p.rows) * scalarBytes(p.x) + rowsColumns(c) * size)
            : 0.0;
  const TargetRates &rates = p.target.rates;
  return 2.0 * rates.launches() +
         std::max(rates.reads() * double(p.n * p.k) * size / rate, ofBlock / 45e3);
}

bool rowsAreWhole(const LinearProblem &p) { return linear_rows::rowsConfig(p).splits == 1; }

namespace linear_rows {

std::vector<LinearRowsConfig> configs(const LinearProblem &p) {
  const LinearRowsConfig model = rowsConfig(p);
  ConfigList list(model);
  if (p.rows == 1 && p.isNarrow())
    return list.take();
  const bool clusters = p.target.has({Feature::Clusters});
  for (int groups : {1, 2})
    for (int warps : {4, 8, 16})
      for (int splits : {1, 2, 4}) {
        LinearRowsConfig c = model;
        c.groups = groups;
        c.warps = warps;
        c.splits = splits;
        // Registers for the sums; warps without any weights; shared memory that every GPU has.
        if (groups * c.rows > 64 || 32 * warps * splits > c.k || rowsSharedBytes(c) > 64 * 1024 ||
            (splits > 1 && (!clusters || c.norm != NormKind::None || c.k < 768 * splits)) ||
            (splits != model.splits && c.k > 2048 * splits))
          continue;
        list.add(c);
      }
  return list.take();
}

/// Rows up to which splitting K within a block is faster than tiles.
int64_t fewRows(const LinearProblem &p) {
  return p.target.has(wgmmaTiles) && p.isNarrow() ? 32 : 64;
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0 || p.k % 8 != 0 ? "K is no multiple of 8"
         : p.wGroup % 32 != 0     ? "groups of weights that are no multiple of 32"
         : p.rows > 64            ? "more than 64 rows"
                                  : "";
}
std::string slower(const LinearProblem &p) {
  if (p.rows > fewRows(p))
    return "more than " + std::to_string(fewRows(p)) + " rows: tiles";
  if (isVocabularyForStreams(p))
    return "a vocabulary: linear_stream";
  if (areRowsForTiles(p))
    return "tiles cost less: linear_tma";
  // One row of up to 1024 columns takes linear_rows 0.7 to 0.8 of the time of linear_rowdot.
  return p.rows == 1 && p.isNarrow() && p.k > 1024 ? "one row of a long K: linear_rowdot" : "";
}
bool rivals(const LinearProblem &p, llvm::StringRef leader) {
  return leader == "linear_ring" || (leader == "linear_tma" && p.rows <= fewRows(p)) ||
         (p.rows == 1 && leader == "linear_rowdot");
}
llvm::Error emit(LinearLaunch &l, const LinearRowsConfig &c) {
  if (llvm::Error e = l.addNormSums())
    return e;
  return l.launch(linearRows(l.name("linear_rows"), c, l.call.epilogue), c);
}
} // namespace linear_rows

const LinearKernel &linearRowsKernel() {
  using namespace linear_rows;
  static const LinearKernelOf<LinearRowsConfig> kernel({
      .name = "linear_rows",
      .summary = "up to 64 rows in fp16 or bf16, weights in their type, of four bits, or int8 "
                 "beside fp16: K in parts within a block or cluster, a norm folded into the "
                 "epilogue",
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::F16Bytes,
              LinearAbility::FloatSteps, LinearAbility::F16Nibbles, LinearAbility::BF16Nibbles,
              LinearAbility::WeightGroups, LinearAbility::WeightZeros, LinearAbility::NormBySums,
              LinearAbility::NormByStatistics, LinearAbility::NormGain, LinearAbility::Gate,
              LinearAbility::Rotation},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .microseconds =
          [](const LinearProblem &p) {
            return p.rows <= fewRows(p) ? std::optional(rowsMicroseconds(p)) : std::nullopt;
          },
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
