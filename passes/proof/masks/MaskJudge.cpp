#include "passes/proof/masks/MaskJudge.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <cmath>

namespace gpt2c {

/// Whether a score is hidden by what takes its place or is added to it.
static bool hides(double added) { return added <= -underflowBound; }

static std::string ofQuery(const MaskTable &t, int64_t h, int64_t q) {
  return "query " + std::to_string(q) + " of " + std::to_string(t.size().queries) +
         (t.heads() > 1 ? " in head " + std::to_string(h) : "");
}

double MaskJudge::highestScore() const {
  double most = INFINITY;
  if (!std::isinf(selected_))
    most = std::min(most, (-selected_ - underflowBound) / std::abs(scale_));
  if (!std::isinf(added_))
    most = std::min(most, (-added_ - underflowBound) / (2 * std::abs(scale_)));
  return most;
}

/// The op that scales, or else masks.
const Op *MaskJudge::blamed(bool factor) const {
  const Op *op = nullptr;
  for (unsigned i : which_.set_bits()) {
    const ScoreStep &s = path_.steps[i];
    bool scales = s.kind == ScoreStep::Multiply || s.kind == ScoreStep::Divide;
    if (scales == factor || !op)
      op = s.op;
  }
  return op;
}

bool MaskJudge::fails(std::string reason, const char *attribute) {
  reason_ = std::move(reason);
  reason_.op = blamed(llvm::StringRef(attribute) == "scale");
  reason_.attribute = attribute;
  none_ = causal_ = false;
  return false;
}

/// Scores that are seen are scaled by one number, and nothing is added to them.
bool MaskJudge::scores(const MaskTable &t, int64_t h, int64_t q) {
  for (size_t k = 0; k < factor_.size(); ++k) {
    const double a = factor_[k], b = addend_[k];
    if (hides(b)) {
      if (!isLowest(b, path_.precision))
        (a == 0 ? selected_ : added_) = std::max(a == 0 ? selected_ : added_, b);
      continue;
    }
    if (scale_ == 0)
      scale_ = a;
    if (a != 0 && std::abs(a - scale_) <= 1e-9 * std::abs(scale_) && std::abs(b) <= 1e-9)
      continue;
    std::string place = "the score of " + ofQuery(t, h, q) + " and key " + std::to_string(k);
    if (std::isnan(a) || std::isnan(b))
      return fails("it makes " + place + " NaN", "mask");
    if (a == 0)
      return fails("it puts " + shortNumber(b) + " in the place of " + place +
                       ", which does not hide the key",
                   "mask");
    if (std::abs(b) > 1e-9)
      return fails("it adds " + shortNumber(b) + " to " + place, "mask");
    return fails("it multiplies " + place + " by " + shortNumber(a) + ", others by " +
                     shortNumber(scale_),
                 "scale");
  }
  return true;
}

/// The keys of a window that ends at key `last`; 0 where a row is none.
static int64_t windowOf(llvm::ArrayRef<double> added, int64_t last) {
  int64_t first = 0, keys = int64_t(added.size());
  while (first <= last && hides(added[first]))
    ++first;
  for (int64_t k = first; k < keys; ++k)
    if (hides(added[k]) == (k <= last))
      return 0;
  return last + 1 - first;
}

/// What key `k` is to query `q` against a mask that has it the other way round.
static std::string mismatch(const MaskTable &t, int64_t b, int64_t h, int64_t q, int64_t k,
                            llvm::ArrayRef<double> added) {
  const MaskSize &size = t.size();
  const bool hidden = hides(added[k]);
  bool all = llvm::all_of(llvm::seq<int64_t>(0, size.keys),
                          [&](int64_t key) { return size.shows(b, key); });
  std::string text = (all ? "it " : "under an attention mask it ") +
                     std::string(hidden ? "hides key " : "shows key ") + std::to_string(k) +
                     " of " + std::to_string(size.keys) + (hidden ? " from " : " to ") +
                     ofQuery(t, h, q);
  if (!size.shows(b, k))
    return text + ", which its entry hides";
  const int64_t last = size.past() + q, window = all && hidden ? windowOf(added, last) : 0;
  if (window > 1)
    text += " (a window of " + std::to_string(window) + " keys)";
  return text + (k <= last ? ", which a causal mask shows" : ", which a causal mask hides");
}

/// Whether the row that addend_ has, whose last key is `last`, has a window that fits all rows so
/// far.
bool MaskJudge::findWindow(const MaskTable &t, int64_t b, int64_t last) {
  const MaskSize &size = t.size();
  auto isShown = [&](int64_t k) { return size.shows(b, k); };
  if (!windows_ || window_ || !causal_ || !llvm::all_of(llvm::seq<int64_t>(0, size.keys), isShown))
    return false;
  const int64_t window = windowOf(addend_, last);
  if (window < 1 || window <= farthest_)
    return false;
  window_ = window;
  return true;
}

bool MaskJudge::row(const MaskTable &t, int64_t b, int64_t h, int64_t q) {
  const MaskSize &size = t.size();
  const int64_t last = size.past() + q; // the last key that a causal mask shows
  bool seesAny = false, seesCausal = false;
  auto inside = [&](int64_t k) { return k <= last && (!window_ || k > last - window_); };
  for (int64_t k = 0; k < size.keys && !seesCausal; ++k)
    if (size.shows(b, k)) {
      seesAny = true;
      seesCausal = inside(k);
    }
  if (!seesAny)
    return true;
  t.row(b, h, q, which_, factor_, addend_);
  bool nothing = true;
  int64_t notCausal = -1, notNone = -1;
  for (int64_t k = 0; k < size.keys; ++k) {
    bool hidden = hides(addend_[k]), shown = size.shows(b, k);
    nothing &= hidden;
    if (notNone < 0 && hidden == shown)
      notNone = k;
    if (notCausal < 0 && hidden == (shown && inside(k)))
      notCausal = k;
    if (!hidden && shown && k <= last)
      farthest_ = std::max(farthest_, last - k);
  }
  if (notCausal >= 0 && findWindow(t, b, last))
    notCausal = -1;
  auto drop = [&](bool &fits, int64_t k) {
    if (!fits || k < 0)
      return true;
    fits = false;
    if (none_ || causal_)
      return true;
    const bool counts = !nothing && !hides(addend_[k]) && std::abs(addend_[k]) > 1e-9;
    if (counts && !scores(t, h, q))
      return false;
    return fails(nothing ? ofQuery(t, h, q) + " sees no key" : mismatch(t, b, h, q, k, addend_),
                 "mask");
  };
  if (!drop(none_, notNone) || (seesCausal && !drop(causal_, notCausal)))
    return false;
  return none_ || seesCausal ? scores(t, h, q) : true;
}

bool MaskJudge::see(const MaskTable &t) {
  const MaskSize &size = t.size();
  factor_.resize(size.keys);
  addend_.resize(size.keys);
  const int64_t batches = size.keyMask ? size.batch : t.batches();
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t h = 0; h < t.heads(); ++h)
      for (int64_t q = 0; q < size.queries; ++q)
        if (!row(t, b, h, q))
          return false;
  return true;
}

