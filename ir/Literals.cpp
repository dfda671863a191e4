// Literals as text and back. Printing and parsing are each other's inverse, and stand together.
#include "ir/Literals.h"

#include "ir/DimBounds.h"
#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace gpt2c {

// Printing

void printQuoted(llvm::StringRef s, llvm::raw_ostream &os) {
  os << '"';
  llvm::printEscapedString(s, os);
  os << '"';
}

/// `bits` is what a NaN with a payload or a sign is shown as.
template <typename T>
static void printFloatAs(T v, uint64_t bits, bool plainNaN, llvm::raw_ostream &os) {
  if (std::isnan(v)) {
    if (plainNaN)
      os << "nan";
    else
      os << "0x" << llvm::utohexstr(bits, /*LowerCase=*/true);
    return;
  }
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  llvm::StringRef text(buffer, end - buffer);
  os << text;
  if (llvm::all_of(text, [](char c) { return llvm::isDigit(c) || c == '-'; }))
    os << ".0";
}

void printFloat(double v, llvm::raw_ostream &os) {
  uint64_t bits = std::bit_cast<uint64_t>(v);
  printFloatAs(v, bits, bits == 0x7ff8000000000000, os);
}

static void printElement(const Tensor &t, int64_t i, llvm::raw_ostream &os) {
  switch (t.dtype()) {
  case DType::F64:
    return printFloat(t.data<double>()[i], os);
  case DType::F32: {
    float v = t.data<float>()[i];
    uint32_t bits = std::bit_cast<uint32_t>(v);
    return printFloatAs(v, bits, bits == 0x7fc00000, os);
  }
  case DType::F16: {
    uint16_t bits = t.data<uint16_t>()[i];
    return printFloatAs(halfToFloat(bits), bits, bits == 0x7e00, os);
  }
  case DType::BF16: {
    uint16_t bits = t.data<uint16_t>()[i];
    return printFloatAs(bfloatToFloat(bits), bits, bits == 0x7fc0, os);
  }
  case DType::F8E4M3: {
    const Fp8 v = t.data<Fp8>()[i];
    return printFloatAs(float(v), v.bits, v.bits == 0x7f, os);
  }
  case DType::Bool:
    os << (t.data<uint8_t>()[i] ? "true" : "false");
    return;
  case DType::I4:
  case DType::I8:
  case DType::U8:
  case DType::I32:
  case DType::I64:
    os << t.asInt(i);
    return;
  }
}

bool isSplat(const Tensor &t) {
  if (packedElements(t.dtype()) > 1) {
    int64_t same = 1;
    while (same < t.count() && t.asInt(same) == t.asInt(0))
      ++same;
    return t.count() > 1 && same == t.count();
  }
  size_t size = byteSize(t.dtype());
  return t.count() > 1 &&
         std::memcmp(t.raw(), static_cast<const char *>(t.raw()) + size, t.bytes() - size) == 0;
}

static void printNested(const Tensor &t, unsigned axis, int64_t &next, llvm::raw_ostream &os) {
  if (axis == t.rank())
    return printElement(t, next++, os);
  os << '[';
  for (int64_t i = 0; i < t.dim(axis); ++i) {
    if (i)
      os << ", ";
    printNested(t, axis + 1, next, os);
  }
  os << ']';
}

void printDense(const Tensor &t, llvm::raw_ostream &os) {
  int64_t next = 0;
  if (t.count() == 0)
    os << "[]";
  else if (isSplat(t) && t.count() <= splatLimit)
    printElement(t, 0, os);
  else
    printNested(t, 0, next, os);
}

std::string attrText(const Attr &a) {
  std::string out;
  llvm::raw_string_ostream os(out);
  if (auto *b = std::get_if<bool>(&a)) {
    os << (*b ? "true" : "false");
  } else if (auto *i = std::get_if<int64_t>(&a)) {
    os << *i;
  } else if (auto *d = std::get_if<double>(&a)) {
    printFloat(*d, os);
  } else if (auto *s = std::get_if<std::string>(&a)) {
    printQuoted(*s, os);
  } else if (auto *t = std::get_if<DType>(&a)) {
    os << dtypeName(*t);
  } else if (auto *dims = std::get_if<Dims>(&a)) {
    os << '[';
    llvm::interleaveComma(*dims, os);
    os << ']';
  }
  return out;
}

std::string hashText(uint64_t hash) {
  std::string digits = llvm::utohexstr(hash, /*LowerCase=*/true); // its width gives zero 17 digits
  return std::string(16 - digits.size(), '0') + digits;
}

