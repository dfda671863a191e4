#include "passes/quantize/Calibration.h"

#include "ir/Error.h"
#include "ir/ops/Quantize.h"

#include "llvm/Support/Base64.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace gpt2c {

void ActivationStats::count(float magnitude) {
  if (histogram_.empty())
    histogram_.assign(bins, 0);
  if (binWidth_ == 0) {
    if (magnitude == 0) {
      ++histogram_[0];
      return;
    }
    binWidth_ = 2 * magnitude / bins;
  }
  while (magnitude >= binWidth_ * bins) {
    for (size_t i = 0; i < bins / 2; ++i)
      histogram_[i] = histogram_[2 * i] + histogram_[2 * i + 1];
    std::fill(histogram_.begin() + bins / 2, histogram_.end(), 0);
    binWidth_ *= 2;
  }
  ++histogram_[std::min(bins - 1, static_cast<size_t>(magnitude / binWidth_))];
}

void ActivationStats::add(const float *x, int64_t count, bool firstOfWindow, int64_t sampleEvery) {
  channelMax.resize(channels);
  channelSquares.resize(channels);
  for (int64_t r = 0; r < count; ++r) {
    const float *row = x + r * channels;
    for (int64_t j = 0; j < channels; ++j) {
      float magnitude = std::fabs(row[j]);
      if (!std::isfinite(magnitude))
        continue;
      channelMax[j] = std::max(channelMax[j], magnitude);
      largest = std::max(largest, magnitude);
      if (!firstOfWindow || r > 0) {
        this->count(magnitude);
        channelSquares[j] += double(magnitude) * magnitude;
      }
    }
    if (sampleEvery && rows % sampleEvery == sampleEvery / 2)
      sample.insert(sample.end(), row, row + channels);
    ++rows;
  }
}

float ActivationStats::range(const Observer &observer) const {
  uint64_t total = 0;
  size_t last = 0;
  for (size_t i = 0; i < histogram_.size(); ++i) {
    total += histogram_[i];
    if (histogram_[i])
      last = i;
  }
  if (observer.kind == Observer::MinMax || total == 0 || binWidth_ == 0)
    return largest;
  auto edge = [&](size_t bin) {
    return std::min(largest, binWidth_ * static_cast<float>(bin + 1));
  };
  if (observer.kind == Observer::Percentile) {
    auto wanted = static_cast<uint64_t>(std::ceil(observer.percentile / 100 * double(total)));
    uint64_t seen = 0;
    for (size_t i = 0; i <= last; ++i)
      if ((seen += histogram_[i]) >= wanted)
        return edge(i);
    return edge(last);
  }
  double best = std::numeric_limits<double>::infinity();
  float range = edge(last);
  for (size_t bin = last; bin >= last / 16 + 1; --bin) {
    double candidate = edge(bin), step = candidate / int8Steps, error = 0;
    for (size_t i = 0; i <= last && error < best; ++i) {
      double v = (double(i) + 0.5) * binWidth_;
      // Inside the range values are spread over a step, except where a bin is wider than that.
      double inside =
          step > binWidth_ ? step * step / 12 : std::pow(v - std::rint(v / step) * step, 2);
      error += double(histogram_[i]) * (v <= candidate ? inside : std::pow(v - candidate, 2));
    }
    if (error < best) {
      best = error;
      range = static_cast<float>(candidate);
    }
  }
  return range;
}

static std::string encode(llvm::ArrayRef<float> values) {
  return llvm::encodeBase64(
      llvm::ArrayRef(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float)));
}

static llvm::Error decode(llvm::StringRef text, std::vector<float> &values) {
  std::vector<char> bytes;
  if (llvm::Error e = llvm::decodeBase64(text, bytes))
    return e;
  values.resize(bytes.size() / sizeof(float));
  if (!values.empty())
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return llvm::Error::success();
}

