# XGrammar, which structured output takes: a static library that scripts/setup.sh --grammar builds
# from its source package into .deps/xgrammar, or of GPT2C_XGRAMMAR_PATH. It is built with
# XGRAMMAR_LOG_CUSTOMIZE, so that it tells its warnings and prints none.
set(GPT2C_XGRAMMAR_PATH "${CMAKE_SOURCE_DIR}/.deps/xgrammar" CACHE PATH "Where XGrammar is installed")
if(NOT GPT2C_XGRAMMAR STREQUAL "OFF")
  if(EXISTS "${GPT2C_XGRAMMAR_PATH}/include/xgrammar/xgrammar.h" AND EXISTS "${GPT2C_XGRAMMAR_PATH}/lib/libxgrammar.a")
    add_library(gpt2c_dep_xgrammar INTERFACE)
    target_include_directories(gpt2c_dep_xgrammar SYSTEM INTERFACE "${GPT2C_XGRAMMAR_PATH}/include")
    target_link_libraries(gpt2c_dep_xgrammar INTERFACE "${GPT2C_XGRAMMAR_PATH}/lib/libxgrammar.a" Threads::Threads)
  elseif(GPT2C_XGRAMMAR STREQUAL "AUTO")
    message(STATUS "Structured output is left out: there is no XGrammar in ${GPT2C_XGRAMMAR_PATH}. Run "
                   "scripts/setup.sh --grammar")
  else()
    message(FATAL_ERROR "GPT2C_XGRAMMAR is ${GPT2C_XGRAMMAR}, and there is no XGrammar in ${GPT2C_XGRAMMAR_PATH}. "
                        "Run scripts/setup.sh --grammar")
  endif()
endif()
