// One comparison, scenario by scenario: they share what the graph has computed before.
#include "verify/CheckPlan.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "verify/Compare.h"
#include "verify/Finding.h"
#include "verify/Loss.h"
#include "verify/Parting.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gpt2c {

/// Tokens that @decode appends, one by one: the second reads what the first left.
constexpr int64_t decodeSteps = 2;

namespace {

class Checker {
public:
  Checker(Reference &reference, const Module &module, PlanRunner &runner,
          const CheckOptions &options, bool float64, CheckReport &report)
      : reference_(reference), graph_(reference.graph()), module_(module), runner_(runner),
        options_(options), float64_(float64), report_(report) {}

  /// An error with the code Quality is about a finding, others about what cannot be run.
  llvm::Error run() {
    if (llvm::Error e = runAll())
      return e;
    return judgeLosses();
  }
  const Finding *finding() const { return finding_ ? &*finding_ : nullptr; }

private:
  llvm::Error runAll() {
    if (!runner_.has(functions::forward))
      report_.unchecked.push_back(named(functions::forward) +
                                  ": the device has no such function of the plan");
    else if (llvm::Error e = checkForward())
      return e;
    bool generates = module_.function(functions::prefill) && module_.function(functions::decode);
    for (llvm::StringRef name : {functions::prefill, functions::decode})
      if (generates && !runner_.has(name)) {
        leaveOut(named(name) + ": the device has no such function of the plan");
        generates = false;
      }
    for (const Round &round : reference_.rounds())
      if (generates && !round.texts.empty() && !leavesOut(round))
        if (llvm::Error e = round.lengths.empty() ? checkGeneration(round) : checkLengths(round))
          return e;
    if (!module_.function(functions::extend))
      return llvm::Error::success();
    if (!runner_.has(functions::extend)) {
      leaveOut(named(functions::extend) + ": the device has no such function of the plan");
      return llvm::Error::success();
    }
    for (const Round &round : reference_.rounds())
      if (!round.texts.empty())
        if (llvm::Error e = checkRows(round))
          return e;
    return llvm::Error::success();
  }

  /// What was found in single precision needs no other look in another.
  bool leavesOut(const Scenario &s) const { return options_.brief && s.structural; }
  bool leavesOut(const Round &r) const { return leavesOut(reference_.scenarios()[r.scenarios[0]]); }
  Arithmetic arithmetic() const { return float64_ ? Arithmetic::Double : Arithmetic::Usual; }
  /// In which the graph itself is off by what rounding may explain of the plan: samples, to be
  /// taken one after the other.
  llvm::ArrayRef<Arithmetic> ownRoundings() const {
    static constexpr Arithmetic stored[] = {Arithmetic::Stored, Arithmetic::Moved,
                                            Arithmetic::MovedOtherwise},
                                rounded[] = {Arithmetic::Rounded};
    if (graph_.isHalf())
      return stored;
    if (float64_)
      return llvm::ArrayRef(stored).take_front();
    if (graph_.isRounded() && options_.narrow != DType::F32)
      return rounded;
    return {};
  }

  std::string precisionText() const { return options_.narrow == DType::F16 ? "fp16" : "bf16"; }
  std::string named(llvm::StringRef function) const {
    return "@" + function.str() + options_.suffix;
  }

  FunctionCheck &entry(llvm::StringRef function) {
    std::string what = named(function);
    auto it = llvm::find_if(report_.checks, [&](auto &c) { return c.what == what; });
    if (it != report_.checks.end())
      return *it;
    report_.checks.push_back({.what = what, .tolerance = options_.tolerance});
    return report_.checks.back();
  }

  void leaveOut(const std::string &what) {
    if (!llvm::is_contained(report_.unchecked, what))
      report_.unchecked.push_back(what);
  }

  /// What failed, and where the two part.
  llvm::Error differs(llvm::StringRef function, const llvm::Twine &what, const Scenario &scenario,
                      int64_t cut, bool lost = false) {
    PartingCall call{function, &scenario.call, scenario.arguments, cut};
    const Parting parting = findParting(graph_, module_, call, options_.tolerance, float64_);
    finding_ = Finding{named(function) + (scenario.what.empty() ? "" : " " + scenario.what) + ", " +
                           what.str() + parting.text,
                       lost, parting.largest};
    return makeError(ExitCode::Quality, finding_->text);
  }

