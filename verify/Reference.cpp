#include "verify/Reference.h"

#include "ir/Error.h"

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
    if (r->tryLength(tokens, why))
      return r;
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
  auto outputs = graph_.run(scenario.arguments, false);
  if (!outputs)
    return outputs.takeError();
  longest_ = std::max(longest_, scenario.call.pastTokens() + scenario.call.tokens());
  round.scenarios.push_back(scenarios_.size());
  scenarios_.push_back(std::move(scenario));
  outputs_.push_back({std::move(*outputs), {}});
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
    round.texts.push_back(graph_.text(i == 0 || together ? tokens : second, seed * 100 + i));
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
  int64_t context = graph_.positions() ? graph_.positions() : tokens;
  if (limits_.context)
    context = std::min(context, limits_.context);
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
  // No two hidden keys are neighbours: what a query computes that sees none has no meaning.
  for (int64_t b = 0; b < s.call.batch(); ++b) {
    int64_t padding = leftPadding ? tokens / 3 + b % 2 : 0;
    s.skipped.push_back(padding);
    std::vector<bool> hidden;
    TokenIds at;
    for (int64_t t = 0; t < tokens; ++t) {
      uint64_t r = random();
      hidden.push_back(leftPadding ? t < padding : t > 0 && !hidden.back() && r % 8 == 0);
      int64_t rows = graph_.positions() ? graph_.positions() : tokens;
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
    s.call.past.push_back(tiled(*present, past));
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

llvm::Expected<llvm::ArrayRef<Tensor>> Reference::outputs(size_t scenario, bool float64) {
  std::vector<Tensor> &kept = outputs_[scenario][float64];
  if (kept.empty()) {
    auto outputs = graph_.run(scenarios_[scenario].arguments, float64);
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
                                        bool float64) {
  auto all = outputs(scenario, float64);
  if (!all)
    return all.takeError();
  const Tensor &logits = (*all)[graph_.output("logits")];
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
                                         bool float64) {
  if (graph_.hasRows())
    for (size_t i : round.scenarios)
      if (int64_t(text) < scenarios_[i].texts && tokens <= scenarios_[i].call.tokens())
        return rowOf(i, int64_t(text), tokens - 1, float64);
  // Logits of the last token alone: the graph runs once for each prefix.
  Tensor &kept = prefixes_[{&round, text, tokens, float64}];
  if (kept.valid())
    return kept;
  GraphCall call;
  call.texts.assign(graph_.fixedBatch() ? graph_.fixedBatch() : 1,
                    TokenIds(round.texts[text].begin(), round.texts[text].begin() + tokens));
  auto arguments = graph_.arguments(call);
  if (!arguments)
    return arguments.takeError();
  auto outputs = graph_.run(*arguments, float64);
  if (!outputs)
    return outputs.takeError();
  const Tensor &logits = (*outputs)[graph_.output("logits")];
  kept = Tensor(logits.dtype(), {columnsOf(graph_, logits)});
  std::memcpy(kept.raw(), logits.raw(), kept.bytes());
  return kept;
}

} // namespace gpt2c