// Parsing

static bool parseInteger(TokenStream &s, const Token &t, bool negative, int64_t &out) {
  uint64_t magnitude;
  uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + negative;
  if (t.text.getAsInteger(10, magnitude) || magnitude > limit)
    return s.error(t, "integer out of range");
  out = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return false;
}

namespace {

/// Sums, products and functions of dimensions.
class DimParser {
public:
  explicit DimParser(TokenStream &s) : s_(s) {}

  bool sum(Dim &out) {
    bool negative = s_.consume(Token::Minus);
    if (term(negative, out))
      return true;
    while (s_.at(Token::Plus) || s_.at(Token::Minus)) {
      Dim next;
      negative = s_.take().is(Token::Minus);
      if (term(negative, next))
        return true;
      out = out + next;
    }
    return false;
  }

private:
  /// factor ('*' factor)*
  bool term(bool negative, Dim &out) {
    out = Dim(1);
    do {
      if (s_.at(Token::Identifier)) {
        const Token name = s_.take();
        Dim value = Dim::symbol(name.text);
        if (s_.at(Token::LParen) && function(name, value))
          return true;
        out = out * value;
      } else if (s_.at(Token::Integer)) {
        int64_t value;
        Token t = s_.take();
        if (parseInteger(s_, t, negative, value))
          return true;
        out = out * Dim(value);
        negative = false;
      } else {
        return s_.unexpected("a dimension: an integer or a symbol");
      }
    } while (s_.consume(Token::Star));
    if (negative)
      out = out * Dim(-1);
    return false;
  }

  /// 'min' '(' sum ',' sum ')', 'max' alike, or 'floordiv' '(' sum ',' integer ')', behind the name
  bool function(const Token &name, Dim &out) {
    constexpr int deepest = 16;
    const bool divides = name.isWord("floordiv");
    if (!divides && !name.isWord("min") && !name.isWord("max"))
      return s_.error(name,
                      "'" + name.text + "' is no function of dimensions: min, max or floordiv");
    if (++depth_ > deepest)
      return s_.error(name, "functions of dimensions are nested too deep");
    Dim a, b;
    if (s_.expect(Token::LParen, "'('") || sum(a) || s_.expect(Token::Comma, "','"))
      return true;
    const Token second = s_.peek();
    if (sum(b) || s_.expect(Token::RParen, "')'"))
      return true;
    --depth_;
    if (divides && b.constant().value_or(0) < 1)
      return s_.error(second, "divides by a number of at least 1");
    out = divides              ? Dim::floorDiv(a, *b.constant(), {})
          : name.isWord("min") ? Dim::min(a, b, {})
                               : Dim::max(a, b, {});
    return false;
  }

  TokenStream &s_;
  int depth_ = 0;
};

} // namespace

bool parseDim(TokenStream &s, Dim &out) { return DimParser(s).sum(out); }

/// "f32, f16 or bool"
static std::string allDTypes() {
  std::string names;
  for (size_t t = 0; t < std::size(dtypeInfos); ++t)
    names += (t == 0                           ? ""
              : t + 1 == std::size(dtypeInfos) ? " or "
                                               : ", ") +
             dtypeInfos[t].name.str();
  return names;
}

bool parseType(TokenStream &s, Type &out) {
  if (!s.at(Token::Identifier))
    return s.unexpected("a type, such as f32[batch, 64]");
  Token name = s.take();
  std::optional<DType> dtype = parseDType(name.text);
  if (!dtype)
    return s.error(name, "'" + name.text + "' is no element type: " + allDTypes());
  out = Type{*dtype, {}};
  return s.list(Token::LSquare, Token::RSquare, [&] {
    Token at = s.peek();
    Dim d;
    if (parseDim(s, d))
      return true;
    if (d.constant().value_or(0) < 0)
      return s.error(at, "a negative dimension");
    out.shape.push_back(std::move(d));
    return false;
  });
}

bool parseHash(TokenStream &s, uint64_t &out) {
  Token t;
  if (s.expect(Token::String, "the hash in quotes", t))
    return true;
  if (t.value.size() != 16 || llvm::StringRef(t.value).getAsInteger(16, out))
    return s.error(t, "a hash has 16 hex digits");
  return false;
}

