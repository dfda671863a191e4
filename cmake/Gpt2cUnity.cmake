# Sources of a target compiled several at a time: what headers instantiate is compiled once for all
# of them. A change of one file compiles its neighbours again: who edits may turn it off. Files of
# such a target do not use one name twice for what they keep to themselves: those that are alike by
# design, as the records of the kernels and their tests are, have a namespace each.
option(GPT2C_UNITY "Compile several sources of a target at a time" ON)

# gpt2c_unity(<target>...): those of the targets that exist.
function(gpt2c_unity)
  if(NOT GPT2C_UNITY)
    return()
  endif()
  foreach(target ${ARGN})
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
      # GCC takes a file that is included for a header, whose anonymous namespaces would be a fault.
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
  endforeach()
endfunction()
