#include "runtime/session/SelfTest.h"

#include "tools/gpt2c-run/Run.h"
#include "tools/runtime-common/Table.h"

#include <iostream>

namespace gpt2c {

static const char *nameOf(rt::SelfTestCheck::Outcome outcome) {
  return outcome == rt::SelfTestCheck::Pass   ? "PASS"
         : outcome == rt::SelfTestCheck::Fail ? "FAIL"
                                              : "skipped";
}

rt::Status runSelfTest(rt::Session &session) {
  rt::Result<rt::SelfTestReport> report = rt::selfTest(session);
  if (!report)
    return report.status();
  Table table({"check", "result", "what"});
  for (const rt::SelfTestCheck &check : report->checks)
    table.addRow({check.what, nameOf(check.outcome), printable(check.detail)});
  std::cout << "self-test on " << session.backend().name() << "\n";
  table.print(std::cout);
  std::cout.flush();
  if (report->passed())
    return {};
  std::string failed;
  for (const rt::SelfTestCheck &check : report->checks)
    if (check.outcome == rt::SelfTestCheck::Fail)
      failed += (failed.empty() ? "" : ", ") + check.what;
  return {rt::Code::Quality, "this machine does not run the plan as it was compiled: " + failed +
                                 "; --device=cpu tells whether the plan or the device is at fault"};
}

} // namespace gpt2c
