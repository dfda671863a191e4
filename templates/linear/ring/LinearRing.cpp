// The record of linear_ring.
#include "templates/linear/ring/LinearRing.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"
#include "templates/linear/rows/LinearRows.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearRingConfig &c) {
  return llvm::formatv("linear_ring columns={0} chunks={1} slots={2} splits={3}", c.columns,
                       c.chunks, c.slots, c.splits)
      .str();
}

Grid gridOf(const LinearRingConfig &c, const plan::ExprT &, int64_t n, int64_t) {
  return blocks(c.splits, divideCeilSigned(n, c.columns));
}

KernelSource linearRing(llvm::StringRef name, const LinearRingConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/ring/linear_ring.cuh", "tile::linearRing");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.constant("Chunks", c.chunks);
  w.constant("Slots", c.slots);
  w.constant("Columns", c.columns);
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
  passShared(w, "char");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearRing");
  return w.finish(32 * (c.warps + 1), ringSharedBytes(c));
}

namespace {

/// Pieces of K that a warp has.
int ringPieces(const LinearRingConfig &c) {
  const int inChunk = c.k / (c.splits * c.chunks * ringPiece(c));
  return c.chunks * int(divideCeilSigned(inChunk, c.warps));
}
/// Registers of a thread that X takes, and scales of two pieces.
int ringRegisters(const LinearRingConfig &c) {
  return ringPieces(c) * (ringPiece(c) / 32 * 4 * (c.rows / 8) + (c.wGroup > 0 ? 6 : 0));
}
/// Of these: a thread of eight warps and the one that copies has up to 224, of more fewer.
int mostRegisters(const LinearRingConfig &c) { return c.warps < 8 ? 128 : 80; }

/// Bytes of a slot in a microsecond. Of four bits weights become floats no faster than those of a
/// byte, but for a tenth of the operations, and warps with fewer of them wait for others.
double slotRate(const LinearRingConfig &c) {
  constexpr double rate = 47e3;
  if (c.wGroup == 0)
    return rate;
  return rate / 2 * 1.1 * c.k / (double(ringPieces(c)) * ringPiece(c) * c.warps * c.splits);
}
/// A slot is waited for, multiplied and given back, whatever its size; then its bytes count, of the
/// last one twice: nothing hides what is multiplied behind it. A norm is taken out of the sums of
/// each group of eight columns.
double microsecondsOf(const LinearRingConfig &c, const TargetRates &rates) {
  const double groups = double(divideCeilSigned(c.columns, 8)),
               bytes = ringSlotBytes(c) / slotRate(c) * rates.reads(),
               group = c.norm == NormKind::None ? 0.1 : 0.35;
  return (1.6 * rates.launches() + c.columns / 8.0 * c.chunks * bytes +
          groups * (c.chunks * 0.18 + group) + bytes) *
         (c.rows > 16 ? 1.4 : 1);
}
} // namespace

std::optional<LinearRingConfig> ringConfig(const LinearProblem &p, int splits) {
  LinearRingConfig c;
  c.y = p.y;
  c.k = int(p.k);
  c.norm = p.fused.norm;
  c.p = p.fused.gain;
  c.x = p.x;
  c.w = p.w;
  c.wGroup = int(p.wGroup);
  c.wZeros = p.wZeros;
  c.splits = splits;
  c.rows = powerOfTwoRows(p);
  const int piece = ringPiece(c);
  if (p.k == 0 || p.k % (int64_t(splits) * piece) != 0 || (splits > 1 && c.norm != NormKind::None))
    return std::nullopt;
  // One wave of blocks. Clusters of four do not fit everywhere: some processors stay empty.
  const int64_t blocks =
      splits == 1 ? p.target.multiprocessors : p.target.multiprocessors * 10 / 11 / splits;
  c.columns = int(divideCeilSigned(p.n, blocks));
  if (p.hasPairs()) // pairs of columns for each block that ends some
    c.columns = int(llvm::alignTo(c.columns, 2 * splits));
  // Slots of a size that the ring has several of.
  std::optional<LinearRingConfig> best;
  double least = 0;
  auto consider = [&] {
    if (c.k % (splits * c.chunks * piece) != 0 || ringRegisters(c) > mostRegisters(c))
      return;
    const int all = int(divideCeilSigned(c.columns, 8)) * c.chunks;
    c.slots = 0;
    c.slots = std::min(all, (int(halfShared) - ringOtherBytes(c)) / (ringSlotBytes(c) + 16));
    if (c.slots < std::min(all, 3))
      return;
    const double cost = microsecondsOf(c, p.target.rates) + 0.01 * ringPieces(c);
    if (!best || cost < least) {
      best = c;
      least = cost;
    }
  };
  for (c.chunks = 1; c.k / (splits * c.chunks) >= 384 || c.chunks == 1; ++c.chunks) {
    consider();
    if (p.wGroup > 0) { // pieces are large, and eight warps may have as many each
      c.warps = 8;
      consider();
      c.warps = 7;
    }
  }
  return best;
}

