#include "server/Mailbox.h"

#include <utility>

namespace gpt2c::serve {

void Mailbox::put(Item item) {
  std::lock_guard lock(mutex_);
  if (!wake_)
    return;
  const bool ends = item.update.ending.has_value();
  items_.push_back(std::move(item));
  if (!woken_ && (ends || items_.size() >= enough_)) {
    woken_ = true;
    enough_ = interval_;
    wake_();
  }
}

void Mailbox::close() {
  std::lock_guard lock(mutex_);
  wake_ = nullptr;
  items_.clear();
}

std::vector<Mailbox::Item> Mailbox::take() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  return std::exchange(items_, {});
}

void Delivery::dealtOutBy(Run run) {
  std::lock_guard lock(mutex_);
  run_ = std::move(run);
  dealing_ = false; // what was asked of the one before may never be done
}

void Delivery::put(const std::shared_ptr<Mailbox> &to, size_t choice, rt::Update &&update) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(together_, true))
    at_ = Clock::now();
  letters_.push_back({to, {choice, std::move(update), at_}});
}

void Delivery::flush() {
  {
    std::lock_guard lock(mutex_);
    together_ = false;
    if (dealing_ || letters_.empty())
      return;
    dealing_ = true;
    if (run_)
      return run_([self = shared_from_this()] { self->dealOut(); });
  }
  dealOut();
}

void Delivery::dealOut() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      dealt_.swap(letters_);
      dealing_ = !dealt_.empty();
      if (!dealing_)
        return;
    }
    for (Letter &letter : dealt_)
      letter.to->put(std::move(letter.item));
    dealt_.clear(); // its memory serves again
  }
}

} // namespace gpt2c::serve
