// Writes the source of one kernel: a config struct named after it, its entry point, and the call of
// the template's function. A parameter is declared where the call passes it, once.
#pragma once

#include "codegen/KernelSource.h"
#include "ir/Type.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/Twine.h"

namespace gpt2c {

/// How a kernel stores elements of a type: "float", "__half", "Truth" for bool.
constexpr llvm::StringRef cudaType(DType t) { return infoOf(t).device; }
inline const char *cudaBool(bool b) { return b ? "true" : "false"; }

class KernelWriter {
public:
  /// `function` of the template in `header` is what the entry point calls, with the config as its
  /// template argument. None: the text of the entry point is given to finish().
  KernelWriter(llvm::StringRef name, llvm::StringRef header, llvm::StringRef function = {});

  const std::string &name() const { return kernel_.name; }
  std::string config() const { return kernel_.name + "Config"; }
  /// Another file of templates/ that the text needs.
  void include(llvm::StringRef header);
  /// Text in front of the entry point.
  void before(const llvm::Twine &text) { before_ += text.str(); }

  //===-- members of the config ---------------------------------------------------------------===//
  void type(llvm::StringRef name, const llvm::Twine &cuda);
  void type(llvm::StringRef name, Scalar s);
  void constant(llvm::StringRef name, int64_t value);
  void real(llvm::StringRef name, float value);
  void flag(llvm::StringRef name, bool value);
  void member(const llvm::Twine &line) { members_ += "  " + line.str() + "\n"; }
  /// That many blocks along x and z are one thread block cluster where there is such a thing.
  void cluster(int x, int z);

  //===-- parameters of the entry point, each an argument of the call -------------------------===//
  /// Elements that are read, or written; what is not `present` is no parameter, and the call passes
  /// a null pointer.
  void in(llvm::StringRef name, Scalar s, bool present = true);
  void out(llvm::StringRef name, Scalar s, bool present = true);
  /// A parameter of another type; not `present`: `absent` is passed.
  void value(llvm::StringRef type, llvm::StringRef name) { pass(declare(type, name)); }
  void value(llvm::StringRef type, llvm::StringRef name, bool present,
             llvm::StringRef absent = "nullptr");
  void i32(llvm::StringRef name) { value("int", name); }
  void f32(llvm::StringRef name) { value("float", name); }
  void map(llvm::StringRef name);
  /// An argument of the call that is no parameter.
  void pass(const llvm::Twine &expression);
  /// What `parts` passes is one argument of the call, a struct in braces.
  void group(llvm::function_ref<void()> parts);
  /// A parameter that stands in an expression; returns its name.
  std::string declare(llvm::StringRef type, llvm::StringRef name);
  /// The kernel computes what it can without this one where it is null.
  void optional(llvm::StringRef name) { kernel_.optional.push_back(name.str()); }
  /// Declares the parameters of a scale that is given; returns the expression that applies it.
  std::string given(Given g);

  //===-- the end -----------------------------------------------------------------------------===//
  /// Asserts that constants of the template's class `type`, instantiated with the config, are what
  /// the host takes them for: neither side can differ.
  void check(llvm::StringRef type, llvm::StringRef constant, int64_t value);
  void check(const llvm::Twine &condition);
  /// The same of `threads` and `sharedBytes`, by what finish() is told.
  void checkSizes(llvm::StringRef type) { sized_ = type; }
  /// Ends with the call. `blocks` of the kernel are meant to share an SM: registers are limited to
  /// that.
  KernelSource finish(unsigned threads, unsigned sharedBytes = 0, unsigned blocks = 0);
  /// Ends with `body`, lines of the entry point.
  KernelSource finishWith(const llvm::Twine &body, unsigned threads, unsigned sharedBytes = 0,
                          unsigned blocks = 0);

private:
  /// The header of elements of that type, where it is apart from what all templates include.
  void includeType(llvm::StringRef cuda);

  KernelSource kernel_;
  std::string function_, members_, before_, attribute_, params_, passed_, sized_, checks_;
};

} // namespace gpt2c
