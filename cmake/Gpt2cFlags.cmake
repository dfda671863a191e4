# Compiler, linker and configuration flags that hold for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
# Optimised builds carry no debug info: installed binaries stay small. Debug has it.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
if(GPT2C_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
endif()
if(NOT GPT2C_ASSERTIONS)
  add_compile_definitions(NDEBUG)
endif()

# Warnings bind our own code only (target gpt2c_warnings); generated code and packages are included as SYSTEM.
add_library(gpt2c_warnings INTERFACE)
# Clang counts libstdc++ 12's stable_sort, which calls a function that C++17 deprecates, as ours. GCC 13, and GCC 12 under
# sanitizers, believe a std::optional or std::variant uninitialised, and GCC 12 that strings joined
# with + leave their buffer.
target_compile_options(gpt2c_warnings INTERFACE -Wall -Wextra $<$<BOOL:${GPT2C_WERROR}>:-Werror>
                       $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-array-bounds>)

add_compile_options(-ffunction-sections -fdata-sections -fno-plt)
add_link_options(-Wl,--gc-sections -Wl,--as-needed -Wl,-z,relro,-z,now)
include(CheckPIESupported)
check_pie_supported()

# Installed binaries must start on a machine without our packages: the C++ runtime travels inside. What is shared
# (libgpt2c_blas.so) is found relative to the binary, in the build tree as after an install.
if(GPT2C_SANITIZE)
  add_compile_options(-fsanitize=${GPT2C_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${GPT2C_SANITIZE})
else()
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
if(GPT2C_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
