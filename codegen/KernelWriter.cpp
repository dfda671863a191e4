#include "codegen/KernelWriter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

KernelWriter::KernelWriter(llvm::StringRef name, llvm::StringRef header, llvm::StringRef function)
    : function_(function) {
  kernel_.name = name.str();
  include(header);
}

void KernelWriter::include(llvm::StringRef header) {
  if (!llvm::is_contained(kernel_.headers, header))
    kernel_.headers.push_back(header.str());
}

void KernelWriter::includeType(llvm::StringRef cuda) {
  if (cuda.contains(cudaType(DType::BF16)))
    include("templates/device/elements_bf16.cuh");
}

//===-- members -----------------------------------------------------------------------------===//

void KernelWriter::type(llvm::StringRef name, const llvm::Twine &cuda) {
  member("using " + name + " = " + cuda + ";");
}
void KernelWriter::type(llvm::StringRef name, Scalar s) {
  type(name, cudaType(s));
  includeType(cudaType(s));
}
void KernelWriter::constant(llvm::StringRef name, int64_t value) {
  member("static constexpr int " + name + " = " + llvm::Twine(value) + ";");
}
void KernelWriter::real(llvm::StringRef name, float value) {
  member("static constexpr float " + name + " = " + llvm::formatv("{0:E9}f", value).str() + ";");
}
void KernelWriter::flag(llvm::StringRef name, bool value) {
  member("static constexpr bool " + name + " = " + cudaBool(value) + ";");
}

void KernelWriter::cluster(int x, int z) {
  const std::string macro = kernel_.name + "Cluster";
  before("#if __CUDA_ARCH__ >= 900\n#define " + macro + " __cluster_dims__(" + llvm::Twine(x) +
         ", 1, " + llvm::Twine(z) + ")\n#else\n#define " + macro + "\n#endif\n");
  attribute_ = macro + " ";
}

//===-- parameters --------------------------------------------------------------------------===//

std::string KernelWriter::declare(llvm::StringRef type, llvm::StringRef name) {
  kernel_.params.push_back(name.str());
  params_ += (params_.empty() ? "" : ", ") + type.str() + (type.ends_with("*") ? "" : " ");
  params_ += name;
  includeType(type);
  return name.str();
}

void KernelWriter::pass(const llvm::Twine &expression) {
  passed_ += (passed_.empty() ? "" : ", ") + expression.str();
}

void KernelWriter::group(llvm::function_ref<void()> parts) {
  std::string before = std::move(passed_);
  passed_.clear();
  parts();
  const std::string grouped = std::move(passed_);
  passed_ = std::move(before);
  pass("{" + grouped + "}");
}

void KernelWriter::value(llvm::StringRef type, llvm::StringRef name, bool present,
                         llvm::StringRef absent) {
  pass(present ? declare(type, name) : absent.str());
}
void KernelWriter::in(llvm::StringRef name, Scalar s, bool present) {
  value(("const " + cudaType(s) + " *").str(), name, present);
}
void KernelWriter::out(llvm::StringRef name, Scalar s, bool present) {
  value((cudaType(s) + " *").str(), name, present);
}
void KernelWriter::map(llvm::StringRef name) { value("const __grid_constant__ TensorMap", name); }

std::string KernelWriter::given(Given g) {
  if (g == Given::None)
    return "quantised::AsTheyAre{}";
  const std::string inverse = declare("float", "yInverse");
  if (g != Given::ScaleAndZero)
    return (g == Given::Scale ? "quantised::ByScale{" : "quantised::ByFp8Scale{") + inverse + "}";
  return "quantised::ByScaleAndZero{" + inverse + ", " + declare("float", "yZero") + "}";
}

//===-- the end -----------------------------------------------------------------------------===//

void KernelWriter::check(const llvm::Twine &condition) {
  checks_ += (checks_.empty() ? "" : " && ") + condition.str();
}
void KernelWriter::check(llvm::StringRef type, llvm::StringRef constant, int64_t value) {
  check(type + "<" + config() + ">::" + constant + " == " + llvm::Twine(value));
}

KernelSource KernelWriter::finish(unsigned threads, unsigned sharedBytes, unsigned blocks) {
  const std::string instance = members_.empty() ? "" : "<" + config() + ">";
  return finishWith("  " + function_ + instance + "(" + passed_ + ");\n", threads, sharedBytes,
                    blocks);
}

KernelSource KernelWriter::finishWith(const llvm::Twine &body, unsigned threads,
                                      unsigned sharedBytes, unsigned blocks) {
  if (!sized_.empty()) {
    const std::string more = std::move(checks_);
    checks_.clear();
    check(sized_, "threads", threads);
    check(sized_, "sharedBytes", sharedBytes);
    if (!more.empty())
      check(more);
  }
  kernel_.threads = threads;
  kernel_.sharedBytes = sharedBytes;
  std::string &t = kernel_.text;
  if (!members_.empty())
    t += "struct " + config() + " {\n" + members_ + "};\n";
  t += before_;
  if (!checks_.empty())
    t += "static_assert(" + checks_ + ");\n";
  t += "extern \"C\" __global__ void " + attribute_ + "__launch_bounds__(" +
       std::to_string(threads) + (blocks > 0 ? ", " + std::to_string(blocks) : "") + ") " +
       kernel_.name + "(" + params_ + ") {\n";
  if (sharedBytes > 0)
    t += "  extern __shared__ uint4 dynamicShared[];\n";
  t += body.str() + "}\n";
  return std::move(kernel_);
}

} // namespace gpt2c
