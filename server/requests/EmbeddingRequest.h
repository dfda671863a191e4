// What a body of /v1/embeddings asks for, and its answer.
#pragma once

#include "runtime/session/Embeddings.h"
#include "server/requests/GenerationRequest.h"

#include <functional>

namespace gpt2c::serve {

struct EmbeddingRequest {
  std::vector<rt::Tokens> inputs;
  rt::Pooling pooling = rt::Pooling::Last;
  bool normalised = true;
  bool base64 = false;    ///< of numbers of 32 bits, the low byte first
  int64_t dimensions = 0; ///< 0: as many as the model has
  std::string model;      ///< as the client calls it

  int64_t tokens() const;
};

/// Reads a body; `pooling` where it does not say one.
std::variant<EmbeddingRequest, ApiError> readEmbedding(const boost::json::value &body,
                                                       const Model &model,
                                                       const RequestLimits &limits,
                                                       rt::Pooling pooling);

/// The answer, which takes a call of the device for each input. `goesOn` is asked before each;
/// where it says no the answer is for nobody.
std::variant<std::string, ApiError> answerEmbedding(const EmbeddingRequest &request, Model &model,
                                                    const std::function<bool()> &goesOn);

} // namespace gpt2c::serve
