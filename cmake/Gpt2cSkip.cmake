# gpt2c_skipped_test(<test> <why> [<label>...]): a test that is always skipped and says why. `why` is
# any text of one line: it is an argument of the program, no part of a command line.
function(gpt2c_skipped_test test why)
  add_test(NAME ${test}
    COMMAND bash "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests/skip.bash" "${why}")
  set_tests_properties(${test} PROPERTIES LABELS "${ARGN}" SKIP_RETURN_CODE 77)
endfunction()