llvm::json::Object ActivationStats::toJson() const {
  llvm::json::Array histogram;
  for (uint64_t n : histogram_)
    histogram.push_back(n);
  return llvm::json::Object{
      {"rows", rows},
      {"channels", channels},
      {"largest", largest},
      {"bin_width", binWidth_},
      {"histogram", std::move(histogram)},
      {"channel_max", encode(channelMax)},
      {"channel_squares", encode(std::vector<float>(channelSquares.begin(), channelSquares.end()))},
      {"sample", encode(sample)}};
}

static llvm::Error broken(const llvm::Twine &what) {
  return makeError(ExitCode::Io, "these are no calibration statistics: " + what);
}

llvm::Expected<ActivationStats> ActivationStats::fromJson(const llvm::json::Object &o) {
  ActivationStats s;
  auto rows = o.getInteger("rows"), channels = o.getInteger("channels");
  auto largest = o.getNumber("largest"), width = o.getNumber("bin_width");
  const llvm::json::Array *histogram = o.getArray("histogram");
  auto channelMax = o.getString("channel_max"), sample = o.getString("sample");
  if (!rows || !channels || *channels < 1 || !largest || !(*largest >= 0) || !width ||
      !(*width >= 0) || !histogram || !channelMax || !sample)
    return broken("a field is missing or out of range");
  s.rows = *rows;
  s.channels = *channels;
  s.largest = static_cast<float>(*largest);
  s.binWidth_ = static_cast<float>(*width);
  for (const llvm::json::Value &v : *histogram) {
    auto n = v.getAsUINT64();
    if (!n)
      return broken("a histogram counts");
    s.histogram_.push_back(*n);
  }
  if (llvm::Error e =
          llvm::joinErrors(decode(*channelMax, s.channelMax), decode(*sample, s.sample)))
    return broken(llvm::toString(std::move(e)));
  std::vector<float> squares;
  if (auto text = o.getString("channel_squares"))
    if (llvm::Error e = decode(*text, squares))
      return broken(llvm::toString(std::move(e)));
  s.channelSquares.assign(squares.begin(), squares.end());
  if (s.histogram_.size() > bins || int64_t(s.channelMax.size()) != s.channels ||
      (!squares.empty() && int64_t(squares.size()) != s.channels) || s.sample.size() % s.channels)
    return broken("a list has the wrong length");
  return s;
}

const ActivationStats *Calibration::find(llvm::StringRef layer) const {
  auto it = layers.find(layer.str());
  return it == layers.end() ? nullptr : &it->second;
}

std::string Calibration::toJson() const {
  llvm::json::Object all;
  for (auto &[name, stats] : layers)
    all[llvm::json::fixUTF8(name)] = stats.toJson();
  llvm::json::Object o{{"format", "gpt2c calibration 1"},
                       {"tokens", tokens},
                       {"hash", hash},
                       {"layers", std::move(all)}};
  return llvm::formatv("{0}\n", llvm::json::Value(std::move(o)));
}

llvm::Expected<Calibration> Calibration::fromJson(llvm::StringRef text) {
  auto parsed = llvm::json::parse(text);
  if (!parsed)
    return broken(llvm::toString(parsed.takeError()));
  const llvm::json::Object *o = parsed->getAsObject();
  if (!o || o->getString("format").value_or("") != "gpt2c calibration 1" ||
      !o->getInteger("tokens") || !o->getString("hash") || !o->getObject("layers"))
    return broken("the header is missing");
  Calibration out;
  out.tokens = *o->getInteger("tokens");
  out.hash = o->getString("hash")->str();
  for (const auto &[name, value] : *o->getObject("layers")) {
    const llvm::json::Object *layer = value.getAsObject();
    if (!layer)
      return broken("a layer is an object");
    auto stats = ActivationStats::fromJson(*layer);
    if (!stats)
      return stats.takeError();
    out.layers.try_emplace(name.str(), std::move(*stats));
  }
  return out;
}

} // namespace gpt2c
