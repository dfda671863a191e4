// What the compiler knows of a kernel: one record per kernel, as OpInfo is one per op. A family is
// a list of records in order of preference; all kernels of a family compute the same problem.
#pragma once

#include "schedule/Target.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <any>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

template <typename Problem, typename Launch> class Kernel;

/// A kernel in one of its configurations.
template <typename Problem, typename Launch> struct Candidate {
  const Kernel<Problem, Launch> *kernel = nullptr;
  std::string name = {}; ///< kernel and tile, as tuning files and gpt2c-dump name them
  std::optional<double> microseconds = {}; ///< where there is a model of its costs
  std::any config = {};
  std::string order = {}; ///< of its sums, see KernelRecord; empty where nobody asked

  /// Null: it is of another type.
  template <typename Config> const Config *get() const { return std::any_cast<Config>(&config); }
};

/// A kernel, whatever the type of its configurations. `Problem` is what decides whether it can
/// compute something and how well, `Launch` where a launch of it goes.
template <typename Problem, typename Launch> class Kernel {
public:
  using Candidates = std::vector<Candidate<Problem, Launch>>;

  virtual ~Kernel() = default;
  virtual llvm::StringRef name() const = 0;
  /// A line of the generated table.
  virtual llvm::StringRef summary() const = 0;
  /// What it needs of the machine.
  virtual Features needs() const = 0;
  /// Of what a problem may want all that it does: what is not listed it refuses.
  virtual Abilities<typename Problem::Ability> can() const = 0;
  /// Why it cannot compute the problem with all that is wanted beside; empty: it can.
  virtual std::string refusal(const Problem &p) const = 0;
  /// Why it is not taken where it could, measured; empty: it is, unless a kernel before it is.
  virtual std::string slower(const Problem &p) const = 0;
  /// Whether the tuner considers it, too, where the kernel of that name is taken.
  virtual bool rivals(const Problem &p, llvm::StringRef leader) const = 0;
  /// Its configurations, the cost model's choice first; none only where it refuses.
  virtual Candidates candidates(const Problem &p) const = 0;
  /// What it takes for a problem that it computes, as other kernels may be asked, too; none: there
  /// is no model of that.
  virtual std::optional<double> microseconds(const Problem &p) const = 0;
  /// The same with the order of its sums.
  virtual Candidates orderedCandidates(const Problem &p) const = 0;
  /// Columns of a part of the statistics of its result's rows that it leaves; 0: it leaves none.
  virtual int statisticsWidth(const std::any &config) const = 0;
  virtual llvm::Error emit(Launch &launch, const std::any &config) const = 0;
};

/// How a kernel is written down. What may be null says so.
template <typename Problem, typename Launch, typename Config> struct KernelRecord {
  llvm::StringLiteral name, summary;
  Features needs = {}; ///< of the machine
  Abilities<typename Problem::Ability> can;
  /// Sizes that it cannot compute, or has no room for; null: it takes all.
  std::string (*refusal)(const Problem &) = nullptr;
  std::string (*slower)(const Problem &) = nullptr;                  ///< null: never
  bool (*rivals)(const Problem &, llvm::StringRef leader) = nullptr; ///< null: never
  std::vector<Config> (*configs)(const Problem &);
  double (*cost)(const Config &, const Problem &) = nullptr; ///< microseconds; null: no model
  /// Microseconds of what is taken for a problem, to be compared with other kernels'; null: none.
  std::optional<double> (*microseconds)(const Problem &) = nullptr;
  llvm::Error (*emit)(Launch &, const Config &);
  /// In which order an element of the result is summed up, and what else its bits depend on: of two
  /// configurations with the same text, of this kernel or of another, the element has the same bits
  /// for the same row, whatever other rows there are. Null: those of one kernel and name alone.
  std::string (*sumOrder)(const Config &, const Problem &) = nullptr;
  int (*statisticsWidth)(const Config &) = nullptr; ///< null: it leaves no statistics
};

template <typename Problem, typename Launch, typename Config>
class KernelOf final : public Kernel<Problem, Launch> {
public:
  explicit KernelOf(KernelRecord<Problem, Launch, Config> record) : r_(record) {}

