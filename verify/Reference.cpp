// One class: the runs of the exported graph, which all comparisons share.
#include "verify/Reference.h"

#include "ir/Error.h"
#include "verify/Lengths.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <random>

namespace gpt2c {

/// Full context below so many operations for a sequence; above the other, fewer tokens than usual.
constexpr int64_t cheap = 4'000'000'000, dear = 120'000'000'000;
/// Sizes that the export fixed are not run above so many: minutes, or more memory than there is.
constexpr int64_t dearest = 500'000'000'000, dearestInFull = 100 * dearest;
/// Tokens of a text where the full context is not cheap, and where not even those are.
constexpr int64_t usualLength = 128, shortLength = 32;
/// Tokens of the other texts of a batch, and of calls with masks, in the fast mode.
constexpr int64_t secondLength = 24;
/// New tokens behind a past.
constexpr int64_t behindPast = 8;
/// Texts of one length each, and how many sequences at once.
struct Batch {
  int64_t sequences, tokens;
};
constexpr Batch shortTexts[] = {{5, 5}, {4, 3}, {3, 2}, {2, 1}, {1, 9}, {1, 17}};
/// How much of those sequences is run through @prefill and @decode, each a length of its own.
constexpr int64_t shortLengths[] = {17, 1, 2, 3, 5};
/// Operations for lengths that a graph names, and for every token of the vocabulary.
constexpr int64_t forLengths = 24'000'000'000, forLengthsInFull = 100 * forLengths,
                  forTokens = 8'000'000'000, forTokensInFull = 100 * forTokens;
/// Lengths around constants that are run in one call of @prefill.
constexpr int64_t lengthsAtOnce = 5;
/// Tokens of a past that the plan has no KV state for.
constexpr int64_t unknownPast = 5;

std::unique_ptr<Reference> Reference::make(ExportedGraph graph, VerifyMode mode,
                                           const ReferenceLimits &limits) {
  std::unique_ptr<Reference> r(new Reference(std::move(graph), mode, limits));
  std::string why;
  const int64_t most = mode == VerifyMode::Full ? dearestInFull : dearest;
  const int64_t batch = r->graph_.fixedBatch(), length = r->graph_.fixedLength();
  if ((batch || length) && limits.operations &&
      limits.operations(length ? length : usualLength) > most) {
    r->unchecked_.push_back("the exported graph has a fixed size of " +
                            (batch ? std::to_string(batch) : "any number of") + " sequences of " +
                            (length ? std::to_string(length) : "any number of") +
                            " tokens, which takes too long" +
                            (mode == VerifyMode::Full ? "" : "; --verify=full allows for more"));
    return r;
  }
  for (int64_t tokens : r->lengths())
    if (r->tryLength(tokens, why)) {
      if (!limits.text && r->graph_.has("ids") && !length)
        r->addStructural(tokens);
      return r;
    }
  r->unchecked_.push_back("the exported graph cannot be run: " + why);
  return r;
}

/// Lengths to try, the wanted one first.
std::vector<int64_t> Reference::lengths() const {
  if (int64_t fixed = graph_.fixedLength())
    return {fixed};
  int64_t limit = graph_.positions() ? graph_.positions() : usualLength;
  if (limits_.context)
    limit = std::min(limit, limits_.context);
  std::vector<int64_t> out;
  auto cost = [&](int64_t tokens) { return limits_.operations ? limits_.operations(tokens) : 0; };
  int64_t wanted = limit;
  if (mode_ == VerifyMode::Fast && cost(limit) > cheap)
    wanted = std::min(limit, cost(usualLength) > dear ? shortLength : usualLength);
  for (int64_t tokens : {wanted, usualLength, int64_t(64), int64_t(16), int64_t(4), int64_t(1)})
    if (tokens <= wanted)
      out.push_back(tokens);
  return out;
}

bool Reference::tryLength(int64_t tokens, std::string &why) {
  const int rounds = mode_ == VerifyMode::Full ? 3 : 1;
  for (int i = 0; i < rounds; ++i)
    if (llvm::Error e = addRound(tokens, 1 + uint64_t(i))) {
      why = llvm::toString(std::move(e));
      scenarios_.clear();
      rounds_.clear();
      unchecked_.clear();
      outputs_.clear();
      return false;
    }
  return true;
}

llvm::Error Reference::add(Round &round, Scenario scenario) {
  auto arguments = graph_.arguments(scenario.call);
  if (!arguments)
    return arguments.takeError();
  scenario.arguments = std::move(*arguments);
  auto outputs = graph_.run(scenario.arguments, Arithmetic::Usual);
  if (!outputs)
    return outputs.takeError();
  longest_ = std::max(longest_, scenario.call.pastTokens() + scenario.call.tokens());
  round.scenarios.push_back(scenarios_.size());
  scenarios_.push_back(std::move(scenario));
  outputs_.push_back({std::move(*outputs), {}, {}, {}});
  return llvm::Error::success();
}

void Reference::leaveOut(const llvm::Twine &what, llvm::Error e) {
  if (e)
    unchecked_.push_back((what + ": " + llvm::toString(std::move(e))).str());
}

static std::vector<TokenIds> prefixes(llvm::ArrayRef<TokenIds> texts, int64_t tokens) {
  std::vector<TokenIds> out;
  for (const TokenIds &text : texts)
    out.emplace_back(text.begin(), text.begin() + std::min<int64_t>(tokens, text.size()));
  return out;
}

llvm::Error Reference::addRound(int64_t tokens, uint64_t seed) {
  Round round;
  const bool full = mode_ == VerifyMode::Full;
  const int64_t fixed = graph_.fixedBatch();
  if (!graph_.has("ids")) {
    Scenario plain;
    plain.call.texts.assign(fixed ? fixed : std::min<int64_t>(2, limits_.maxBatch),
                            TokenIds(tokens, 0));
    if (llvm::Error e = add(round, std::move(plain)))
      return e;
    rounds_.push_back(std::move(round));
    return llvm::Error::success();
  }
  // One call with all texts where that is asked for; else the long one, and the begin of all.
  const bool together = full || fixed;
  const int64_t count = fixed ? fixed : std::min<int64_t>(full ? 3 : 2, limits_.maxBatch);
  const int64_t second = std::min(tokens, graph_.fixedLength() ? tokens : secondLength);
  for (int64_t i = 0; i < count; ++i)
    round.texts.push_back(text(i == 0 || together ? tokens : second, seed * 100 + i));
  Scenario whole;
  whole.call.texts = together ? round.texts : std::vector<TokenIds>{round.texts[0]};
  whole.texts = whole.call.batch();
  if (llvm::Error e = add(round, std::move(whole)))
    return e;
  if (!together && count > 1) {
    Scenario batch;
    batch.call.texts = prefixes(round.texts, second);
    batch.texts = count;
    if (llvm::Error e = add(round, std::move(batch)))
      return e;
  }
  if (graph_.has("key_mask") || graph_.has("position_ids")) {
    int64_t length = full || graph_.fixedLength() ? tokens : std::min(tokens, usualLength / 2);
    leaveOut("a mask or other positions", addMasked(round, length, seed, false));
    // Without a KV state padding may reach what other tokens compute.
    if (full && limits_.context && graph_.has("key_mask") && tokens > 4)
      leaveOut("padding on the left", addMasked(round, length, seed, true));
  }
  const int64_t context = this->context() ? this->context() : tokens;
  const int64_t news = graph_.fixedLength() ? graph_.fixedLength() : behindPast;
  std::vector<int64_t> pasts{context - news};
  if (full)
    pasts.insert(pasts.end(), {1, context / 2});
  for (int64_t past : pasts)
    if (graph_.has("past") && past > 0 && past + news <= context)
      leaveOut("a past of " + llvm::Twine(past) + " tokens", addPast(round, past, news));
  // Where some layers' pasts are known, those of the others are as long.
  const int64_t room = graph_.fixedLength() ? news : std::min(news, context - unknownPast);
  if (graph_.hasUnknownPast() && !graph_.has("past") && room > 0 && unknownPast + room <= context)
    leaveOut("a past of " + llvm::Twine(unknownPast) + " tokens",
             addUnknownPast(round, unknownPast, room));
  rounds_.push_back(std::move(round));
  return llvm::Error::success();
}

int64_t Reference::context() const {
  const int64_t positions = graph_.positions();
  return limits_.context && positions ? std::min(positions, limits_.context)
         : positions                  ? positions
                                      : limits_.context;
}

int64_t Reference::operations(int64_t tokens) const {
  return limits_.operations ? limits_.operations(tokens) : 0;
}

TokenIds Reference::text(int64_t tokens, uint64_t seed) const {
  return limits_.text ? limits_.text(tokens, seed) : graph_.text(tokens, seed);
}

void Reference::addStructural(int64_t tokens) {
  const bool full = mode_ == VerifyMode::Full;
  leaveOut("short texts", addShortTexts());
  int64_t budget = full ? forLengthsInFull : forLengths;
  addConstantLengths(tokens, budget);
  leaveOut("every token", addVocabulary(tokens, full ? forTokensInFull : forTokens));
}

/// Texts of a few tokens, several at once: each sequence and each length is a call of its own.
llvm::Error Reference::addShortTexts() {
  const int64_t fixed = graph_.fixedBatch(), limit = context() ? context() : INT64_MAX,
                most = fixed ? fixed : limits_.maxBatch;
  Round round;
  for (auto [i, length] : llvm::enumerate(shortLengths))
    if (int64_t(i) < most)
      round.texts.push_back(text(std::min<int64_t>(limit, i == 0 ? length : 5), 1000 + i));
  while (int64_t(round.texts.size()) < fixed)
    round.texts.push_back(text(std::min<int64_t>(limit, 5), 1000 + round.texts.size()));
  for (const Batch &b : shortTexts) {
    if (b.tokens > limit)
      continue;
    Scenario s;
    s.structural = true;
    const int64_t count = fixed ? fixed : std::min(b.sequences, int64_t(round.texts.size()));
    if (fixed > 1 && b.tokens > 5)
      continue; // of the first alone
    s.call.texts = prefixes(llvm::ArrayRef(round.texts).take_front(count), b.tokens);
    s.what = "of " + std::to_string(b.tokens) + (b.tokens == 1 ? " token" : " tokens");
    s.texts = count;
    if (llvm::Error e = add(round, std::move(s)))
      return e;
  }
  for (auto [i, t] : llvm::enumerate(round.texts)) {
    const int64_t wanted = fixed > 1 ? 5 : shortLengths[i];
    round.lengths.push_back(std::min<int64_t>(wanted, int64_t(t.size())));
  }
  // A length is one of a call.
  for (auto [i, length] : llvm::enumerate(round.lengths))
    while (length > 1 && llvm::none_of(round.scenarios, [&](size_t s) {
             return scenarios_[s].call.tokens() == length && int64_t(i) < scenarios_[s].texts;
           }))
      --length;
  rounds_.push_back(std::move(round));
  return llvm::Error::success();
}

/// One call of each length, and of their texts together.
llvm::Error Reference::addLengths(llvm::ArrayRef<int64_t> lengths) {
  Round round;
  for (auto [i, length] : llvm::enumerate(lengths)) {
    round.texts.push_back(text(length, 2000 + uint64_t(length)));
    Scenario s;
    s.structural = true;
    s.call.texts = {round.texts.back()};
    s.what = "of " + std::to_string(length) + " tokens";
    s.texts = 1;
    s.firstText = int64_t(i);
    if (llvm::Error e = add(round, std::move(s)))
      return e;
  }
  round.lengths.assign(lengths.begin(), lengths.end());
  rounds_.push_back(std::move(round));
  return llvm::Error::success();
}

/// Around each constant that meets a length in the graph, within the context.
void Reference::addConstantLengths(int64_t tokens, int64_t &budget) {
  if (graph_.fixedBatch() > 1)
    return;
  const int64_t limit = context() ? context() : tokens;
  auto isRun = [&](int64_t length) {
    return length == tokens ||
           llvm::any_of(shortTexts, [&](const Batch &b) { return b.tokens == length; });
  };
  std::vector<int64_t> wanted;
  std::string left;
  for (int64_t c : constantLengths(graph_.function()))
    for (int64_t length : {c - 1, c, c + 1}) {
      if (length < 1 || length > limit || isRun(length) || llvm::is_contained(wanted, length))
        continue;
      const int64_t cost = operations(length);
      if (cost > budget) {
        left += (left.empty() ? "" : ", ") + std::to_string(length);
        continue;
      }
      budget -= cost;
      wanted.push_back(length);
    }
  const size_t most = size_t(std::min(lengthsAtOnce, limits_.maxBatch));
  for (llvm::ArrayRef<int64_t> rest = wanted; !rest.empty();
       rest = rest.drop_front(std::min(most, rest.size())))
    leaveOut("lengths that the graph names", addLengths(rest.take_front(most)));
  if (!left.empty() && mode_ == VerifyMode::Fast)
    unchecked_.push_back("texts of " + left +
                         " tokens, lengths that the graph names: --verify=full runs them");
}

/// Every token of the vocabulary once, or as many of the last ones, which are rare, as the budget
/// and memory allow.
llvm::Error Reference::addVocabulary(int64_t tokens, int64_t budget) {
  constexpr int64_t mostLogits = int64_t(1) << 27;
  const int64_t vocabulary = graph_.vocabulary(), fixed = graph_.fixedBatch();
  if (vocabulary < 1)
    return llvm::Error::success();
  tokens = std::min(tokens, shortLength);
  const int64_t count = fixed ? fixed : std::min<int64_t>(limits_.maxBatch, 8);
  const int64_t each = std::max<int64_t>(1, operations(tokens) / tokens),
                ids = std::min({vocabulary, mostLogits / vocabulary, budget / each});
  if (ids < std::min(vocabulary, tokens))
    return llvm::Error::success();
  Round round;
  for (int64_t id = vocabulary - ids; id < vocabulary;) {
    Scenario s;
    s.structural = true;
    s.what = "of every token";
    for (int64_t b = 0; b < count && (fixed || id < vocabulary); ++b) {
      TokenIds &text = s.call.texts.emplace_back();
      for (int64_t t = 0; t < tokens; ++t, ++id)
        text.push_back(int32_t(std::min(id, vocabulary - 1)));
    }
    if (llvm::Error e = add(round, std::move(s)))
      return e;
  }
  rounds_.push_back(std::move(round)); // without texts: @forward alone
  return llvm::Error::success();
}

llvm::Error Reference::addMasked(Round &round, int64_t tokens, uint64_t seed, bool leftPadding) {
  Scenario s;
  const bool mask = graph_.has("key_mask"), positions = graph_.has("position_ids");
  s.what = leftPadding ? "padded on the left"
           : !mask     ? "with positions in another order"
           : positions ? "with a mask and positions in another order"
                       : "with a mask";
  s.call.texts = prefixes(graph_.fixedBatch() ? llvm::ArrayRef(round.texts)
                                              : llvm::ArrayRef(round.texts).take_front(1),
                          tokens);
  std::mt19937_64 random(seed);
  // No two hidden keys are neighbours: what a query computes that sees none has no meaning. Where
  // it sees its own key alone it is one of the hidden tokens.
  for (int64_t b = 0; b < s.call.batch(); ++b) {
    int64_t padding = leftPadding ? tokens / 3 + b % 2 : 0;
    std::vector<bool> hidden;
    TokenIds at;
    for (int64_t t = 0; t < tokens; ++t) {
      uint64_t r = random();
      hidden.push_back(leftPadding ? t < padding : t > 0 && !hidden.back() && r % 8 == 0);
      const int64_t rows = context() ? context() : tokens; // that the plan's tables have
      at.push_back(
          int32_t(leftPadding ? std::max<int64_t>(t - padding, 0) : (r >> 8) % uint64_t(rows)));
    }
    if (mask)
      s.call.hidden.push_back(std::move(hidden));
    if (positions)
      s.call.positions.push_back(std::move(at));
  }
  return add(round, std::move(s));
}

/// `tokens` tokens along the last axis but one: those of `t`, again and again.
static Tensor tiled(const Tensor &t, int64_t tokens) {
  const int64_t have = t.dim(-2), row = t.dim(-1) * byteSize(t.dtype());
  llvm::SmallVector<int64_t, 5> shape(t.shape());
  shape[shape.size() - 2] = tokens;
  Tensor out(t.dtype(), shape);
  const int64_t groups = out.count() / (tokens * t.dim(-1));
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < tokens; ++i)
      std::memcpy(static_cast<char *>(out.raw()) + (g * tokens + i) * row,
                  static_cast<const char *>(t.raw()) + (g * have + i % have) * row, row);
  return out;
}