namespace linear_ring {

std::vector<LinearRingConfig> configs(const LinearProblem &p) {
  std::vector<LinearRingConfig> list;
  // Rows that blocks read once for each part of K are less than weights of theirs.
  const int wanted = p.hasNorm() || p.rows <= 8 ? 1 : p.k >= 4096 ? (p.rows <= 16 ? 2 : 4) : 1;
  for (int splits : {wanted, 1, 2, 4})
    if (auto c = ringConfig(p, splits))
      if (llvm::none_of(list, [&](const LinearRingConfig &o) { return nameOf(o) == nameOf(*c); }))
        list.push_back(*c);
  return list;
}

std::string refusal(const LinearProblem &p) {
  return p.rows > 32                             ? "more than 32 rows"
         : p.wGroup > 0 && infoOf(p.w).bits >= 8 ? "groups of weights of a byte"
         : p.wGroup % 32 != 0 || (p.wGroup > 128 && p.wGroup % 128 != 0)
             ? "groups that are no multiple of 32"
         : linear_ring::configs(p).empty() ? "no room for rows in registers or slots"
                                           : "";
}
std::string slower(const LinearProblem &p) {
  if (p.wGroup > 0)
    return rowsMicroseconds(p) <= ringMicroseconds(p).value_or(0) ? "linear_rows costs less" : "";
  if (p.isWide() && !p.hasPairs())
    return "a vocabulary: linear_stream";
  // What linear_rows has on its way at once is enough for fewer weights.
  if (!p.isHeavy())
    return "weights of less than 5 MB";
  if (areRowsForTiles(p))
    return "tiles cost less: linear_tma";
  // No norm is known here, which costs the ring more.
  const bool dearer = p.rows > 1 && p.rows <= 16 && rowsAreWhole(p) &&
                      rowsMicroseconds(p) <= 1.1 * ringMicroseconds(p).value_or(0);
  return dearer ? "linear_rows costs less" : "";
}
bool rivals(const LinearProblem &, llvm::StringRef leader) {
  return leader == "linear_rowdot" || leader == "linear_rows" || leader == "linear_tma";
}
llvm::Error emit(LinearLaunch &l, const LinearRingConfig &c) {
  if (llvm::Error e = l.addNormSums())
    return e;
  return l.launch(linearRing(l.name("linear_ring"), c, l.call.epilogue), c);
}
} // namespace linear_ring

std::optional<double> ringMicroseconds(const LinearProblem &p) {
  const std::vector<LinearRingConfig> list = linear_ring::configs(p);
  return list.empty() ? std::nullopt : std::optional(microsecondsOf(list.front(), p.target.rates));
}

const LinearKernel &linearRingKernel() {
  using namespace linear_ring;
  static const LinearKernelOf<LinearRingConfig> kernel({
      .name = "linear_ring",
      .summary =
          "up to 32 rows in fp16 or bf16, weights in their type, of four bits, or int8 beside "
          "fp16: one wave of blocks, weights by bulk copies into a ring, a norm folded into the "
          "epilogue",
      .needs = wholeClusters,
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
          [](const LinearProblem &p) { return p.rows > 1 ? ringMicroseconds(p) : std::nullopt; },
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
