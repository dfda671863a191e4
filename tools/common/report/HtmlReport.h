// A compilation as one HTML page that opens from disk: the graph before and after, remarks, the
// steps with their share of the roofline, the memory plan over time, the KV state.
#pragma once

#include "tools/common/report/GraphView.h"

#include "plan_generated.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <vector>

namespace gpt2c {

class HtmlReport {
public:
  /// Keeps what the page shows of the graph as imported, and what it is called; empty: the plan's
  /// name of the model.
  explicit HtmlReport(const Module &imported, std::string title = "");

  /// Writes the page for the module after the last stage and the plan made of it. Functions without
  /// GPU code have the costs of their ops in place of those of launches. Equal inputs give equal
  /// bytes.
  void write(const Module &module, const plan::PlanT &plan, llvm::raw_ostream &os) const;

private:
  std::vector<GraphView> imported_;
  std::string title_;
};

} // namespace gpt2c