llvm::Error Reference::addPast(Round &round, int64_t past, int64_t tokens) {
  // The present tensors of the first call, as often as they are needed.
  const size_t whole = round.scenarios[0];
  Scenario s;
  s.what = "behind " + std::to_string(past) + " tokens";
  s.call.texts = prefixes(scenarios_[whole].call.texts, tokens);
  for (const ExportedPort &in : graph_.inputs()) {
    if (in.role != "past")
      continue;
    auto same = llvm::find_if(graph_.outputs(), [&](const ExportedPort &out) {
      return out.role == "present" && out.layer == in.layer && out.part == in.part;
    });
    const Tensor *present = same == graph_.outputs().end()
                                ? nullptr
                                : &outputs_[whole][0][same - graph_.outputs().begin()];
    if (!present || present->rank() < 4 || present->dim(-2) < 1)
      return makeError(ExitCode::Unsupported,
                       "nothing is known to give for the past input '" + in.name + "'");
    // The graph is given them in its own type, and so is the plan.
    const Value *given = graph_.function().argument(in.name);
    Tensor keys = tiled(*present, past);
    s.call.past.push_back(given ? keys.cast(given->type.dtype) : keys);
  }
  return add(round, std::move(s));
}

llvm::Error Reference::addUnknownPast(Round &round, int64_t past, int64_t tokens) {
  Scenario s;
  s.what = "behind " + std::to_string(past) + " random keys and values";
  s.call.texts = prefixes(scenarios_[round.scenarios[0]].call.texts, tokens);
  s.call.unknownPast = past;
  return add(round, std::move(s));
}

