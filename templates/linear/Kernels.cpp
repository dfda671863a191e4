#include "templates/linear/Kernels.h"

#include "ir/ops/QuantizedProduct.h"
#include "templates/linear/ends/EpilogueEnd.h"
#include "templates/linear/parts/TmaTiles.h"
#include "templates/linear/ring/LinearRing.h"
#include "templates/linear/rows/LinearRows.h"

#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

const LinearFamily &linearFamily() {
  static const LinearKernel *const kernels[] = {
#define LINEAR_KERNEL(name) &name##Kernel(),
#include "templates/linear/Kernels.def"
#undef LINEAR_KERNEL
  };
  static const LinearFamily family{llvm::ArrayRef(kernels), productEnds()};
  return family;
}

std::optional<double> tileMicroseconds(const LinearProblem &p) {
  // Tiles have 64 rows.
  if (p.rows < 2 || p.rows > 64 || !p.isNarrow())
    return std::nullopt;
  // A multiprocessor reads no faster than this, all together no faster than memory; blocks of more
  // than one wave leave some idle at last. A block has that much of its weights when its
  // predecessor ends. What `tmaProductCost` says was fitted to more rows.
  const TmaTile tile = bestTmaTile(p);
  return std::visit(
      [&](const auto &c) {
        const double blocks = double(divideCeilSigned(p.n, c.bn) * c.splitK),
                     processors = double(p.target.multiprocessors),
                     rate = blocks > processors ? 3.5e6 : std::min(4.1e6, blocks * 45e3),
                     bytes = std::max(0.0, double(p.weightBytes()) - blocks * 40e3);
        const TargetRates &rates = p.target.rates;
        return std::max({0.83 * tmaProductCost(c, p), 2.5 * rates.launches(),
                         2.3 * rates.launches() + bytes / rate * rates.reads()});
      },
      tile);
}
/// The least of linear_rows and, where it takes so many weights, linear_ring.
static double fewRowsMicroseconds(const LinearProblem &p) {
  const double rows = rowsMicroseconds(p);
  const std::optional<double> ring = p.isHeavy() ? ringMicroseconds(p) : std::nullopt;
  return ring ? std::min(*ring, rows) : rows;
}
/// Estimates are no better than a tenth, which tiles of few rows or light weights have to gain.
static bool areTilesFaster(const LinearProblem &p) {
  const bool certain = p.isHeavy() && p.rows > 16;
  return (p.isHeavy() || p.rows > 16) &&
         (certain ? 1.0 : 1.1) * *tileMicroseconds(p) < fewRowsMicroseconds(p);
}

bool areRowsForTiles(const LinearProblem &p) {
  if (p.rows < 2 || p.rows > 32)
    return false;
  if (!p.isNarrow())
    return p.rows > 16 && linearTmaInt8WeightsKernel().refusal(p.plain()).empty() &&
           (p.fused.statistics || (p.isHeavy() && !ringMicroseconds(p)));
  return p.target.has(wgmmaTiles) && p.k % 8 == 0 && (p.fused.statistics || areTilesFaster(p));
}

std::string wideRefusal(const LinearProblem &p) {
  return !p.isWide()    ? "fewer than 16384 columns"
         : p.hasPairs() ? "no vocabulary: pairs of columns"
                        : "";
}

bool keepsRows(const LinearProblem &p) {
  return linearStreamKernel().refusal(p.plain()).empty() ||
         linearStreamRingKernel().refusal(p.plain()).empty();
}

bool isVocabularyForStreams(const LinearProblem &p) {
  return wideRefusal(p).empty() && (keepsRows(p) || isForStreamTma(p));
}

std::string int8Refusal(const LinearProblem &p) {
  return p.x == Scalar::I8 && p.k >= maxIntegerTerms ? "sums of 2^17 and more products" : "";
}

std::string int8TilesRefusal(const LinearProblem &p) {
  if (std::string why = int8Refusal(p); !why.empty())
    return why;
  return p.k % 16 != 0 ? "K is no multiple of 16"
         : p.int8.group > 0 && p.int8.group != 64 && p.int8.group != 128
             ? "groups of rows that are not of 64 or 128"
             : "";
}

//===-- explain -----------------------------------------------------------------------------===//

std::string explainLinear(const LinearProblem &p) {
  const std::vector<LinearCandidate> list = linearCandidates(p);
  return explainKernels(linearKernels(), list, p) +
         (list.empty()
              ? "No kernel computes it: what is fused becomes a launch of its own, or int8 "
                "becomes floats.\n"
              : "");
}

static llvm::Error unknownProductWord(llvm::StringRef word) {
  return unknownWord(word, "a product",
                     "linear rows=512 n=2304 k=768 f16 x i8 norm statistics best");
}

llvm::Expected<LinearProblem> parseLinearProblem(llvm::StringRef text, const Target &target) {
  LinearShape s{Scalar::F16, Scalar::F16, Scalar::F16, 0, 0, 0};
  s.target = target;
  LinearFusions f;
  Int8Rows int8;
  unsigned types = 0;
  llvm::SmallVector<llvm::StringRef> words;
  text.split(words, ' ', -1, false);
  for (llvm::StringRef word : words) {
    auto [key, value] = word.split('=');
    int64_t number = 0;
    const bool isNumber = !value.empty() && !value.getAsInteger(10, number) && number >= 0;
    const std::optional<DType> type = parseDType(word);
    if (type && scalarOf(*type) == *type && types < 2)
      (types++ == 0 ? s.x : s.w) = *type;
    else if (isNumber && key == "rows")
      s.rows = number;
    else if (isNumber && key == "n")
      s.n = number;
    else if (isNumber && key == "k")
      s.k = number;
    else if (isNumber && key == "w_group")
      s.wGroup = number;
    else if (isNumber && key == "x_group")
      s.xGroup = number;
    else if (isNumber && key == "groups")
      int8.group = number;
    else if (isNumber && key == "y_group")
      int8.yGroup = number;
    else if (word == "w_zeros")
      s.wZeros = true;
    else if (word == "any-rows")
      s.batchInvariant = true;
    else if (word == "norm")
      f.norm = NormKind::Layer, f.plainNorm = true;
    else if (word == "rms_norm")
      f.norm = NormKind::Rms, f.plainNorm = true;
    else if (word == "statistics")
      f.statistics = true;
    else if (word == "best")
      f.best = true;
    else if (const ProductEndKind end = endNamed(word); end != ProductEndKind::None)
      f.end = end;
    else if (word == "residual")
      int8.residual = true;
    // What epilogues have is a matter of no kernel.
    else if (word != "x" && word != "linear" && word != "bias" && !activationNamed(word))
      return unknownProductWord(word);
  }
  if (s.rows <= 0 || s.n <= 0 || s.k <= 0 || types == 1)
    return unknownProductWord(s.rows <= 0 ? "rows=?"
                              : s.n <= 0  ? "n=?"
                              : s.k <= 0  ? "k=?"
                                          : "one type");
  s.y = isQuantised(s.x) ? Scalar::F16 : s.x;
  s.tf32 = s.x == Scalar::F32 && s.w == Scalar::F32 && s.k % 4 == 0;
  LinearProblem p(s, f);
  p.int8 = int8;
  if (p.hasNorm() && wantsNormStatistics(p)) {
    p.fused.normParts = 8;
    p.fused.normWidth = int((s.k + 7) / 8);
  }
  return p;
}

} // namespace gpt2c