/// The number that `text` spells, rounded once to T.
template <typename T>
static bool parseFloatAs(TokenStream &s, const Token &t, bool negative, T &out) {
  if (t.isWord("inf")) {
    out = std::numeric_limits<T>::infinity();
  } else if (t.isWord("nan")) {
    out = std::numeric_limits<T>::quiet_NaN();
  } else if (t.is(Token::Integer) || t.is(Token::Float)) {
    auto result = std::from_chars(t.text.begin(), t.text.end(), out);
    if (result.ec == std::errc::result_out_of_range)
      return s.error(t, "number out of range");
  } else {
    return s.error(t, "'" + t.text.take_front(60) + "' is no number");
  }
  if (negative)
    out = -out;
  return false;
}

template <typename T> static bool parseBits(TokenStream &s, const Token &t, bool negative, T &out) {
  if (negative || t.text.drop_front(2).getAsInteger(16, out))
    return s.error(t, "the bits of a number have at most " + llvm::Twine(2 * sizeof(T)) +
                          " hex digits and no sign");
  return false;
}

static bool parseFloatAttr(TokenStream &s, double &out) {
  bool negative = s.consume(Token::Minus);
  if (s.at(Token::Invalid) || s.at(Token::Eof))
    return s.unexpected("a number");
  Token t = s.take();
  if (!t.is(Token::Bits))
    return parseFloatAs(s, t, negative, out);
  uint64_t bits;
  if (parseBits(s, t, negative, bits))
    return true;
  out = std::bit_cast<double>(bits);
  return false;
}

bool parseAttr(TokenStream &s, AttrKind kind, Attr &out) {
  switch (kind) {
  case AttrKind::Bool:
    if (!s.atWord("true") && !s.atWord("false"))
      return s.unexpected("true or false");
    out = s.take().isWord("true");
    return false;
  case AttrKind::Int: {
    bool negative = s.consume(Token::Minus);
    Token t;
    int64_t value;
    if (s.expect(Token::Integer, "an integer", t) || parseInteger(s, t, negative, value))
      return true;
    out = value;
    return false;
  }
  case AttrKind::Float: {
    double value;
    if (parseFloatAttr(s, value))
      return true;
    out = value;
    return false;
  }
  case AttrKind::String: {
    Token t;
    if (s.expect(Token::String, "a string in quotes", t))
      return true;
    out = std::move(t.value);
    return false;
  }
  case AttrKind::DType: {
    Token t;
    if (s.expect(Token::Identifier, "an element type", t))
      return true;
    std::optional<DType> dtype = parseDType(t.text);
    if (!dtype)
      return s.error(t, "'" + t.text + "' is no element type");
    out = *dtype;
    return false;
  }
  case AttrKind::Dims: {
    Dims dims;
    if (s.list(Token::LSquare, Token::RSquare, [&] { return parseDim(s, dims.emplace_back()); }))
      return true;
    out = std::move(dims);
    return false;
  }
  }
  return s.unexpected("an attribute");
}

/// An element, or a list of items of equal shape. `shape` receives the nesting.
static bool parseNested(TokenStream &s, unsigned depth, DenseLiteral &out,
                        llvm::SmallVectorImpl<int64_t> &shape) {
  constexpr unsigned maxDepth = 16;
  shape.clear();
  if (!s.at(Token::LSquare)) {
    DenseLiteral::Element e;
    e.negative = s.consume(Token::Minus);
    if (!s.at(Token::Integer) && !s.at(Token::Float) && !s.at(Token::Bits) &&
        !s.at(Token::Identifier))
      return s.unexpected("a number");
    e.token = s.take();
    out.elements.push_back(std::move(e));
    return false;
  }
  if (depth == maxDepth)
    return s.error(s.peek(), "lists nested too deeply");
  llvm::SmallVector<int64_t, 4> item, firstItem;
  int64_t length = 0;
  if (s.list(Token::LSquare, Token::RSquare, [&] {
        Token start = s.peek();
        if (parseNested(s, depth + 1, out, item))
          return true;
        if (length++ == 0)
          firstItem = item;
        return item == firstItem ? false : s.error(start, "differs in shape from the item before");
      }))
    return true;
  shape.push_back(length);
  shape.append(firstItem);
  return false;
}

bool parseDense(TokenStream &s, DenseLiteral &out) {
  out.loc = s.peek().loc();
  return parseNested(s, 0, out, out.shape);
}

