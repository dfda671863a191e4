// gpt2c-serve: the command line, and what follows from it.
#pragma once

#include "server/http/HttpServer.h"
#include "tools/runtime-common/DeviceFlags.h"
#include "tools/runtime-common/EngineFlags.h"

#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

enum class LogFormat { Text, Json, None };

struct ServeFlags {
  ServeFlags();

  /// What is wrong with values that only make sense together, or with files that are named.
  rt::Status check();
  serve::HttpOptions http() const;
  serve::ServiceOptions service() const;
  serve::ModelOptions model() const;
  serve::ModelOptions embedder() const;

  std::string plan;
  DeviceFlags device;
  LogFormat logFormat = LogFormat::Text;
  double drainTimeout = 60;
  std::string tokenizer;
  std::string embeddings; ///< a plan; empty: none

  Flags flags;

private:
  void addLimits();

  serve::HttpOptions http_;
  std::vector<std::string> names_, keys_;
  std::string keyFile_, templateFile_, otlp_;
  std::optional<serve::SpanTarget> spans_;
  std::optional<std::string> template_;
  rt::Pooling pooling_ = rt::Pooling::Last;
  int32_t parser_ = -1; ///< a serve::ToolFormat; -1: the template's
  int32_t sequences_ = 0, rows_ = 0, streamInterval_ = 1;
  int64_t queued_ = 1024, queuedTokens_ = 0;
  EngineFlags engine_;
  rt::EngineOptions engineOptions_;
  bool prefixCaching_ = true;
  int64_t headerBytes_ = 16 * 1024, bodyBytes_ = 8 * 1024 * 1024;
  double idle_ = 75, read_ = 30, write_ = 30, request_ = 0, ping_ = 30;
};

} // namespace gpt2c