  FunctionCheck &noted(llvm::StringRef function, const Difference &d) {
    FunctionCheck &check = entry(function);
    check.error = std::max(check.error, d.relative);
    check.tolerance = std::max(check.tolerance, options_.tolerance + d.mostExplained);
    return check;
  }

  /// What a tensor is compared with: what the graph gives, in any arithmetic.
  using GivenBy = llvm::function_ref<llvm::Expected<Tensor>(Arithmetic)>;

  /// Takes a comparison into the report. What differs where that is too much; `lost` says whether
  /// numbers are finite on one side alone.
  llvm::Expected<std::optional<std::string>> judge(llvm::StringRef function, llvm::StringRef tensor,
                                                   const Tensor &got, GivenBy expectedBy,
                                                   RowScale scale, bool &lost,
                                                   bool isBfloat = false) {
    const std::string name = tensor.str();
    auto expected = expectedBy(arithmetic());
    if (!expected)
      return expected.takeError();
    if (got.shape() != expected->shape())
      return name + " has another shape";
    Difference d = compareRows(got, *expected, scale);
    const double tolerance = std::max(options_.tolerance, isBfloat ? bfloatRounding : 0);
    std::vector<Tensor> rounded;
    for (Arithmetic sample : ownRoundings()) {
      if (d.beyond <= tolerance || options_.byLoss || (d.lost && sample != Arithmetic::Stored))
        break;
      auto given = expectedBy(sample);
      if (!given)
        return given.takeError();
      rounded.push_back(std::move(*given));
      d = compareRows(got, *expected, scale, rounded);
    }
    if (d.finite == 0 && expected->count() > 0 && !d.lost)
      leaveOut(named(function) + ": all of '" + name +
               "' is NaN or infinite in the exported graph itself");
    if (d.overflows)
      leaveOut(named(function) + ": the export's own half precision overflows in some rows of '" +
               name + "', as the plan does");
    lost = d.lost;
    if (d.lost) {
      entry(function).error = d.relative;
      return "NaN or infinity on one side alone at " + describeElement(name, got.shape(), d);
    }
    if (options_.byLoss) {
      entry(function);
      losses_[{function.str(), scale == RowScale::Logits ? "logits" : name}].add(got, *expected,
                                                                                 scale);
      return std::nullopt;
    }
    noted(function, d);
    if (d.mostExplained > 0.5)
      leaveOut(named(function) + ": " +
               (ownRoundings().front() == Arithmetic::Rounded
                    ? precisionText() + " of the graph itself"
                    : "the export's own half precision") +
               " moves some rows by more than half of what they are; what rounding decides is not "
               "compared");
    if (d.beyond <= tolerance)
      return std::nullopt;
    return "error " + threeDigits(d.beyond + d.explained) + " of a row where " +
           threeDigits(tolerance + d.explained) + " is allowed, at " +
           describeElement(name, got.shape(), d);
  }

  /// Of functions that lose by design: what is lost of the rows of a tensor, all calls together.
  /// What there is to lose is told by the rows of all functions.
  llvm::Error judgeLosses() {
    const Scenario &whole = reference_.scenarios()[0];
    std::map<std::string, Loss> every; // by tensor
    for (const auto &[key, loss] : losses_)
      every[key.second].add(loss);
    for (const auto &[key, loss] : losses_) {
      const auto &[function, tensor] = key;
      FunctionCheck &check = entry(function);
      check.error = std::max(check.error, loss.median());
      const double most = options_.tolerance * options_.tolerance * every[tensor].information();
      if (loss.median() > options_.tolerance)
        return differs(function,
                       "half of the rows of '" + tensor + "' are off by " +
                           threeDigits(loss.median()) + " and more where " +
                           threeDigits(options_.tolerance) + " is allowed",
                       whole, 0);
      if (loss.divergence() > most && loss.rows() > 1)
        return differs(function,
                       "a mean KL divergence of " + threeDigits(loss.divergence()) +
                           " nats where " + threeDigits(most) + " is allowed, " +
                           threeDigits(options_.tolerance * options_.tolerance) +
                           " of what the text before tells of the next token",
                       whole, 0);
    }
    return llvm::Error::success();
  }

