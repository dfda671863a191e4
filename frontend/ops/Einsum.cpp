// Einsum of one or two operands: sums, permutations and one product.
// https://onnx.ai/onnx/operators/onnx__Einsum.html
#include "frontend/Builders.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c::onnxops {

namespace {

/// A value and a letter for each of its axes.
struct Term {
  Value *value = nullptr;
  std::string axes;
};

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

std::string kept(llvm::StringRef axes, llvm::function_ref<bool(char)> keep) {
  std::string out;
  llvm::copy_if(axes, std::back_inserter(out), keep);
  return out;
}

/// Without "->" the result has the letters that occur once, in the order of the alphabet.
std::string impliedResult(llvm::ArrayRef<std::string> terms) {
  const std::string all = llvm::join(terms, "");
  std::string out = kept(all, [&](char c) { return llvm::count(all, c) == 1; });
  llvm::sort(out);
  return out;
}

std::optional<Equation> parse(NodeLowering &n) {
  std::string text = n.stringAttr("equation", "");
  llvm::erase_if(text, [](char c) { return c == ' '; });
  if (llvm::StringRef(text).contains("..."))
    return n.unsupported("an equation with '...' is not supported; name its axes"), std::nullopt;
  const auto [inputs, result] = llvm::StringRef(text).split("->");
  Equation e;
  llvm::SmallVector<llvm::StringRef> terms;
  inputs.split(terms, ',');
  for (llvm::StringRef term : terms)
    e.terms.push_back(term.str());
  e.result = llvm::StringRef(text).contains("->") ? result.str() : impliedResult(e.terms);
  auto isAxes = [](llvm::StringRef axes) {
    return llvm::all_of(axes, [](char c) { return llvm::isAlpha(c); });
  };
  if (!isAxes(e.result) || !llvm::all_of(e.terms, isAxes) || e.terms.size() != n.numInputs())
    return n.invalid("'" + text + "' is no equation of " + llvm::Twine(n.numInputs()) + " inputs"),
           std::nullopt;
  for (char c : e.result)
    if (llvm::count(e.result, c) > 1 || !llvm::StringRef(inputs).contains(c))
      return n.invalid("'" + text + "' has a result with the axis '" + llvm::Twine(c) +
                       "' twice, or of no input"),
             std::nullopt;
  if (e.terms.size() > 2)
    return n.unsupported("more than two operands are not supported"), std::nullopt;
  return e;
}

class Lowering {
public:
  Lowering(NodeLowering &n, Equation equation) : n_(n), e_(std::move(equation)) {}

  void run() {
    std::vector<Term> terms;
    for (unsigned i = 0; i < e_.terms.size(); ++i) {
      Term t{n_.in(i), e_.terms[i]};
      if (n_.failed())
        return;
      if (t.value->type.rank() != t.axes.size())
        return (void)n_.invalid("'" + t.axes + "' names " + llvm::Twine(t.axes.size()) +
                                " axes of an input that has " + llvm::Twine(t.value->type.rank()));
      for (char c : t.axes)
        if (llvm::count(t.axes, c) > 1)
          return (void)n_.unsupported("a diagonal, '" + t.axes + "', is not supported");
      terms.push_back(t);
    }
    for (size_t i = 0; i < terms.size(); ++i)
      terms[i] = summed(terms[i], terms.size() > 1 ? e_.terms[1 - i] : "");
    Term result = terms.size() == 1 ? terms[0] : product(terms[0], terms[1]);
    n_.out(permuted(result, e_.result).value);
  }

private:
  /// Sums over the axes that neither the result nor the other operand has.
  Term summed(const Term &t, llvm::StringRef other) {
    auto isKept = [&](char c) {
      return other.contains(c) || llvm::StringRef(e_.result).contains(c);
    };
    std::vector<int64_t> axes;
    for (size_t i = 0; i < t.axes.size(); ++i)
      if (!isKept(t.axes[i]))
        axes.push_back(int64_t(i));
    if (axes.empty())
      return t;
    return {n_.reduce(OpCode::ReduceSum, t.value, axes, false), kept(t.axes, isKept)};
  }

  Term permuted(const Term &t, const std::string &axes) {
    if (t.axes == axes)
      return t;
    std::vector<int64_t> perm;
    for (char c : axes)
      perm.push_back(int64_t(t.axes.find(c)));
    return {n_.transpose(t.value, perm), axes};
  }

  /// The last axes become `groups` axes, each of which stands for as many letters.
  Value *grouped(const Term &t, llvm::ArrayRef<size_t> groups) {
    if (n_.failed() || llvm::all_of(groups, [](size_t g) { return g == 1; }))
      return t.value;
    const Shape &shape = t.value->type.shape;
    size_t at = t.axes.size();
    for (size_t g : groups)
      at -= g;
    Dims dims(shape.begin(), shape.begin() + ptrdiff_t(at));
    for (size_t g : groups) {
      Dim count = 1;
      for (size_t i = 0; i < g; ++i)
        count = count * shape[at++];
      dims.push_back(count);
    }
    return n_.emit(OpCode::Reshape, {t.value}, {{"shape", dims}});
  }

  Term product(Term a, Term b) {
    auto in = [](const std::string &axes) {
      return [&axes](char c) { return llvm::StringRef(axes).contains(c); };
    };
    auto isBatch = [&](char c) { return in(a.axes)(c) && in(b.axes)(c); };
    const std::string batch = kept(e_.result, isBatch);
    // What is constant is the second operand of a product, as weights are.
    if (batch.empty() && a.value->def() && a.value->def()->is(OpCode::Constant))
      std::swap(a, b);
    const std::string summed =
        kept(a.axes, [&](char c) { return in(b.axes)(c) && !in(e_.result)(c); });
    const std::string left = kept(a.axes, [&](char c) { return !in(b.axes)(c); });
    const std::string right = kept(b.axes, [&](char c) { return !in(a.axes)(c); });
    a = permuted(a, batch + left + summed);
    b = permuted(b, batch + summed + right);
    Dims dims; // of the result
    for (const auto &[term, axes] : {std::pair(&a, batch + left), {&b, right}})
      for (char c : axes)
        dims.push_back(term->value->type.shape[term->axes.find(c)]);
    // Without a batch rows of `a` need no axis of their own.
    const bool keepsRows = batch.empty() && !left.empty();
    Value *x = keepsRows ? grouped(a, {summed.size()}) : grouped(a, {left.size(), summed.size()});
    Value *y = n_.matmul(x, grouped(b, {summed.size(), right.size()}));
    const bool isWhole = (keepsRows || left.size() == 1) && right.size() == 1;
    if (!isWhole && !n_.failed())
      y = n_.emit(OpCode::Reshape, {y}, {{"shape", dims}});
    return {y, batch + left + right};
  }

  NodeLowering &n_;
  Equation e_;
};

} // namespace

void einsum(NodeLowering &n) {
  if (auto equation = parse(n))
    Lowering(n, std::move(*equation)).run();
}

} // namespace gpt2c::onnxops