llvm::Expected<llvm::ArrayRef<Tensor>> Reference::outputs(size_t scenario, Arithmetic arithmetic) {
  std::vector<Tensor> &kept = outputs_[scenario][size_t(arithmetic)];
  if (kept.empty()) {
    auto outputs = graph_.run(scenarios_[scenario].arguments, arithmetic);
    if (!outputs)
      return outputs.takeError();
    kept = std::move(*outputs);
  }
  return llvm::ArrayRef(kept);
}

/// Columns of logits that a token stands for: heads may be padded.
static int64_t columnsOf(const ExportedGraph &graph, const Tensor &logits) {
  const int64_t width = logits.dim(-1), vocabulary = graph.vocabulary();
  return vocabulary ? std::min(width, vocabulary) : width;
}

/// Element [text, token] of logits [batch, tokens, vocabulary], token -1: of [batch, vocabulary].
llvm::Expected<Tensor> Reference::rowOf(size_t scenario, int64_t text, int64_t token,
                                        Arithmetic arithmetic) {
  auto all = outputs(scenario, arithmetic);
  if (!all)
    return all.takeError();
  const Tensor &logits = (*all)[graph_.logits()];
  const int64_t rows = logits.rank() == 3 ? logits.dim(1) : 1;
  Tensor out(logits.dtype(), {columnsOf(graph_, logits)});
  const int64_t bytes = logits.dim(-1) * byteSize(logits.dtype());
  std::memcpy(out.raw(),
              static_cast<const char *>(logits.raw()) +
                  (text * rows + (rows == 1 ? 0 : token)) * bytes,
              out.bytes());
  return out;
}

