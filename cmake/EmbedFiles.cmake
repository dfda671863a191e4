# cmake -DOUTPUT=x.cpp -DFUNCTION=embeddedTemplates -DROOT=dir -DFILES=a.cuh;b.cuh -P EmbedFiles.cmake
# Writes the files as byte arrays, which hold any content of any size (string literals have a length
# limit), and a function that returns them by their paths relative to ROOT; templates/Embedded.h has
# its types.
list(SORT FILES)
set(arrays "")
set(table "")
set(index 0)
foreach(file ${FILES})
  file(RELATIVE_PATH name "${ROOT}" "${file}")
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND arrays "constexpr char file${index}[] = {${bytes}'\\0'};\n")
  string(APPEND table "    {\"${name}\", {file${index}, sizeof(file${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
if(index EQUAL 0)
  set(body "  return {};\n")
else()
  set(body "  static constexpr EmbeddedFile files[] = {\n${table}  };\n  return files;\n")
endif()
file(WRITE "${OUTPUT}"
"#include \"templates/Embedded.h\"

namespace gpt2c {
namespace {
${arrays}} // namespace

std::span<const EmbeddedFile> ${FUNCTION}();
std::span<const EmbeddedFile> ${FUNCTION}() {
${body}}
} // namespace gpt2c
")
