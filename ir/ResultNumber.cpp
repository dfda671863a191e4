#include "ir/ResultNumber.h"

namespace gpt2c {

int resultNumber(const Value &result) {
  int number = int(result.index());
  for (auto &op : result.def()->function()->ops()) {
    if (op.get() == result.def())
      break;
    number += int(op->numResults());
  }
  return number;
}

Value *resultAt(const Function &function, int number) {
  for (auto &op : function.ops()) {
    if (number >= 0 && number < int(op->numResults()))
      return op->result(unsigned(number));
    number -= int(op->numResults());
  }
  return nullptr;
}

} // namespace gpt2c