template <typename T>
static bool storeInteger(TokenStream &s, const DenseLiteral::Element &e, T &out) {
  if (!e.token.is(Token::Integer))
    return s.error(e.token, "'" + e.token.text.take_front(60) + "' is no integer");
  int64_t value;
  if (parseInteger(s, e.token, e.negative, value))
    return true;
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
    return s.error(e.token, "integer out of range for the element type");
  out = static_cast<T>(value);
  return false;
}

/// An element stored as `Bits`, which `toBits` makes from F: the bits of F, or the narrower
/// float's.
template <typename F, typename Bits>
static bool storeFloat(TokenStream &s, const DenseLiteral::Element &e, Tensor &t, int64_t i,
                       Bits (*toBits)(F)) {
  Bits bits = 0;
  F value = 0;
  if (e.token.is(Token::Bits)) {
    if (parseBits(s, e.token, e.negative, bits))
      return true;
  } else {
    if (parseFloatAs(s, e.token, e.negative, value))
      return true;
    bits = toBits(value);
  }
  std::memcpy(static_cast<char *>(t.raw()) + i * sizeof(Bits), &bits, sizeof(Bits));
  return false;
}

static bool storeElement(TokenStream &s, const DenseLiteral::Element &e, Tensor &t, int64_t i) {
  switch (t.dtype()) {
  case DType::F64:
    return storeFloat(s, e, t, i, +[](double v) { return std::bit_cast<uint64_t>(v); });
  case DType::F32:
    return storeFloat(s, e, t, i, +[](float v) { return std::bit_cast<uint32_t>(v); });
  case DType::F16:
    return storeFloat(s, e, t, i, floatToHalf);
  case DType::BF16:
    return storeFloat(s, e, t, i, floatToBfloat);
  case DType::F8E4M3:
    return storeFloat(s, e, t, i, floatToFp8);
  case DType::I4: {
    int8_t value;
    if (storeInteger(s, e, value))
      return true;
    if (value < -8 || value > 7)
      return s.error(e.token, "integer out of range for the element type");
    t.store(i, double(value));
    return false;
  }
  case DType::I8:
    return storeInteger(s, e, t.data<int8_t>()[i]);
  case DType::U8:
    return storeInteger(s, e, t.data<uint8_t>()[i]);
  case DType::I32:
    return storeInteger(s, e, t.data<int32_t>()[i]);
  case DType::I64:
    return storeInteger(s, e, t.data<int64_t>()[i]);
  case DType::Bool:
    if (e.negative || (!e.token.isWord("true") && !e.token.isWord("false")))
      return s.error(e.token, "an element of a bool constant is true or false");
    t.data<uint8_t>()[i] = e.token.isWord("true");
    return false;
  }
  return true;
}

bool toTensor(TokenStream &s, const DenseLiteral &literal, const Type &type, Tensor &out) {
  llvm::SmallVector<int64_t, 4> shape;
  int64_t count = 1;
  for (const Dim &d : type.shape) {
    if (!d.isConstant())
      return s.error(literal.loc,
                     "a constant has no symbolic dimensions; its type is " + type.str());
    shape.push_back(*d.constant());
    if (__builtin_mul_overflow(count, shape.back(), &count))
      return s.error(literal.loc, "a constant too large: " + type.str());
  }
  bool repeated = literal.shape.empty() && count > 1;
  if (repeated && count > splatLimit)
    return s.error(literal.loc, "one element cannot stand for more than " +
                                    llvm::Twine(splatLimit) + "; the type is " + type.str());
  bool empty = count == 0 && literal.elements.empty();
  if (!repeated && !empty && llvm::ArrayRef(literal.shape) != llvm::ArrayRef(shape)) {
    std::string found;
    llvm::raw_string_ostream os(found);
    llvm::interleaveComma(literal.shape, os);
    return s.error(literal.loc,
                   "the elements have the shape [" + found + "], the type is " + type.str());
  }
  out =
      packedElements(type.dtype) > 1 ? Tensor::zeros(type.dtype, shape) : Tensor(type.dtype, shape);
  for (auto [i, e] : llvm::enumerate(literal.elements))
    if (storeElement(s, e, out, static_cast<int64_t>(i)))
      return true;
  if (repeated && packedElements(type.dtype) > 1)
    out.store(0, std::vector<double>(size_t(count), out.asDouble(0)));
  else if (repeated) {
    size_t size = byteSize(type.dtype);
    char *bytes = static_cast<char *>(out.raw());
    for (int64_t i = 1; i < count; ++i)
      std::memcpy(bytes + i * size, bytes, size);
  }
  return false;
}

} // namespace gpt2c
