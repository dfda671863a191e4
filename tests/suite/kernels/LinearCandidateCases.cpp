// linear: whatever the compiler or the tuner may choose.
#include "LinearCases.h"

#include "templates/linear/Kernels.h"

#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <set>

namespace gpt2c::kernels {

namespace {
/// Adds a case for a configuration that was listed for a product of that shape; the case is a
/// smaller product of the same K.
struct CandidateCase {
  Suite &suite;
  const std::string &label;
  LinearShape s;
  int k = int(s.k), some = int(std::min<int64_t>(s.rows, 150));

  std::string group(const char *kernel) const {
    // A group is a module, and modules are compiled in parallel.
    return std::string(kernel) + " candidates rows " + std::to_string(s.rows) + " k " +
           std::to_string(k);
  }
  Epilogue epilogue() const { return s.w == Scalar::I8 ? scaledBias(s.x) : bias(s.x); }

  void operator()(const LinearRowDotConfig &c) const {
    fewRows(suite, group("linear_rowdot"), linearRowDot, label.c_str(), c, {c.x, c.w},
            rowDotColumns(c), epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearRowsConfig &c) const {
    rows(suite, group("linear_rows"), label.c_str(), c, epilogue(), {{some, 302, k}});
  }
  void operator()(const LinearStreamTmaConfig &c) const {
    streamTma(suite, label, c, s.w == Scalar::I8 ? scaledBias(s.x) : plain, {{some, 2500, k}});
  }
  void operator()(const LinearStreamRingConfig &c) const {
    stream(suite, label.c_str(), c, plain, {{some, 2500, k}});
  }
  void operator()(const LinearStreamConfig &c) const {
    stream(suite, label.c_str(), c, s.w == Scalar::I8 ? scaledBias(s.x) : plain, {{some, 2500, k}});
  }
  void operator()(const LinearQuantisedRowsConfig &c) const {
    fewRows(suite, group("linear_quantised_rows"), linearQuantisedRows, label.c_str(), c,
            {Scalar::F16, Scalar::I8}, quantisedRowsColumns(c), epilogue(), {{some, 301, k}},
            c.wGroup);
  }
  void operator()(const LinearTmaConfig &c) const {
    // Columns that some configurations have to fill, and lines leave whole where they do.
    const int n = c.statistics || c.bn == 192 || c.normParts > 0 ? 2 * c.bn : 301;
    tma(suite, label.c_str(), c, epilogue(), {{some, n, k}});
  }
  void operator()(const LinearTf32Config &c) const {
    tf32(suite, group("linear_tf32"), label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearWgmmaConfig &c) const {
    wgmma(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearMmaConfig &c) const {
    mma(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearSimtConfig &c) const {
    simt(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }

  template <typename Config> bool addAs(const LinearCandidate &c) const {
    const Config *config = c.get<Config>();
    if (config)
      (*this)(*config);
    return config;
  }
  /// False: it is of a kernel that this does not know.
  bool add(const LinearCandidate &c) const {
    return addAs<LinearRowDotConfig>(c) || addAs<LinearRowsConfig>(c) ||
           addAs<LinearStreamTmaConfig>(c) || addAs<LinearStreamRingConfig>(c) ||
           addAs<LinearStreamConfig>(c) || addAs<LinearQuantisedRowsConfig>(c) ||
           addAs<LinearTmaConfig>(c) || addAs<LinearTf32Config>(c) || addAs<LinearWgmmaConfig>(c) ||
           addAs<LinearMmaConfig>(c) || addAs<LinearSimtConfig>(c);
  }
};
} // namespace

/// Every configuration that the compiler or the tuner takes for a product of GPT-2 124M, from the
/// lists that they choose from.
void addLinearCandidates(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  std::set<std::string> done;
  auto add = [&](LinearShape s, const LinearFusions &duties) {
    s.target = Target::of({"sm_90a"});
    for (const LinearCandidate &c : linearCandidates({s, duties})) {
      std::string label = "candidate " + c.name + (s.x == f16 ? " f16" : " f32") +
                          (s.w == Scalar::I8 ? " x i8" : "") +
                          (duties.norm != FusedNorm::None ? " norm" : "") +
                          (duties.statistics ? " statistics" : "");
      if (s.rows <= 64)
        label += " rows " + std::to_string(s.rows);
      if (done.insert(label + " " + std::to_string(s.k)).second)
        if (!CandidateCase{suite, label, s}.add(c))
          llvm::report_fatal_error(("no case for candidates of " + c.kernel->name()).str().c_str());
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
        duties.norm = FusedNorm::Layer, duties.plainNorm = true;
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

} // namespace gpt2c::kernels
