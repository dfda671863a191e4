// A library with the entry points of NVRTC that gpt2c binds, whose image of a program is the text
// that NVRTC would compile: the program with every file of ours in the place of its #include. Plans
// made with it show all that codegen decides, in seconds; no GPU loads them. See
// scripts/plans-neutral.py.
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace {

struct Program {
  std::string text;
};

/// `text` with the files it includes, each once but for those without #pragma once. Lines of
/// comments are left out, and so are the names of files: moving them changes nothing.
void expand(const std::string &text, const std::map<std::string, std::string> &files,
            std::set<std::string> &seen, std::string &out) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line.compare(first, 2, "//") == 0)
      continue;
    if (line.compare(0, 10, "#include \"") != 0) {
      out += line + "\n";
      continue;
    }
    const std::string name = line.substr(10, line.find('"', 10) - 10);
    auto file = files.find(name);
    if (file == files.end())
      out += line + "\n";
    else if (file->second.find("#pragma once") == std::string::npos || seen.insert(name).second)
      expand(file->second, files, seen, out);
  }
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
EXPORT int nvrtcGetNumSupportedArchs(int *count) {
  *count = 6;
  return 0;
}
EXPORT int nvrtcGetSupportedArchs(int *archs) {
  for (int arch : {80, 86, 89, 90, 100, 120})
    *archs++ = arch;
  return 0;
}
EXPORT const char *nvrtcGetErrorString(int) { return "no error"; }
EXPORT int nvrtcCreateProgram(Program **program, const char *text, const char *, int count,
                              const char *const *texts, const char *const *names) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < count; ++i)
    files[names[i]] = texts[i];
  std::set<std::string> seen;
  *program = new Program;
  expand(text, files, seen, (*program)->text);
  return 0;
}
EXPORT int nvrtcDestroyProgram(Program **program) {
  delete *program;
  *program = nullptr;
  return 0;
}
EXPORT int nvrtcCompileProgram(Program *, int, const char *const *) { return 0; }
EXPORT int nvrtcGetProgramLogSize(Program *, size_t *size) {
  *size = 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(Program *, char *log) {
  *log = '\0';
  return 0;
}
/// The text behind the header of an ELF file without sections, which a plan's verifier asks for.
EXPORT int nvrtcGetCUBINSize(Program *program, size_t *size) {
  *size = sizeof(Elf64_Ehdr) + program->text.size();
  return 0;
}
EXPORT int nvrtcGetCUBIN(Program *program, char *to) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  std::memcpy(to, &header, sizeof header);
  std::copy(program->text.begin(), program->text.end(), to + sizeof header);
  return 0;
}
EXPORT int nvrtcGetPTXSize(Program *program, size_t *size) {
  *size = program->text.size() + 1;
  return 0;
}
EXPORT int nvrtcGetPTX(Program *program, char *to) {
  std::memcpy(to, program->text.c_str(), program->text.size() + 1);
  return 0;
}
