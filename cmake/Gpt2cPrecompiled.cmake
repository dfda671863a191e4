# Headers that most files of the compiler include, compiled once: they are two thirds of what a file
# takes. Libraries, programs and tests have one each: code of a library is position independent in
# another way, and GoogleTest brings macros. runtime/ has none: it may not see LLVM. A file includes
# what it uses all the same; builds without them, as the fuzz preset is, see to that. ccache does
# without: it could not find what another folder compiled.
if(CCACHE_PROGRAM)
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(GPT2C_PCH "Precompile the headers that most files include" ${precompile})

set(precompiled_headers
    <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric>
    <optional> <set> <span> <string> <string_view> <thread> <utility> <vector>
    <llvm/ADT/ArrayRef.h> <llvm/ADT/DenseMap.h> <llvm/ADT/STLExtras.h> <llvm/ADT/SmallVector.h>
    <llvm/ADT/StringExtras.h> <llvm/ADT/StringMap.h> <llvm/ADT/StringRef.h>
    <llvm/Support/Error.h> <llvm/Support/FormatVariadic.h> <llvm/Support/raw_ostream.h>)

# gpt2c_precompile(<target>...): gives those that exist, all over LLVM, the precompiled headers.
function(gpt2c_precompile)
  foreach(target ${ARGN})
    if(NOT GPT2C_PCH OR NOT TARGET ${target})
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(links ${target} LINK_LIBRARIES)
    if("GTest::gtest" IN_LIST links)
      gpt2c_pch(gpt2c_pch_tests)
      target_precompile_headers(${target} REUSE_FROM gpt2c_pch_tests)
    elseif(type STREQUAL "EXECUTABLE")
      gpt2c_pch(gpt2c_pch_programs)
      target_precompile_headers(${target} REUSE_FROM gpt2c_pch_programs)
    elseif(NOT type STREQUAL "INTERFACE_LIBRARY")
      gpt2c_pch(gpt2c_pch_libraries)
      target_precompile_headers(${target} REUSE_FROM gpt2c_pch_libraries)
    endif()
  endforeach()
endfunction()

function(gpt2c_pch pch)
  if(TARGET ${pch})
    return()
  endif()
  set(source "${CMAKE_BINARY_DIR}/generated/${pch}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(${pch} OBJECT "${source}")
  target_link_libraries(${pch} PRIVATE gpt2c_dep_llvm)
  target_precompile_headers(${pch} PRIVATE ${precompiled_headers})
  if(NOT pch STREQUAL "gpt2c_pch_libraries")
    set_target_properties(${pch} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${pch} PRIVATE -fPIE)
  endif()
  if(pch STREQUAL "gpt2c_pch_tests")
    find_package(GTest REQUIRED)
    target_link_libraries(${pch} PRIVATE GTest::gtest)
    target_precompile_headers(${pch} PRIVATE <gtest/gtest.h>)
  endif()
endfunction()
