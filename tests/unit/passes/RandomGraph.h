// Small random graphs.
#pragma once

#include "ir/Builder.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace gpt2c::test {

/// Random choices from a seed; or from given bytes, one for each choice, for as long as they last.
/// Real numbers come from the seed either way.
class Choices {
public:
  explicit Choices(uint64_t seed) : engine_(seed * 2654435761u + 1) {}
  explicit Choices(llvm::ArrayRef<uint8_t> bytes) : engine_(1), bytes_(bytes), given_(true) {}
  uint64_t below(uint64_t n) {
    if (!given_)
      return engine_() % n;
    uint8_t next = bytes_.empty() ? 0 : bytes_.front();
    bytes_ = bytes_.drop_front(!bytes_.empty());
    return next % n;
  }
  bool coin() { return below(2); }
  double real(double from, double to) {
    return from + (to - from) * double(engine_() >> 11) / double(1ull << 53);
  }
  template <typename T> T oneOf(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

private:
  std::mt19937_64 engine_;
  llvm::ArrayRef<uint8_t> bytes_;
  bool given_ = false;
};

/// A module with one function under construction. Inference errors end the test program: graphs
/// here are well typed.
class Graph {
public:
  explicit Graph(Choices choices)
      : choose(choices), function(*module.addFunction("f")), builder_(function) {}
  explicit Graph(uint64_t seed) : Graph(Choices(seed)) {}

  Value *argument(Type type, std::string name) {
    return function.addArgument(std::move(type), std::move(name));
  }
  Value *operator()(OpCode code, llvm::ArrayRef<Value *> operands,
                    llvm::ArrayRef<NamedAttr> attrs = {}) {
    return llvm::cantFail(builder_.value(code, operands, attrs));
  }
  /// A commutative op, its operands in either order.
  Value *either(OpCode code, Value *a, Value *b) {
    return choose.coin() ? (*this)(code, {a, b}) : (*this)(code, {b, a});
  }
  Value *scalar(double v) {
    Tensor t = Tensor::scalar<float>(float(v));
    return builder_.constant(choose.coin() ? t : t.reshaped({1}));
  }
  Value *constant(const Tensor &t) { return builder_.constant(t); }
  Value *index(int64_t v) { return builder_.constant(Tensor::scalar<int64_t>(v)); }
  /// Random floats in [-1, 1].
  Value *random(llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<float>()[i] = float(choose.real(-1, 1));
    return builder_.constant(t);
  }
  void ret(llvm::ArrayRef<Value *> values) { builder_.ret(values); }

  Tensor randomInput(llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F64, shape);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<double>()[i] = choose.real(-2, 2);
    return t;
  }

  Choices choose;
  Module module;
  Function &function;

private:
  Builder builder_;
};

} // namespace gpt2c::test