llvm::Expected<Tensor> Reference::logits(const Round &round, size_t text, int64_t tokens,
                                         Arithmetic arithmetic) {
  for (bool exact : {true, false})
    for (size_t i : round.scenarios) {
      const Scenario &s = scenarios_[i];
      const int64_t at = int64_t(text) - s.firstText;
      if (at >= 0 && at < s.texts &&
          (exact ? tokens == s.call.tokens() : tokens < s.call.tokens() && graph_.hasRows()))
        return rowOf(i, at, tokens - 1, arithmetic);
    }
  // Logits of the last token alone: the graph runs once for each prefix.
  Tensor &kept = prefixes_[{&round, text, tokens, arithmetic}];
  if (kept.valid())
    return kept;
  GraphCall call;
  call.texts.assign(graph_.fixedBatch() ? graph_.fixedBatch() : 1,
                    TokenIds(round.texts[text].begin(), round.texts[text].begin() + tokens));
  auto arguments = graph_.arguments(call);
  if (!arguments)
    return arguments.takeError();
  auto outputs = graph_.run(*arguments, arithmetic);
  if (!outputs)
    return outputs.takeError();
  const Tensor &logits = (*outputs)[graph_.logits()];
  kept = Tensor(logits.dtype(), {columnsOf(graph_, logits)});
  std::memcpy(kept.raw(), logits.raw(), kept.bytes());
  return kept;
}

} // namespace gpt2c
