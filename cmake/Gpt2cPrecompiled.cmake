# Headers that most files include, compiled once: they are two thirds of what a file takes. A group
# of targets shares one set, as code of a library is position independent in another way than a
# program's, GoogleTest brings macros, and the runtime may not see LLVM. A file includes what it
# uses all the same; builds without them, as the fuzz preset is, see to that. ccache is used where
# they are off: it could not find what another folder compiled with them.
option(GPT2C_PCH "Precompile the headers that most files include" ON)
if(NOT GPT2C_PCH)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
    set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  endif()
endif()

set(headers_std
    <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric>
    <optional> <set> <span> <string> <string_view> <thread> <utility> <vector>)
set(headers_llvm
    <llvm/ADT/ArrayRef.h> <llvm/ADT/DenseMap.h> <llvm/ADT/STLExtras.h> <llvm/ADT/SmallVector.h>
    <llvm/ADT/StringExtras.h> <llvm/ADT/StringMap.h> <llvm/ADT/StringRef.h>
    <llvm/Support/Error.h> <llvm/Support/FormatVariadic.h> <llvm/Support/raw_ostream.h>)
set(headers_plan <plan_generated.h>)
set(headers_tests <gtest/gtest.h>)
set(links_llvm gpt2c_dep_llvm)
set(links_plan gpt2c_plan_format)
set(links_tests GTest::gtest)

# Unit tests call optimised libraries; optimised whole they take half as long again to compile.
set(GPT2C_TEST_OPTIMISATION $<$<NOT:$<CONFIG:Debug>>:-O1>)

# gpt2c_precompile(<group> <program> PARTS <part>... TARGETS <target>...): gives those targets that
# exist the headers of std and of the parts: llvm, plan, tests. program: whether they are programs.
function(gpt2c_precompile group program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "PARTS;TARGETS")
  if(NOT GPT2C_PCH)
    return()
  endif()
  set(pch gpt2c_pch_${group})
  foreach(target ${arg_TARGETS})
    if(NOT TARGET ${target})
      continue()
    endif()
    if(NOT TARGET ${pch})
      set(source "${CMAKE_BINARY_DIR}/generated/${pch}.cpp")
      file(CONFIGURE OUTPUT "${source}" CONTENT "")
      add_library(${pch} OBJECT "${source}")
      target_precompile_headers(${pch} PRIVATE ${headers_std})
      foreach(part ${arg_PARTS})
        target_precompile_headers(${pch} PRIVATE ${headers_${part}})
        target_link_libraries(${pch} PRIVATE ${links_${part}})
      endforeach()
      if("tests" IN_LIST arg_PARTS)
        target_compile_options(${pch} PRIVATE ${GPT2C_TEST_OPTIMISATION})
      endif()
      if(program)
        set_target_properties(${pch} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
        target_compile_options(${pch} PRIVATE -fPIE)
      endif()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${pch})
    if("tests" IN_LIST arg_PARTS) # GCC takes no headers that were optimised otherwise
      target_compile_options(${target} PRIVATE ${GPT2C_TEST_OPTIMISATION})
    endif()
  endforeach()
endfunction()
