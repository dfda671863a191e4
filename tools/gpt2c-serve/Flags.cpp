#include "tools/gpt2c-serve/Serve.h"

#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/HttpUrl.h"
#include "tools/runtime-common/Report.h"

#include <cmath>

namespace gpt2c {

using serve::ToolFormat;

ServeFlags::ServeFlags()
    : flags("Serves a plan over HTTP, as OpenAI's API. Each flag has a twin in the environment: "
            "GPT2C_SERVE_PORT is --port.") {
  flags.environment("GPT2C_SERVE").argument("<plan>", plan);
  device.addTo(flags);
  flags.value("host", "address", "Address to listen at (default 127.0.0.1)", http_.host)
      .value("port", "N", "Port to listen at; 0: any that is free (default 8000)", http_.port)
      .list("api-key", "key", "A key that clients have to give; of several any one", keys_)
      .value("api-key-file", "file", "A file with such a key on each line", keyFile_)
      .commas("served-model-name", "name,..",
              "What clients call the model, the usual name first (default: the plan's file name)",
              names_)
      .value("tokenizer", "path", "A folder or tokenizer.json in place of the plan's tokenizer",
             tokenizer)
      .value("chat-template", "file", "A chat template in place of the plan's", templateFile_)
      .value("embeddings", "plan",
             "A plan of gpt2c --output-hidden beside the one that generates, for /v1/embeddings",
             embeddings)
      .choice("embedding-pooling", "What becomes of a text's hidden states", pooling_,
              {{"last", rt::Pooling::Last, "the last token's (default)"},
               {"mean", rt::Pooling::Mean, "the mean of all"}})
      .choice("tool-call-parser", "How the model writes calls of tools", parser_,
              {{"auto", -1, "as its chat template says (default)"},
               {"none", int32_t(ToolFormat::None), "they are text"},
               {"hermes", int32_t(ToolFormat::Hermes), "<tool_call>, as Hermes and Qwen do"},
               {"llama3", int32_t(ToolFormat::Llama3), "JSON alone, as Llama 3 does"},
               {"mistral", int32_t(ToolFormat::Mistral), "[TOOL_CALLS], as Mistral does"}})
      .choice("log-format", "Lines about requests, on stderr", logFormat,
              {{"text", LogFormat::Text, "words (default)"},
               {"json", LogFormat::Json, "an object a line"},
               {"none", LogFormat::None, "none"}})
      .value("otlp-endpoint", "http://HOST:PORT",
             "Where spans of requests are sent, as OTLP over HTTP (default: nowhere)", otlp_);
  addLimits();
}

void ServeFlags::addLimits() {
  engine_.addTo(flags);
  flags
      .value("max-num-seqs", "N", "Sequences that run at once; 0: as many as the device takes",
             sequences_)
      .value("max-num-batched-tokens", "N",
             "Rows of one step: next tokens and pieces of prompts; 0: 512 or what the plan takes",
             rows_)
      .value("max-num-queued-reqs", "N", "Requests that may wait (default 1024)", queued_)
      .value("max-num-queued-tokens", "N",
             "Prompt tokens of requests without a first token; 0: any number (default)",
             queuedTokens_)
      .value("prefix-caching", "0|1", "Share the pages of prompts that begin alike (default 1)",
             prefixCaching_)
      .value("stream-interval", "N", "New tokens of an event of a stream, at least (default 1)",
             streamInterval_)
      .value("http-threads", "N", "Threads for HTTP (default 2)", http_.threads)
      .value("max-connections", "N", "Open connections (default 4096)", http_.maxConnections)
      .value("max-header-bytes", "N", "Bytes of a request's head (default 16384)", headerBytes_)
      .value("max-body-bytes", "N", "Bytes of a request's body (default 8388608)", bodyBytes_)
      .value("idle-timeout", "seconds", "Between two requests of a connection (default 75)", idle_)
      .value("read-timeout", "seconds", "For a whole request to arrive (default 30)", read_)
      .value("write-timeout", "seconds", "For a client to take what it is sent (default 30)",
             write_)
      .value("request-timeout", "seconds", "For an answer to be made; 0: any time (default)",
             request_)
      .value("sse-ping-interval", "seconds",
             "Silence behind which a stream gets a comment; 0: none (default 30)", ping_)
      .value("drain-timeout", "seconds",
             "How long SIGTERM waits for answers that are being made (default 60)", drainTimeout);
}

/// The lines of a file that are not empty.
static rt::Status readLines(const std::string &path, std::vector<std::string> &to) {
  rt::Result<std::string> text = readInput(path);
  if (!text)
    return text.status();
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    std::string line = text->substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' '))
      line.pop_back();
    if (!line.empty())
      to.push_back(std::move(line));
    at = end + 1;
  }
  return {};
}