  void ran(llvm::StringRef function, int64_t batch, int64_t tokens) {
    FunctionCheck &check = entry(function);
    check.batch = std::max(check.batch, batch);
    check.tokens = std::max(check.tokens, tokens);
  }

  /// Rows of hidden tokens, which may see no key, get the value that is expected of them.
  static Tensor withoutPadding(const Tensor &got, const Tensor &expected, const Scenario &s) {
    const int64_t batch = s.call.batch(), tokens = s.call.tokens();
    bool rows = got.rank() >= 2 && got.dim(0) == batch && got.dim(1) == tokens;
    if (s.call.hidden.empty() || !rows || got.shape() != expected.shape())
      return got;
    Tensor out = got.cast(expected.dtype());
    if (out.raw() == got.raw()) { // shares its bytes
      Tensor own(out.dtype(), out.shape());
      std::memcpy(own.raw(), std::as_const(out).raw(), out.bytes());
      out = own;
    }
    const int64_t row = expected.bytes() / (batch * tokens), past = s.call.pastTokens();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < tokens; ++t)
        if (s.call.hidden[b][past + t])
          std::memcpy(static_cast<char *>(out.raw()) + (b * tokens + t) * row,
                      static_cast<const char *>(expected.raw()) + (b * tokens + t) * row, row);
    return out;
  }

  llvm::Error checkForward() {
    for (auto [i, scenario] : llvm::enumerate(reference_.scenarios())) {
      if (leavesOut(scenario))
        continue;
      auto got = runner_.forward(graph_, scenario.call, scenario.arguments);
      if (!got) {
        if (llvm::Error e = failed(functions::forward, scenario, 0, got.takeError()))
          return e;
        continue;
      }
      ran(functions::forward, scenario.call.batch(),
          scenario.call.pastTokens() + scenario.call.tokens());
      for (auto [o, port] : llvm::enumerate(graph_.outputs())) {
        if (!(*got)[o].valid()) {
          leaveOut("output '" + port.name + "' of " + named(functions::forward) +
                   ": the plan does not give it");
          continue;
        }
        const bool isMasked = !scenario.call.hidden.empty() || !scenario.call.positions.empty();
        if (port.role == "present" && isMasked)
          continue;
        auto expected = [&, i = i, o = o](Arithmetic arithmetic) -> llvm::Expected<Tensor> {
          auto all = reference_.outputs(i, arithmetic);
          if (!all)
            return all.takeError();
          return (*all)[o];
        };
        auto usual = expected(arithmetic());
        if (!usual)
          return usual.takeError();
        bool lost = false;
        auto what =
            judge(functions::forward, port.name, withoutPadding((*got)[o], *usual, scenario),
                  expected, port.role == "logits" ? RowScale::Logits : RowScale::Norm, lost,
                  graph_.function().returned()[o]->type.dtype == DType::BF16);
        if (!what)
          return what.takeError();
        if (*what)
          return differs(functions::forward, **what, scenario, 0, lost);
      }
    }
    return llvm::Error::success();
  }

