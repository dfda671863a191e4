#include "LinearCandidates.h"

#include "LinearProblem.h"

#include "llvm/Support/ErrorHandling.h"

#include <map>
#include <set>

namespace gpt2c::kernels {

std::string LinearCandidateCase::group(llvm::StringRef kernel) const {
  // A group is a module, and modules are compiled in parallel.
  return kernel.str() + " candidates rows " + std::to_string(problem.rows) + " k " +
         std::to_string(k);
}
Epilogue LinearCandidateCase::scales() const {
  return problem.w == Scalar::I8 ? scaledBias(problem.x) : plain;
}
Epilogue LinearCandidateCase::epilogue() const {
  return problem.w == Scalar::I8 ? scaledBias(problem.x) : bias(problem.x);
}

static std::map<std::string, LinearCandidates::Add, std::less<>> &registeredCandidates() {
  static std::map<std::string, LinearCandidates::Add, std::less<>> adders;
  return adders;
}

void LinearCandidates::add(llvm::StringRef kernel, Add add) {
  registeredCandidates().emplace(kernel.str(), std::move(add));
}

static void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearCandidate &c) {
  auto it = registeredCandidates().find(c.kernel->name().str());
  if (it == registeredCandidates().end())
    llvm::report_fatal_error(
        ("the test of " + c.kernel->name() + " has no LinearCandidates").str().c_str());
  it->second(suite, of, c);
}

static void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  std::set<std::string> done;
  auto add = [&](LinearShape s, const LinearFusions &duties) {
    s.target = Target::of({"sm_90a"});
    for (const LinearCandidate &c : linearCandidates({s, duties})) {
      std::string label = "candidate " + c.name + (s.x == f16 ? " f16" : " f32") +
                          (s.w == Scalar::I8 ? " x i8" : "") +
                          (duties.norm != NormKind::None ? " norm" : "") +
                          (duties.statistics ? " statistics" : "");
      if (s.rows <= 64)
        label += " rows " + std::to_string(s.rows);
      if (done.insert(label + " " + std::to_string(s.k)).second)
        addCandidate(suite, {label, s}, c);
    }
  };
  struct Weights {
    int64_t n, k;
    bool norm;
  };
  for (Weights w : {Weights{2304, 768, true},
                    {3072, 768, true},
                    {768, 768, false},
                    {768, 3072, false},
                    {50257, 768, true}})
    for (int64_t rows : {1, 2, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
      const bool vocabulary = w.n > 16384;
      if (vocabulary && rows > 256)
        continue;
      LinearFusions duties;
      if (w.norm)
        duties.norm = NormKind::Layer, duties.plainNorm = true;
      duties.best = vocabulary;
      LinearFusions inSums = duties;
      if (rows > 32 && w.norm)
        inSums.normParts = 8;
      inSums.statistics = rows > 32 && !w.norm;
      duties.gain = f16;
      add({f16, f16, vocabulary ? f32 : f16, w.n, w.k, rows},
          rows > 32 && !vocabulary ? inSums : duties);
      if (rows > 16)
        add({f16, f16, f16, w.n, w.k, rows}, {});
      if (rows > 32 && rows <= 512 && !vocabulary) {
        inSums.gain = f16;
        add({f16, Scalar::I8, f16, w.n, w.k, rows}, inSums);
      } else if (rows <= 256) {
        add({f16, Scalar::I8, f16, w.n, w.k, rows}, duties);
      }
      duties.gain = f32;
      const bool few = rows <= (vocabulary ? 4 : 8);
      LinearShape single{f32, f32, f32, w.n, w.k, rows};
      single.tf32 = true;
      add(single, few ? duties : LinearFusions{});
      single.tf32 = false;
      if (!few && !vocabulary)
        add(single, {});
    }
}

static const Cases cases(addCases);

} // namespace gpt2c::kernels