rt::Status ServeFlags::check() {
  struct Range {
    const char *flag;
    double value, least, most;
  };
  constexpr double many = 1e9;
  for (const Range &r :
       std::initializer_list<Range>{{"port", double(http_.port), 0, 65535},
                                    {"max-num-seqs", double(sequences_), 0, many},
                                    {"max-num-batched-tokens", double(rows_), 0, many},
                                    {"max-num-queued-reqs", double(queued_), 1, many},
                                    {"max-num-queued-tokens", double(queuedTokens_), 0, 1e15},
                                    {"stream-interval", double(streamInterval_), 1, many},
                                    {"http-threads", double(http_.threads), 1, 256},
                                    {"max-connections", double(http_.maxConnections), 1, 1e6},
                                    {"max-header-bytes", double(headerBytes_), 1024, 1e6},
                                    {"max-body-bytes", double(bodyBytes_), 1024, 1e10},
                                    {"idle-timeout", idle_, 0.001, 1e6},
                                    {"read-timeout", read_, 0.001, 1e6},
                                    {"write-timeout", write_, 0.001, 1e6},
                                    {"request-timeout", request_, 0, 1e6},
                                    {"sse-ping-interval", ping_, 0, 1e6},
                                    {"drain-timeout", drainTimeout, 0, 1e6}})
    if (!(r.value >= r.least && r.value <= r.most)) {
      char range[80];
      std::snprintf(range, sizeof range, "%.15g to %.15g", r.least, r.most);
      return {rt::Code::Usage, "--" + std::string(r.flag) + " goes from " + range};
    }
  if (http_.host == "localhost")
    http_.host = "127.0.0.1";
  if (!keyFile_.empty()) {
    if (rt::Status s = readLines(keyFile_, keys_); !s.ok())
      return s;
    if (keys_.empty())
      return {rt::Code::Usage, "'" + keyFile_ + "' has no key"};
  }
  for (const std::string &key : keys_)
    if (key.empty())
      return {rt::Code::Usage, "--api-key needs a key"};
  if (!otlp_.empty()) {
    rt::Result<HttpUrl> url = parseHttpUrl("--otlp-endpoint", otlp_);
    if (!url)
      return url.status();
    spans_ = {url->host, url->port, url->path.empty() ? "/v1/traces" : url->path};
  }
  if (rt::Status s = engine_.apply(engineOptions_); !s.ok())
    return s;
  if (!templateFile_.empty()) {
    rt::Result<std::string> text = readInput(templateFile_);
    if (!text)
      return text.status();
    template_ = text.take();
  }
  return {};
}

static std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(int64_t(std::ceil(seconds * 1000)));
}

serve::HttpOptions ServeFlags::http() const {
  serve::HttpOptions out = http_;
  out.maxHeaderBytes = uint32_t(headerBytes_);
  out.maxBodyBytes = uint64_t(bodyBytes_);
  out.idleTimeout = milliseconds(idle_);
  out.readTimeout = milliseconds(read_);
  out.writeTimeout = milliseconds(write_);
  return out;
}

serve::ServiceOptions ServeFlags::service() const {
  serve::ServiceOptions out;
  out.keys = keys_;
  out.maxQueuedTokens = queuedTokens_;
  out.streamInterval = streamInterval_;
  out.pingInterval = milliseconds(ping_);
  out.requestTimeout = milliseconds(request_);
  out.jsonLog = logFormat == LogFormat::Json;
  out.spans = spans_;
  out.pooling = pooling_;
  return out;
}

/// A path's name without its folder and what the kind of file is.
static std::string stemOf(const std::string &path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.rfind('.'));
}

serve::ModelOptions ServeFlags::embedder() const {
  serve::ModelOptions out = model();
  out.names.insert(out.names.begin(), stemOf(embeddings));
  return out;
}

serve::ModelOptions ServeFlags::model() const {
  serve::ModelOptions out;
  out.names = names_;
  if (out.names.empty())
    out.names.push_back(stemOf(plan));
  out.engine = engineOptions_;
  out.engine.maxSequences = sequences_;
  out.engine.rowBudget = rows_;
  out.engine.maxWaiting = queued_;
  out.engine.prefixCaching = prefixCaching_;
  out.chatTemplate = template_;
  if (parser_ >= 0)
    out.tools = ToolFormat(parser_);
  return out;
}

} // namespace gpt2c
