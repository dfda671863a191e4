// Sequences live at import time only: a list of tensors, taken apart at constant positions.
#include "frontend/Builders.h"

namespace gpt2c::onnxops {

void sequenceEmpty(NodeLowering &n) { n.outSequence({}); }

void sequenceConstruct(NodeLowering &n) {
  std::vector<Value *> elements;
  for (unsigned i = 0; i < n.numInputs(); ++i)
    elements.push_back(n.in(i));
  n.outSequence(std::move(elements));
}

/// The constant position in input `i`, counted from the front; at most `last`.
static std::optional<size_t> position(NodeLowering &n, unsigned i, size_t length, size_t last) {
  auto given = n.requiredConstants(i);
  if (n.failed())
    return std::nullopt;
  if (given->size() != 1) {
    n.invalid("the position must be one number");
    return std::nullopt;
  }
  int64_t p = given->front() < 0 ? given->front() + int64_t(length) : given->front();
  if (p >= 0 && p <= int64_t(last))
    return p;
  n.invalid("position " + llvm::Twine(given->front()) + " in a sequence of " + llvm::Twine(length));
  return std::nullopt;
}

void sequenceAt(NodeLowering &n) {
  llvm::ArrayRef<Value *> elements = n.sequence(0);
  if (!n.failed() && elements.empty())
    n.invalid("the sequence is empty");
  if (n.failed())
    return;
  if (auto p = position(n, 1, elements.size(), elements.size() - 1))
    n.out(elements[*p]);
}

void sequenceInsert(NodeLowering &n) {
  llvm::ArrayRef<Value *> old = n.sequence(0);
  std::vector<Value *> elements(old.begin(), old.end());
  Value *added = n.in(1);
  auto p = n.has(2) ? position(n, 2, elements.size(), elements.size()) : elements.size();
  if (n.failed())
    return;
  elements.insert(elements.begin() + *p, added);
  n.outSequence(std::move(elements));
}

void sequenceLength(NodeLowering &n) {
  n.out(n.constant(Tensor::scalar(static_cast<int64_t>(n.sequence(0).size()))));
}

void concatFromSequence(NodeLowering &n) {
  llvm::SmallVector<Value *> elements(n.sequence(0));
  int64_t axis = n.requiredInt("axis");
  if (n.intAttr("new_axis", 0))
    for (Value *&e : elements)
      e = n.unsqueeze(e, {axis});
  if (!n.failed() && elements.empty())
    n.invalid("the sequence is empty");
  n.out(n.concat(elements, axis));
}

/// Parts of one size (a scalar; the last may be smaller), of given sizes (a vector), or single
/// slices.
void splitToSequence(NodeLowering &n) {
  Value *x = n.in(0);
  int64_t axis = n.axis(n.intAttr("axis", 0), x);
  bool keepDims = n.intAttr("keepdims", 1) || n.has(1);
  std::vector<int64_t> given{1};
  if (n.has(1))
    given = n.requiredConstants(1).value_or(std::vector<int64_t>());
  if (n.failed())
    return;
  auto total = NodeLowering::staticDim(x, axis);
  bool oneSize = !n.has(1) || n.in(1)->type.rank() == 0;
  if (!total && oneSize) {
    n.unsupported("an axis of " + x->type.shape[axis].str() + " gives an unknown number of parts");
    return;
  }
  constexpr int64_t most = 4096;
  std::vector<int64_t> sizes = given;
  if (oneSize) {
    if (given.size() != 1 || given[0] < 1 || *total / given[0] >= most) {
      n.invalid("an axis of " + llvm::Twine(*total) + " cannot be split like this");
      return;
    }
    sizes.clear();
    for (int64_t begin = 0; begin < *total; begin += given[0])
      sizes.push_back(std::min(given[0], *total - begin));
  }
  std::vector<Value *> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    if (size < 0 || (total && size > *total - begin)) {
      n.invalid("the parts do not fit an axis of " + x->type.shape[axis].str());
      return;
    }
    Value *part = n.slice(x, axis, begin, begin + size);
    parts.push_back(keepDims ? part : n.squeeze(part, {axis}));
    begin += size;
  }
  if (total && begin != *total)
    n.invalid("the parts do not fill an axis of " + llvm::Twine(*total));
  n.outSequence(std::move(parts));
}

} // namespace gpt2c::onnxops
