#include "tools/gpt2c-compare/Compare.h"

#include "tools/runtime-common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <cmath>

namespace gpt2c {

const ValueError *Comparison::first() const {
  auto it = llvm::find_if(errors, [&](const ValueError &e) { return isOver(e); });
  return it == errors.end() ? nullptr : &*it;
}

const ValueError *Comparison::worst() const {
  auto it = llvm::max_element(
      errors, [&](const ValueError &a, const ValueError &b) { return judged(a) < judged(b); });
  return it == errors.end() ? nullptr : &*it;
}

std::string opName(const Value &v) {
  std::string out = v.def()->info().mnemonic.str();
  if (v.def()->info().attr("activation") && v.def()->stringAttr("activation") != "none")
    out += "+" + v.def()->stringAttr("activation");
  return out;
}

std::string onnxName(const Value &v) {
  const auto &nodes = v.def()->locations;
  if (nodes.empty())
    return v.name;
  // Ops share the nodes of what they have in common, as a mask: one of its own says more.
  auto isOwn = [&](llvm::StringRef node) {
    return llvm::none_of(v.def()->function()->ops(), [&](auto &op) {
      return op.get() != v.def() && llvm::is_contained(op->locations, node);
    });
  };
  auto own = llvm::find_if(nodes, isOwn);
  std::string out = v.name.empty() ? (own == nodes.end() ? nodes.front() : *own).str() : v.name;
  if (v.name.empty() && nodes.size() > 1)
    out += " +" + std::to_string(nodes.size() - 1);
  return out;
}

static std::string shapeText(const ValueError &e) {
  std::string out;
  for (int64_t d : e.shape)
    out += (out.empty() ? "" : ", ") + std::to_string(d);
  return "[" + out + "]";
}

static std::string partsText(llvm::ArrayRef<WorstPart> parts) {
  std::string out;
  for (const WorstPart &p : parts)
    out += (out.empty() ? "" : ", ") + std::to_string(p.index) + " (" + threeDigits(p.error) + ")";
  return out;
}

static std::string lostText(const ValueError &e) {
  std::string out;
  if (e.nans)
    out += std::to_string(e.nans) + " NaN";
  if (e.infinities)
    out += (out.empty() ? "" : ", ") + std::to_string(e.infinities) + " infinite";
  if (!out.empty() && e.made)
    out += ", made here";
  return out;
}

static std::string number(double error) { return std::isinf(error) ? "lost" : threeDigits(error); }

std::string describeFirst(const Comparison &c) {
  const std::string what = c.totals ? "tensor" : "step";
  const ValueError *e = c.first();
  if (!e) {
    const ValueError *worst = c.worst();
    if (!worst)
      return "nothing was compared\n";
    return "no " + what + (c.totals ? " is off by more than " : " adds more than ") +
           threeDigits(c.tolerance) + "; the most is " + number(c.judged(*worst)) + ", by step " +
           std::to_string(worst->step) + ", " + printable(worst->value->def()->describe()) + "\n";
  }
  std::string out = "the first " + what + " over the tolerance: step " + std::to_string(e->step);
  if (e->step < c.steps.size())
    out += " " + printable(c.steps[e->step]);
  out += ", " + printable(e->value->def()->describe()) + "\n";
  const Difference &d = e->hasAdded ? e->added : e->total;
  if (e->standsFor && e->standsFor != e->value)
    out += "  it stands for " + printable(e->standsFor->def()->describe()) + "\n";
  if (!c.totals)
    out += "  it adds " + number(e->added.relative) + " of a row and " + threeDigits(e->channel) +
           " of a channel where " + threeDigits(c.tolerance) +
           " is allowed; all errors up to it: " + number(e->total.relative) + "\n";
  else
    out += "  it is off by " + number(e->total.relative) + " of a row where " +
           threeDigits(c.tolerance) + " is allowed\n";
  if (d.at >= 0)
    out += "  most at " + describeElement("element", e->shape, d) + "\n";
  if (!e->channels.empty())
    out += "  worst channels: " + partsText(e->channels) +
           "\n  worst tokens: " + partsText(e->tokens) + "\n";
  if (e->nans + e->infinities > 0)
    out += "  " + lostText(*e) + "\n";
  return out;
}

void printTable(const Comparison &c, llvm::raw_ostream &os) {
  os << "@" << c.call.function << " of " << printable(c.plan) << " on " << c.device << ", "
     << c.call.batch() << " x " << c.call.tokens() << " tokens, against " << printable(c.against)
     << "\n";
  Table table({">step", "op", "ONNX", "shape", ">adds", ">channel", ">total", "worst", ""});
  for (const ValueError &e : c.errors) {
    std::string worst;
    if (!e.tokens.empty() && !e.channels.empty())
      worst = "token " + std::to_string(e.tokens[0].index) + ", channel " +
              std::to_string(e.channels[0].index);
    std::string mark = c.isOver(e) ? "OVER" : "";
    if (std::string lost = lostText(e); !lost.empty())
      mark += (mark.empty() ? "" : ": ") + lost;
    table.addRow({std::to_string(e.step), printable(opName(*e.value)),
                  printable(onnxName(*e.value)), shapeText(e),
                  e.hasAdded ? number(e.added.relative) : "-",
                  e.hasAdded ? threeDigits(e.channel) : "-",
                  e.standsFor ? number(e.total.relative) : "-", worst, mark});
  }
  table.print(os);
  os << describeFirst(c);
}

//===-- JSON --------------------------------------------------------------------------------===//

static llvm::json::Value finite(double x) {
  return std::isfinite(x) ? llvm::json::Value(x) : llvm::json::Value(nullptr);
}

static llvm::json::Array partsArray(llvm::ArrayRef<WorstPart> parts) {
  llvm::json::Array out;
  for (const WorstPart &p : parts)
    out.push_back(llvm::json::Object{{"index", p.index}, {"error", finite(p.error)}});
  return out;
}

static llvm::json::Object objectOf(const Comparison &c, const ValueError &e) {
  llvm::json::Array nodes, shape(e.shape);
  for (llvm::StringRef node : e.value->def()->locations)
    nodes.push_back(llvm::json::fixUTF8(node));
  llvm::json::Object out{{"step", int64_t(e.step)},
                         {"op", opName(*e.value)},
                         {"name", llvm::json::fixUTF8(e.value->name)},
                         {"nodes", std::move(nodes)},
                         {"shape", std::move(shape)},
                         {"nan", e.nans},
                         {"infinite", e.infinities},
                         {"made_here", e.made},
                         {"over", c.isOver(e)}};
  if (e.step < c.steps.size())
    out["kernel"] = llvm::json::fixUTF8(c.steps[e.step]);
  if (e.standsFor) {
    out["total"] = finite(e.total.relative);
    out["channels"] = partsArray(e.channels);
    out["tokens"] = partsArray(e.tokens);
  }
  if (e.hasAdded) {
    out["added"] = finite(e.added.relative);
    out["added_channel"] = finite(e.channel);
  }
  return out;
}

void printJson(const Comparison &c, llvm::raw_ostream &os) {
  llvm::json::Array steps;
  for (const ValueError &e : c.errors)
    steps.push_back(objectOf(c, e));
  const ValueError *first = c.first();
  llvm::json::Object root{{"plan", llvm::json::fixUTF8(c.plan)},
                          {"device", llvm::json::fixUTF8(c.device)},
                          {"against", llvm::json::fixUTF8(c.against)},
                          {"function", c.call.function},
                          {"batch", c.call.batch()},
                          {"tokens", c.call.tokens()},
                          {"tolerance", c.tolerance},
                          {"first_over", first ? llvm::json::Value(first - c.errors.data())
                                               : llvm::json::Value(nullptr)},
                          {"values", std::move(steps)}};
  os << llvm::json::Value(std::move(root)) << "\n";
}

} // namespace gpt2c
