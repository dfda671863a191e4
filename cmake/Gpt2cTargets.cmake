# One folder, one static library. Includes are relative to the repository root.

# gpt2c_folder(<target> [LINK lib...]): every .cpp below the current folder; an INTERFACE library while there is none.
function(gpt2c_folder target)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${ARG_LINK} PRIVATE gpt2c_warnings)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} INTERFACE ${ARG_LINK})
  endif()
endfunction()
