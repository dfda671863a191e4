#include "ir/Eval.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

DType EvalContext::resultDType(unsigned i) const {
  DType declared = op_.result(i)->type.dtype;
  if (!isFloat(declared))
    return declared;
  for (const Tensor &t : inputs_)
    if (t.valid() && t.dtype() == DType::F64)
      return DType::F64;
  if (declared == DType::F64 || op_.info().has(DataMovement))
    return declared;
  return DType::F32;
}

Tensor &EvalContext::allocate(llvm::ArrayRef<int64_t> shape, unsigned i) {
  // Data movement keeps the stored type, whatever inference declared (the executor may run in double precision).
  DType dtype = op_.info().has(DataMovement) && has(0) ? inputs_[0].dtype() : resultDType(i);
  outputs_[i] = Tensor(dtype, shape);
  return outputs_[i];
}

llvm::Expected<std::vector<int64_t>> EvalContext::dims(llvm::StringRef name) const {
  std::vector<int64_t> out;
  for (const Dim &d : op_.dimsAttr(name)) {
    auto v = d.evaluate(symbols_);
    if (!v)
      return error("'" + name + "' uses a symbol without a value: " + d.str());
    out.push_back(*v);
  }
  return out;
}

std::vector<int64_t> EvalContext::ints(unsigned operand) const {
  std::vector<int64_t> out(inputs_[operand].count());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = inputs_[operand].asInt(i);
  return out;
}

llvm::Error EvalContext::error(const llvm::Twine &message) const {
  std::string shapes;
  llvm::raw_string_ostream os(shapes);
  for (const Tensor &t : inputs_) {
    os << (shapes.empty() ? "" : ", ");
    if (!t.valid()) {
      os << "none";
      continue;
    }
    os << dtypeName(t.dtype()) << "[";
    llvm::interleaveComma(t.shape(), os);
    os << "]";
  }
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 op_.describe() + ": " + message + "; inputs are " + os.str());
}

std::optional<llvm::SmallVector<int64_t, 4>> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                                             llvm::ArrayRef<int64_t> b) {
  size_t rank = std::max(a.size(), b.size());
  llvm::SmallVector<int64_t, 4> out(rank);
  for (size_t i = 0; i < rank; ++i) {
    int64_t x = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    int64_t y = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (x != y && x != 1 && y != 1)
      return std::nullopt;
    out[i] = x == 1 ? y : x;
  }
  return out;
}

void forEachBroadcast(llvm::ArrayRef<int64_t> out, llvm::ArrayRef<llvm::ArrayRef<int64_t>> ins,
                      llvm::function_ref<void(int64_t, llvm::ArrayRef<int64_t>)> f) {
  size_t rank = out.size(), k = ins.size();
  int64_t total = 1;
  for (int64_t d : out)
    total *= d;
  // stride[axis * k + operand], 0 where the operand is broadcast
  llvm::SmallVector<int64_t, 24> stride(rank * k, 0);
  for (size_t j = 0; j < k; ++j) {
    int64_t s = 1;
    for (size_t i = 0; i < ins[j].size(); ++i) {
      size_t axis = rank - 1 - i;
      int64_t d = ins[j][ins[j].size() - 1 - i];
      stride[axis * k + j] = d == 1 ? 0 : s;
      s *= d;
    }
  }
  llvm::SmallVector<int64_t, 8> counter(rank, 0), index(k, 0);
  for (int64_t o = 0; o < total; ++o) {
    f(o, index);
    for (size_t axis = rank; axis-- > 0;) {
      for (size_t j = 0; j < k; ++j)
        index[j] += stride[axis * k + j];
      if (++counter[axis] < out[axis])
        break;
      for (size_t j = 0; j < k; ++j)
        index[j] -= stride[axis * k + j] * out[axis];
      counter[axis] = 0;
    }
  }
}

} // namespace gpt2c