  llvm::StringRef name() const override { return r_.name; }
  llvm::StringRef summary() const override { return r_.summary; }
  std::string refusal(const Problem &p) const override {
    if (const Features missing = r_.needs - targetOf(p).features; !missing.empty())
      return "machines without " + missing.names();
    if (const auto missing = p.wants() - r_.can; !missing.empty())
      return missing.names();
    return r_.refusal ? r_.refusal(p) : "";
  }
  Features needs() const override { return r_.needs; }
  Abilities<typename Problem::Ability> can() const override { return r_.can; }
  std::string slower(const Problem &p) const override { return r_.slower ? r_.slower(p) : ""; }
  bool rivals(const Problem &p, llvm::StringRef leader) const override {
    return r_.rivals && r_.rivals(p, leader);
  }
  std::vector<Candidate<Problem, Launch>> candidates(const Problem &p) const override {
    std::vector<Candidate<Problem, Launch>> list;
    for (const Config &c : r_.configs(p))
      list.push_back({this, nameOf(c), r_.cost ? std::optional(r_.cost(c, p)) : std::nullopt, c});
    return list;
  }
  std::optional<double> microseconds(const Problem &p) const override {
    return r_.microseconds ? r_.microseconds(p) : std::nullopt;
  }
  std::vector<Candidate<Problem, Launch>> orderedCandidates(const Problem &p) const override {
    auto list = candidates(p);
    for (auto &c : list)
      c.order = r_.sumOrder ? r_.sumOrder(*std::any_cast<Config>(&c.config), p) : c.name;
    return list;
  }
  int statisticsWidth(const std::any &config) const override {
    return r_.statisticsWidth ? r_.statisticsWidth(*std::any_cast<Config>(&config)) : 0;
  }
  llvm::Error emit(Launch &launch, const std::any &config) const override {
    return r_.emit(launch, *std::any_cast<Config>(&config));
  }

private:
  KernelRecord<Problem, Launch, Config> r_;
};

/// The first kernel of a family that can compute `plain`, which is `p` without anything fused, and
/// is not known to be slower than another for p; null: none.
template <typename Problem, typename Launch>
const Kernel<Problem, Launch> *leaderOf(llvm::ArrayRef<const Kernel<Problem, Launch> *> family,
                                        const Problem &plain, const Problem &p) {
  auto it = llvm::find_if(
      family, [&](const auto *k) { return k->refusal(plain).empty() && k->slower(p).empty(); });
  return it == family.end() ? nullptr : *it;
}

/// Every kernel and configuration that may compute a problem, the choice of the cost model first.
/// `plain` is the problem without anything fused: the kernel that is taken for it, or a rival of
/// that, has to take the rest as well. None: no kernel does.
template <typename Problem, typename Launch>
std::vector<Candidate<Problem, Launch>>
candidatesOf(llvm::ArrayRef<const Kernel<Problem, Launch> *> family, const Problem &plain,
             const Problem &p) {
  std::vector<Candidate<Problem, Launch>> list;
  const Kernel<Problem, Launch> *leader = leaderOf(family, plain, p);
  if (!leader)
    return list;
  auto add = [&](const Kernel<Problem, Launch> &k) {
    if (k.refusal(p).empty())
      llvm::append_range(list, k.candidates(p));
  };
  add(*leader);
  llvm::SmallVector<const Kernel<Problem, Launch> *> rivals;
  for (const Kernel<Problem, Launch> *k : family)
    if (k != leader && k->rivals(plain, leader->name()) && k->refusal(p).empty())
      rivals.push_back(k);
  // Where the leader cannot, the cheapest rival is taken, if all have an estimate.
  if (list.empty() && llvm::all_of(rivals, [&](const auto *k) { return k->microseconds(p); }))
    llvm::stable_sort(rivals, [&](const auto *a, const auto *b) {
      return *a->microseconds(p) < *b->microseconds(p);
    });
  for (const Kernel<Problem, Launch> *k : rivals)
    add(*k);
  return list;
}

/// A word of a problem's text that says nothing; `example`: a text that does.
inline llvm::Error unknownWord(llvm::StringRef word, llvm::StringRef what,
                               llvm::StringRef example) {
  return llvm::createStringError(
      llvm::inconvertibleErrorCode(),
      llvm::formatv("'{0}' is no part of {1}; write, say, {2}", word, what, example).str());
}

/// Every kernel of a family with those of its configurations that are in `list`, which
/// candidatesOf() gave, and their costs, or why it refuses or is not taken.
template <typename Problem, typename Launch>
std::string explainKernels(llvm::ArrayRef<const Kernel<Problem, Launch> *> family,
                           const std::vector<Candidate<Problem, Launch>> &list, const Problem &p) {
  std::string out;
  llvm::raw_string_ostream os(out);
  for (const Kernel<Problem, Launch> *k : family) {
    os << k->name() << ": ";
    bool listed = false;
    for (const auto &[i, c] : llvm::enumerate(list)) {
      if (c.kernel != k)
        continue;
      if (!listed)
        os << (list.front().kernel == k ? "taken" : "for the tuner");
      os << "\n  " << (i == 0 ? "* " : "  ") << c.name;
      if (c.microseconds)
        os << llvm::formatv("  {0:F2} us", *c.microseconds);
      if (!c.order.empty())
        os << "  sums: " << c.order;
      listed = true;
    }
    if (!listed) {
      const std::string refusal = k->refusal(p), slower = k->slower(p);
      os << (!refusal.empty()  ? "refuses: " + refusal
             : !slower.empty() ? "not taken: " + slower
                               : "not taken: a kernel before it is");
    }
    os << "\n";
  }
  return out;
}

} // namespace gpt2c
