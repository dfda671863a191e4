#include "passes/proof/masks/MaskTable.h"

namespace gpt2c {

void MaskTable::Operand::load(int64_t b, int64_t h, int64_t q,
                              llvm::MutableArrayRef<double> row) const {
  int64_t begin = b * strides[0] + h * strides[1] + q * strides[2];
  if (strides[3] != 0)
    return values.load(begin, row);
  values.load(begin, row.take_front(1));
  std::fill(row.begin() + 1, row.end(), row.front());
}

/// A tensor that broadcasts to the scores; none for any other.
std::optional<MaskTable::Operand> MaskTable::operand(Tensor t) {
  const int64_t sizes[] = {size_.batch, size_.heads, size_.queries, size_.keys};
  if (t.rank() > 4)
    return std::nullopt;
  Operand o;
  int64_t stride = 1;
  for (unsigned i = 0; i < t.rank(); ++i) {
    int64_t axis = 3 - i, length = t.dim(int(t.rank() - 1 - i));
    if (length != 1 && length != sizes[axis])
      return std::nullopt;
    o.strides[axis] = length == 1 ? 0 : stride;
    stride *= length;
  }
  if (o.strides[0])
    batches_ = size_.batch;
  if (o.strides[1])
    heads_ = size_.heads;
  o.values = std::move(t);
  return o;
}

std::optional<MaskTable> MaskTable::evaluate(const Function &f, llvm::ArrayRef<ScoreStep> steps,
                                             const llvm::SmallBitVector &which, Value *keyMask,
                                             const MaskSize &size, std::string &why) {
  MaskTable table;
  table.size_ = size;
  table.steps_.assign(steps.begin(), steps.end());
  table.operands_.resize(steps.size());
  table.fills_.resize(steps.size());
  llvm::SmallVector<Value *> wanted;
  llvm::SmallVector<Operand *> places;
  for (unsigned i : which.set_bits()) {
    if (steps[i].isScale())
      continue;
    wanted.push_back(steps[i].operand);
    places.push_back(&table.operands_[i]);
    if (steps[i].fill) {
      wanted.push_back(steps[i].fill);
      places.push_back(&table.fills_[i]);
    }
  }
  Executor::Bindings bound;
  if (keyMask && size.keyMask)
    bound[keyMask] = size.keyMask->cast(keyMask->type.dtype);
  auto values = probeAll(f, wanted, std::move(bound), size.symbols, /*float64=*/false, &why);
  if (!values)
    return std::nullopt;
  for (auto [place, t] : llvm::zip_equal(places, *values)) {
    auto o = table.operand(std::move(t));
    if (!o) {
      why = "a mask does not broadcast to the scores";
      return std::nullopt;
    }
    *place = std::move(*o);
  }
  return table;
}

void MaskTable::row(int64_t b, int64_t h, int64_t q, const llvm::SmallBitVector &which,
                    llvm::MutableArrayRef<double> factor,
                    llvm::MutableArrayRef<double> added) const {
  const size_t keys = factor.size();
  std::fill(factor.begin(), factor.end(), 1.0);
  std::fill(added.begin(), added.end(), 0.0);
  first_.resize(keys);
  second_.resize(keys);
  auto multiply = [&](size_t k, double by) {
    factor[k] *= by;
    added[k] *= by;
  };
  for (auto [i, s] : llvm::enumerate(steps_)) {
    if (s.isScale()) {
      for (size_t k = 0; k < keys; ++k)
        multiply(k, s.scale());
      continue;
    }
    if (s.kind == ScoreStep::SubtractFrom)
      for (size_t k = 0; k < keys; ++k)
        multiply(k, -1);
    if (!which.test(i))
      continue;
    operands_[i].load(b, h, q, first_);
    if (s.fill)
      fills_[i].load(b, h, q, second_);
    switch (s.kind) {
    case ScoreStep::Multiply:
      for (size_t k = 0; k < keys; ++k)
        multiply(k, first_[k]);
      break;
    case ScoreStep::Divide:
      for (size_t k = 0; k < keys; ++k)
        multiply(k, 1 / first_[k]);
      break;
    case ScoreStep::Add:
    case ScoreStep::SubtractFrom:
      for (size_t k = 0; k < keys; ++k)
        added[k] += first_[k];
      break;
    case ScoreStep::Subtract:
      for (size_t k = 0; k < keys; ++k)
        added[k] -= first_[k];
      break;
    case ScoreStep::Keep:
    case ScoreStep::Replace: {
      const double keeps = s.kind == ScoreStep::Keep ? 1 : 0;
      for (size_t k = 0; k < keys; ++k) {
        const bool stays = first_[k] == keeps;
        factor[k] = stays ? factor[k] : 0;
        added[k] = stays ? added[k] : second_[k];
      }
      break;
    }
    case ScoreStep::Negate:
      break;
    }
  }
}

} // namespace gpt2c
