#include "runtime/session/SelfTest.h"

#include "ir/Error.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Table.h"
#include "tools/gpt2c-run/Run.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static const char *nameOf(rt::SelfTestCheck::Outcome outcome) {
  return outcome == rt::SelfTestCheck::Pass   ? "PASS"
         : outcome == rt::SelfTestCheck::Fail ? "FAIL"
                                              : "skipped";
}

llvm::Error selfTest(rt::Session &session) {
  rt::Result<rt::SelfTestReport> report = rt::selfTest(session);
  if (!report)
    return toError(report.status());
  Table table({"check", "result", "what"});
  for (const rt::SelfTestCheck &check : report->checks)
    table.addRow({check.what, nameOf(check.outcome), printable(check.detail)});
  llvm::outs() << "self-test on " << session.backend().name() << "\n";
  table.print(llvm::outs());
  llvm::outs().flush();
  if (report->passed())
    return llvm::Error::success();
  std::string failed;
  for (const rt::SelfTestCheck &check : report->checks)
    if (check.outcome == rt::SelfTestCheck::Fail)
      failed += (failed.empty() ? "" : ", ") + check.what;
  return makeError(ExitCode::Quality,
                   "this machine does not run the plan as it was compiled: " + failed +
                       "; --device=cpu tells whether the plan or the device is at fault");
}

} // namespace gpt2c