//===-- rows that see nothing ---------------------------------------------------------------===//

namespace {

/// One row of factors and addends.
struct Row {
  explicit Row(int64_t keys) : factor(keys), added(keys) {}
  void load(const MaskTable &t, int64_t b, int64_t h, int64_t q,
            const llvm::SmallBitVector &which) {
    t.row(b, h, q, which, factor, added);
  }
  bool hidesAll() const { return llvm::all_of(added, hides); }
  bool isZero() const {
    return llvm::all_of(factor, [](double x) { return x == 0; }) &&
           llvm::all_of(added, [](double x) { return x == 0; });
  }
  std::vector<double> factor, added;
};

} // namespace

bool rowsAsInGraph(const ScorePath &path, const llvm::SmallBitVector &steps,
                   const llvm::SmallBitVector &biased, const MaskTable &table,
                   const MaskTable *after, Obstacle &why) {
  const MaskSize &size = table.size();
  Row all(size.keys), others(size.keys), behind(size.keys);
  llvm::SmallBitVector rest = steps, every(path.after.size(), true);
  rest.reset(biased);
  const bool addsOnly =
      llvm::none_of(biased.set_bits(), [&](unsigned i) { return path.steps[i].selects(); });
  const bool floored = llvm::any_of(path.limits, [](const ScoreLimit &l) { return !l.isMin; });
  const bool selectsBehind =
      llvm::all_of(path.after, [](const ScoreStep &s) { return s.selects(); });
  auto fails = [&](const std::string &reason) {
    why = reason;
    why.op = path.after.empty() ? nullptr : path.after.front().op;
    why.attribute = "mask";
    return false;
  };
  auto one = [&](int64_t b, int64_t h, int64_t q) {
    all.load(table, b, h, q, steps);
    if (after)
      behind.load(*after, b, h, q, every);
    // What is hidden is 0, which no factor changes.
    auto unchangedBehind = [&](bool someHidden) {
      for (int64_t k = 0; after && k < size.keys; ++k)
        if (behind.added[k] != 0 || (behind.factor[k] != 1 && !(someHidden && hides(all.added[k]))))
          return fails("the probability of " + ofQuery(table, h, q) + " and key " +
                       std::to_string(k) + " is changed behind the softmax");
      return true;
    };
    for (int64_t k = 0; k < size.keys; ++k)
      if (std::isnan(all.added[k]) || isLowest(-all.added[k], path.precision))
        return fails("it adds " + shortNumber(all.added[k]) + " to the score of " +
                     ofQuery(table, h, q) + " and key " + std::to_string(k) +
                     ", where sums may overflow");
    if (!all.hidesAll())
      return unchangedBehind(true);
    for (int64_t k = 0; k < size.keys; ++k)
      if (!size.shows(b, k))
        return true; // by the key mask
    bool nan = !floored && llvm::all_of(all.added, [](double x) { return std::isinf(x); });
    if ((nan && path.guarded) || (after && behind.isZero() && (selectsBehind || !nan)))
      return true;
    others.load(table, b, h, q, rest);
    if (addsOnly && !nan && llvm::none_of(others.added, hides))
      return unchangedBehind(false);
    return fails(ofQuery(table, h, q) + " sees no key, and its probabilities are " +
                 (nan ? "NaN" : "no zeros"));
  };
  const int64_t batches = std::max(size.keyMask ? size.batch : table.batches(),
                                   after ? after->batches() : 1),
                heads = std::max(table.heads(), after ? after->heads() : 1);
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < size.queries; ++q)
        if (!one(b, h, q))
          return false;
  return true;
}

} // namespace gpt2c
