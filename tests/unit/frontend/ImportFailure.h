// What tests of refused models share.
#pragma once

#include "frontend/Import.h"
#include "ir/Error.h"
#include "tests/unit/frontend/OnnxGraph.h"

#include <gtest/gtest.h>

namespace gpt2c::test {

/// The import fails with `code`, and the message contains every text of `parts`.
inline void expectFailure(llvm::Expected<std::unique_ptr<Module>> result, ExitCode code,
                          std::initializer_list<const char *> parts) {
  ASSERT_FALSE(bool(result)) << "the import should fail";
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(result.takeError(), os), code) << text;
  for (const char *part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

inline void expectFailure(const OnnxGraph &g, ExitCode code,
                          std::initializer_list<const char *> parts) {
  expectFailure(importOnnxBytes(g.bytes(), "test.onnx"), code, parts);
}

} // namespace gpt2c::test
