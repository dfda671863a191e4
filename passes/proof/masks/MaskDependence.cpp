#include "passes/proof/masks/MaskDependence.h"

#include "passes/proof/Lengths.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

namespace {

/// Elements of what steps read, by head, by where query and key stand among all tokens, and by the
/// key's own entry in the key mask.
class MaskElements {
public:
  MaskElements(const ScorePath &path, const Value *keyMask)
      : shape_(path.scores->type.shape), keyMask_(keyMask), at_(elements.variablesOf(path.scores)),
        place_(elements.variable(shape_[3])) {}

  std::vector<Elements::Ref> of(llvm::ArrayRef<ScoreStep> steps,
                                const llvm::SmallBitVector &which) {
    std::vector<Elements::Ref> all;
    for (unsigned i : which.set_bits())
      for (const Value *v : {steps[i].operand, steps[i].fill})
        if (v && !steps[i].isScale())
          all.push_back(of(v));
    return all;
  }

  Allowed allowed() const {
    Allowed allowed;
    allowed.number = [this](const Dim &d) {
      return onlyUses(d, [this](llvm::StringRef name) {
        const Dim symbol = Dim::symbol(name);
        return symbol == head() || symbol == key() || symbol == place_;
      });
    };
    allowed.read = [this](const Element &e) {
      auto is = [&](unsigned i, const Dim &d) {
        return e.operands[i]->kind == Element::Number && e.operands[i]->number == d;
      };
      return keyMask_ && e.value == keyMask_ && e.operands.size() == 2 && is(0, at_[0]->number) &&
             is(1, key());
    };
    return allowed;
  }

  Elements elements;
  const Dim &head() const { return at_[1]->number; }
  const Dim &key() const { return at_[3]->number; }
  const Dim &place() const { return place_; }

private:
  Elements::Ref of(const Value *v) {
    llvm::SmallVector<Elements::Ref, 4> own;
    for (size_t axis = 0, skip = 4 - v->type.rank(); axis < v->type.rank(); ++axis)
      own.push_back(v->type.shape[axis] == Dim(1) ? elements.number(0) : at_[skip + axis]);
    Elements::Ref e = elements.at(v, own);
    const Dim past = shape_[3] - shape_[2];
    if (auto query = at_[2]->number.asSymbol())
      return elements.substitute(e, *query, place_ - past);
    if (auto only = past.asSymbol()) // of one query the past says where it stands
      return elements.substitute(e, *only, place_);
    return e;
  }

  const Shape &shape_;
  const Value *keyMask_;
  llvm::SmallVector<Elements::Ref, 4> at_;
  Dim place_;
};

} // namespace

std::optional<Obstacle> maskDependence(const ScorePath &path, llvm::ArrayRef<ScoreStep> steps,
                                       const llvm::SmallBitVector &which, const Value *keyMask,
                                       int64_t context) {
  const Shape &s = path.scores->type.shape;
  MaskElements mask(path, keyMask);
  DependenceProof proof(mask.elements, {s[2], s[3], context}, mask.allowed());
  for (Elements::Ref e : mask.of(steps, which))
    if (auto why = proof.foreign(e)) {
      why->attribute = "mask";
      return why;
    }
  return std::nullopt;
}

bool isByOwnEntries(const ScorePath &path, const ScoreStep &step, const Value *keyMask) {
  MaskElements mask(path, keyMask);
  const Allowed allowed = mask.allowed();
  std::map<Elements::Ref, bool> seen;
  auto isOwn = [&](auto &self, Elements::Ref e, bool inside) -> bool {
    if (!seen.try_emplace(e, true).second)
      return true;
    if (e->kind == Element::Read && e->value == keyMask)
      return !inside && allowed.read(*e);
    if (e->kind == Element::Unknown)
      return !backwardSlice(e->op->result(), [](Value *) { return false; }).hasLeaf(keyMask);
    inside |= e->kind == Element::Reduced;
    return llvm::all_of(e->operands, [&](Elements::Ref o) { return self(self, o, inside); });
  };
  return llvm::all_of(mask.of(step, llvm::SmallBitVector(1, true)),
                      [&](Elements::Ref e) { return isOwn(isOwn, e, false); });
}

bool isTheSameBeyond(const ScorePath &path, llvm::ArrayRef<ScoreStep> steps,
                     const llvm::SmallBitVector &which, const Value *keyMask, int64_t shown,
                     int64_t most) {
  MaskElements mask(path, keyMask);
  const int64_t heads = path.scores->type.shape[1].constant().value_or(0);
  const Dim distance = mask.elements.variable(Dim(most));
  auto key = mask.key().asSymbol(), place = mask.place().asSymbol();
  if (!key || !place || heads < 1)
    return false;
  LaneMap lanes;
  std::vector<int64_t> &distances = lanes[*distance.asSymbol()];
  for (int64_t d = 1 - most; d < most; ++d)
    distances.push_back(d);
  const int64_t count = int64_t(distances.size());
  auto isAlike = [&](const Tensor &t) {
    const size_t size = byteSize(t.dtype());
    const char *bytes = static_cast<const char *>(std::as_const(t).raw());
    auto same = [&](int64_t d, int64_t as) {
      return std::memcmp(bytes + (d + most - 1) * size, bytes + (as + most - 1) * size, size) == 0;
    };
    for (int64_t d = shown; d < most; ++d)
      if (!same(d, shown - 1) || !same(-d, 1 - shown))
        return false;
    return true;
  };
  for (Elements::Ref e : mask.of(steps, which)) {
    // Place and key together are their distance, or this is no function of it.
    Elements::Ref byDistance = mask.elements.substitute(e, *key, mask.place() - distance);
    for (int64_t entry = 0; entry < (keyMask ? 2 : 1); ++entry)
      for (int64_t head = 0; head < heads; ++head) {
        if (auto symbol = mask.head().asSymbol())
          lanes[*symbol].assign(count, head);
        auto reads = [&](const Element &read) -> std::optional<Tensor> {
          Tensor t(DType::I64, {count}); // the key mask, the one thing that may be read
          std::fill_n(t.data<int64_t>(), count, 1 - entry);
          return t.cast(read.value->type.dtype);
        };
        auto values = evaluateLanes(mask.elements, byDistance, lanes, count, reads);
        if (!values || !isAlike(*values))
          return false;
      }
  }
  return true;
}

} // namespace gpt2c