  /// A call that cannot be made is a difference, but for what is not the plan's fault.
  llvm::Error failed(llvm::StringRef function, const Scenario &scenario, int64_t cut,
                     llvm::Error error) {
    bool leftOut = false;
    std::string why;
    llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase &info) {
      // What a plan does not do by design, or a device has no memory for.
      if (info.isA<CodedError>()) {
        ExitCode code = static_cast<const CodedError &>(info).code();
        leftOut |= code == ExitCode::Unsupported || code == ExitCode::OutOfMemory;
      }
      why += (why.empty() ? "" : "; ") + info.message();
    });
    if (leftOut) {
      leaveOut(named(function) + (scenario.what.empty() ? "" : " " + scenario.what) + ": " + why);
      return llvm::Error::success();
    }
    return differs(function, "which fails: " + llvm::Twine(why), scenario, cut);
  }

  /// Compares row `at` of a step with the graph's behind the first `length` tokens of a text.
  llvm::Expected<std::optional<std::string>> judgeRow(llvm::StringRef function, const Round &round,
                                                      const StepResult &step, size_t at,
                                                      size_t text, int64_t length, bool &lost) {
    const int64_t width = step.logits.dim(-1);
    Tensor row(step.logits.dtype(), {width});
    std::memcpy(row.raw(),
                static_cast<const char *>(step.logits.raw()) +
                    int64_t(at) * width * byteSize(row.dtype()),
                row.bytes());
    std::string name = "the logits behind token " + std::to_string(length - 1) + " of sequence " +
                       std::to_string(text);
    auto expected = [&](Arithmetic arithmetic) {
      return reference_.logits(round, text, length, arithmetic);
    };
    const bool logits = graph_.output("logits") >= 0;
    auto what = judge(function, name, graph_.asGiven(row), expected,
                      logits ? RowScale::Logits : RowScale::Norm, lost);
    if (!what || *what)
      return what;
    return judgeChoice(step.next[at], row, name);
  }

  /// The same for the rows of a step, behind `lengths[k]` tokens of each text.
  llvm::Expected<std::optional<std::string>>
  judgeStep(llvm::StringRef function, const Round &round, const StepResult &step,
            llvm::ArrayRef<size_t> texts, llvm::ArrayRef<int64_t> lengths, bool &lost) {
    ran(function, int64_t(lengths.size()), *std::max_element(lengths.begin(), lengths.end()));
    for (size_t k = 0; k < lengths.size(); ++k) {
      auto what =
          judgeRow(function, round, step, k, texts.empty() ? k : texts[k], lengths[k], lost);
      if (!what || *what)
        return what;
    }
    return std::nullopt;
  }

  /// The greedy choice is the largest of the plan's own logits, within rounding.
  std::optional<std::string> judgeChoice(int32_t next, const Tensor &row, const std::string &name) {
    double largest = -INFINITY, least = INFINITY;
    for (int64_t i = 0; i < row.count(); ++i) {
      double v = row.asDouble(i);
      if (std::isnan(v))
        return std::nullopt;
      largest = std::max(largest, v);
      least = std::min(least, v);
    }
    if (next >= 0 && next < row.count() &&
        row.asDouble(next) >= largest - options_.tolerance * (largest - least))
      return std::nullopt;
    return "its next token is " + std::to_string(next) + ", which is not the largest of " + name;
  }

  /// How much of each text is run: different lengths, where the texts have one.
  static std::vector<int64_t> lengthsOf(const Round &round) {
    if (!round.lengths.empty())
      return round.lengths;
    std::vector<int64_t> lengths;
    for (auto [k, text] : llvm::enumerate(round.texts)) {
      int64_t n = int64_t(text.size());
      if (k > 0 && text.size() == round.texts[0].size())
        n = std::max<int64_t>(1, n - int64_t(k) * std::max<int64_t>(1, n / 3));
      lengths.push_back(n);
    }
    return lengths;
  }

  /// @extend over all texts at once: with each call one of them gets a piece, the others a token
  /// each, and every other time the one behind it nothing.
  llvm::Error checkRows(const Round &round) {
    constexpr int64_t most = 256; // tokens of a piece: a device bounds the rows of a call
    const Scenario &whole = reference_.scenarios()[round.scenarios[0]];
    const std::vector<int64_t> lengths = lengthsOf(round);
    const bool exact = !round.lengths.empty(); // all but the last tokens, then these
    std::vector<int64_t> done(lengths.size(), 0);
    size_t texts = 0;
    for (const Round &other : reference_.rounds())
      texts = std::max(texts, other.texts.size());
    for (size_t call = 0; done != lengths; ++call) {
      std::vector<RowsOfText> parts;
      for (auto [k, length] : llvm::enumerate(lengths)) {
        const bool isPiece = k == call % lengths.size(),
                   rests = !isPiece && k == (call + 1) % lengths.size() && call % 2 == 1;
        const int64_t piece = exact ? length - 1 : length * 3 / 8,
                      wanted = isPiece || exact ? std::clamp<int64_t>(piece, 1, most) : 1,
                      count = rests && !exact ? 0 : std::min(wanted, length - done[k]);
        const TokenIds &text = round.texts[k];
        if (count > 0)
          parts.push_back({k, TokenIds(text.begin() + done[k], text.begin() + done[k] + count),
                           int32_t(done[k])});
      }
      if (parts.empty())
        continue;
      auto step = runner_.extend(parts, texts);
      if (!step)
        return failed(functions::extend, whole, 0, step.takeError());
      for (auto [i, part] : llvm::enumerate(parts)) {
        int64_t &n = done[part.text];
        n += int64_t(part.tokens.size());
        ran(functions::extend, int64_t(parts.size()), n);
        if ((exact || part.tokens.size() == 1) && n < lengths[part.text])
          continue;
        bool lost = false;
        auto what = judgeRow(functions::extend, round, *step, i, part.text, n, lost);
        if (!what)
          return what.takeError();
        if (*what)
          return differs(functions::extend, **what, whole, 0, lost);
      }
    }
    return llvm::Error::success();
  }

  /// @prefill in two unequal pieces of sequences of different lengths, then @decode.
  llvm::Error checkGeneration(const Round &round) {
    const Scenario &whole = reference_.scenarios()[round.scenarios[0]];
    const std::vector<int64_t> lengths = lengthsOf(round);
    std::vector<int64_t> first;
    const int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
    const int64_t steps = std::min(decodeSteps, shortest - 1);
    for (size_t k = 0; k < lengths.size(); ++k) {
      int64_t prefilled = lengths[k] - steps, part = prefilled * 5 / 8;
      first.push_back(std::max<int64_t>(1, k == 0 ? part : std::min(part, first[0])));
    }
    std::vector<int64_t> done(lengths.size(), 0);
    auto piece = [&](auto end) {
      std::vector<TokenIds> texts;
      for (auto [k, text] : llvm::enumerate(llvm::ArrayRef(round.texts).take_front(done.size())))
        texts.emplace_back(text.begin() + done[k], text.begin() + end(k));
      return texts;
    };
    auto prefill = [&](auto end) -> llvm::Error {
      std::vector<TokenIds> texts = piece(end);
      if (llvm::any_of(texts, [](const TokenIds &t) { return t.empty(); }))
        return llvm::Error::success(); // sequences too short for a second piece
      int64_t cut = done[0];
      std::vector<int32_t> past(done.begin(), done.end());
      auto step = runner_.prefill(texts, past);
      if (!step)
        return failed(functions::prefill, whole, cut, step.takeError());
      for (size_t k = 0; k < done.size(); ++k)
        done[k] = end(k);
      return judged(functions::prefill, round, *step, done, whole, cut);
    };
    if (llvm::Error e = prefill([&](size_t k) { return first[k]; }))
      return e;
    if (llvm::Error e = prefill([&](size_t k) { return lengths[k] - steps; }))
      return e;
    for (int64_t i = 0; i < steps && done[0] < lengths[0]; ++i) {
      std::vector<int32_t> tokens, past(done.begin(), done.end());
      for (auto [k, text] : llvm::enumerate(round.texts))
        tokens.push_back(text[done[k]]);
      auto step = runner_.decode(tokens, past);
      int64_t cut = whole.call.tokens() - 1;
      if (!step)
        return failed(functions::decode, whole, cut, step.takeError());
      for (int64_t &n : done)
        ++n;
      if (llvm::Error e = judged(functions::decode, round, *step, done, whole, cut))
        return e;
    }
    if (steps < 1)
      leaveOut(named(functions::decode) + ": the texts have one token");
    return llvm::Error::success();
  }

  /// Whole texts of lengths that the graph was run over, and their last tokens as a step: what is
  /// computed from the length of a text is not asked of a longer one.
  llvm::Error checkLengths(const Round &round) {
    const Scenario &first = reference_.scenarios()[round.scenarios[0]];
    std::vector<TokenIds> texts, begins;
    std::vector<size_t> stepped;
    std::vector<int64_t> lengths;
    std::vector<int32_t> last, past;
    for (auto [k, text] : llvm::enumerate(round.texts)) {
      const int64_t n = round.lengths[k];
      texts.emplace_back(text.begin(), text.begin() + n);
      if (n < 2)
        continue;
      begins.emplace_back(text.begin(), text.begin() + n - 1);
      stepped.push_back(k);
      lengths.push_back(n);
      last.push_back(text[n - 1]);
      past.push_back(int32_t(n - 1));
    }
    auto whole = runner_.prefill(texts, std::vector<int32_t>(texts.size(), 0));
    if (!whole)
      return failed(functions::prefill, first, 0, whole.takeError());
    if (llvm::Error e = judged(functions::prefill, round, *whole, round.lengths, first, 0))
      return e;
    if (begins.empty() || (graph_.fixedBatch() && begins.size() != texts.size()))
      return llvm::Error::success();
    if (auto begun = runner_.prefill(begins, std::vector<int32_t>(begins.size(), 0)); !begun)
      return failed(functions::prefill, first, 0, begun.takeError());
    auto step = runner_.decode(last, past);
    const int64_t cut = first.call.tokens() - 1;
    if (!step)
      return failed(functions::decode, first, cut, step.takeError());
    return judged(functions::decode, round, *step, lengths, first, cut, stepped);
  }

  llvm::Error judged(llvm::StringRef function, const Round &round, const StepResult &step,
                     llvm::ArrayRef<int64_t> lengths, const Scenario &whole, int64_t cut,
                     llvm::ArrayRef<size_t> texts = {}) {
    bool lost = false;
    auto what = judgeStep(function, round, step, texts, lengths, lost);
    if (!what)
      return what.takeError();
    return *what ? differs(function, **what, whole, cut, lost) : llvm::Error::success();
  }

  Reference &reference_;
  const ExportedGraph &graph_;
  const Module &module_;
  PlanRunner &runner_;
  const CheckOptions &options_;
  bool float64_;
  CheckReport &report_;
  std::optional<Finding> finding_;
  std::map<std::pair<std::string, std::string>, Loss> losses_; ///< by function and tensor
};

} // namespace

