// The C API's chats, and what else the model's folder said of its texts.
#include "runtime/capi/CApi.h"

#include "runtime/text/Chat.h"
#include "runtime/text/TextGeneration.h"

using namespace gpt2c::rt;
using namespace gpt2c::rt::capi;

Result<Tokens> capi::chatTokens(const Tokenizer *tokenizer,
                                const gpt2c_conversation *conversation) {
  if (!conversation)
    return nullArgument("conversation");
  Result<gpt2c_conversation> c =
      readStruct<gpt2c_conversation>(conversation, GPT2C_CONVERSATION_INIT, "conversation");
  if (!c)
    return c.status();
  if (!c->messages && c->message_count)
    return nullArgument("conversation.messages");
  if (!tokenizer)
    return {Code::Unsupported, "the plan has no tokenizer; compile it with gpt2c --tokenizer"};
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < c->message_count; ++i) {
    const gpt2c_message &m = c->messages[i];
    if (!m.role || !m.content)
      return nullArgument(m.role ? "conversation.messages[].content"
                                 : "conversation.messages[].role");
    messages.push_back({m.role, m.content});
  }
  Result<Chat> chat = Chat::of(*tokenizer, c->chat_template ? c->chat_template : "");
  if (!chat)
    return chat.status();
  return chat->tokens(messages, c->context ? c->context : "");
}

gpt2c_status gpt2c_chat_tokens(const gpt2c_plan *plan, const gpt2c_conversation *conversation,
                               int32_t *tokens, size_t capacity, size_t *count) {
  return guarded([&]() -> Status {
    if (!plan || !count || (!tokens && capacity))
      return nullArgument(!plan ? "plan" : count ? "tokens" : "count");
    const Result<Tokens> prompt = chatTokens(plan->tokenizer.get(), conversation);
    if (prompt)
      store(*prompt, tokens, capacity, count);
    return prompt.status();
  });
}

gpt2c_status gpt2c_plan_end_tokens(const gpt2c_plan *plan, int32_t *tokens, size_t capacity,
                                   size_t *count) {
  return guarded([&]() -> Status {
    if (!plan || !count || (!tokens && capacity))
      return nullArgument(!plan ? "plan" : count ? "tokens" : "count");
    store(endsOfText(plan->plan->meta().eos_token, plan->tokenizer.get()), tokens, capacity, count);
    return {};
  });
}

gpt2c_status gpt2c_plan_get_sampling(const gpt2c_plan *plan, gpt2c_sampling *sampling) {
  return guarded([&]() -> Status {
    if (!plan || !sampling)
      return nullArgument(plan ? "sampling" : "plan");
    gpt2c_sampling known = GPT2C_SAMPLING_INIT;
    if (plan->tokenizer && plan->tokenizer->texts().sampling) {
      const SamplingParams advised = advisedSampling(*plan->tokenizer->texts().sampling);
      known.temperature = advised.temperature;
      known.top_p = advised.topP;
      known.min_p = advised.minP;
      known.top_k = advised.topK;
      known.repetition_penalty = advised.repetitionPenalty;
    }
    return writeStruct(known, sampling, "sampling");
  });
}
