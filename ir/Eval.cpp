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
  // Data movement keeps the stored type, whatever inference declared (the executor may run in
  // double precision).
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

void forEachBroadcastRun(
    llvm::ArrayRef<int64_t> out, llvm::ArrayRef<llvm::ArrayRef<int64_t>> ins,
    llvm::function_ref<void(int64_t, int64_t, llvm::ArrayRef<int64_t>, llvm::ArrayRef<int64_t>)>
        f) {
  // The run is the longest suffix of axes along which each operand is either whole or broadcast.
  auto dim = [&](size_t j, size_t axis) { // of operand j along an axis of the result
    size_t missing = out.size() - ins[j].size();
    return axis < missing ? 1 : ins[j][axis - missing];
  };
  llvm::SmallVector<int64_t, 4> step(ins.size(), -1); // -1: not known yet, any step will do
  int64_t length = 1;
  size_t cut = out.size();
  for (; cut > 0 && out[cut - 1] != 0; --cut) {
    if (out[cut - 1] == 1)
      continue;
    bool fits = true;
    for (size_t j = 0; j < ins.size(); ++j) {
      int64_t s = dim(j, cut - 1) == 1 ? 0 : 1;
      fits &= step[j] < 0 || step[j] == s;
    }
    if (!fits)
      break;
    for (size_t j = 0; j < ins.size(); ++j)
      step[j] = dim(j, cut - 1) == 1 ? 0 : 1;
    length *= out[cut - 1];
  }
  for (int64_t &s : step)
    s = std::max<int64_t>(s, 0);
  // The axes before the run, with operand shapes cut alike; element indices scale by the operand's
  // part of the run.
  llvm::SmallVector<llvm::ArrayRef<int64_t>, 4> outer;
  for (llvm::ArrayRef<int64_t> in : ins)
    outer.push_back(in.drop_back(std::min(in.size(), out.size() - cut)));
  llvm::SmallVector<int64_t, 4> at(ins.size());
  forEachBroadcast(out.take_front(cut), outer, [&](int64_t o, llvm::ArrayRef<int64_t> index) {
    for (size_t j = 0; j < ins.size(); ++j)
      at[j] = index[j] * (step[j] ? length : 1);
    f(o * length, length, at, step);
  });
}

} // namespace gpt2c