static bool isLost(const CheckReport &report) {
  return llvm::any_of(report.checks, [](auto &c) { return std::isinf(c.error); });
}

llvm::Error checkPlan(Reference &reference, const Module &module, PlanRunner &runner,
                      const CheckOptions &options, CheckReport &report) {
  if (reference.scenarios().empty())
    return llvm::Error::success();
  CheckReport single;
  Checker first(reference, module, runner, options, false, single);
  llvm::Error e = first.run();
  auto take = [&](CheckReport &from) {
    llvm::append_range(report.checks, from.checks);
    llvm::append_range(report.unchecked, from.unchecked);
  };
  std::unique_ptr<PlanRunner> exact;
  const bool narrow = options.narrow != DType::F32;
  if (e && first.finding() && (options.rounding || narrow) && !isLost(single))
    exact = runner.inDouble();
  if (!exact) {
    take(single);
    if (!first.finding())
      return e;
    llvm::consumeError(std::move(e));
    return explained(*first.finding(), options, false);
  }
  CheckReport inDouble;
  Checker second(reference, module, *exact, options, true, inDouble);
  llvm::Error real = second.run();
  if (real || narrow) {
    // Without rounding the place is clearer.
    const Checker &clear = second.finding() ? second : first;
    const bool isRounding = !real;
    llvm::consumeError(std::move(real));
    llvm::consumeError(std::move(e));
    take(second.finding() ? inDouble : single);
    return explained(*clear.finding(), options, isRounding);
  }
  llvm::consumeError(std::move(e));
  for (FunctionCheck &check : inDouble.checks) {
    check.errorInDouble = check.error;
    auto it = llvm::find_if(single.checks, [&](auto &c) { return c.what == check.what; });
    if (it != single.checks.end())
      check.error = it->error;
  }
  take(inDouble);
  return llvm::Error::success();
}

} // namespace gpt2c
