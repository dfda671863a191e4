# bin/ the tools, lib/ what they need and the runtime, include/ the runtime's headers, share/gpt2c/ docs and samples.
if(TARGET gpt2c_tools_all)
  get_target_property(tools gpt2c_tools_all GPT2C_TOOLS)
  if(tools)
    install(TARGETS ${tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endif()
install(TARGETS gpt2c_blas LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS gpt2c_c LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" PUBLIC_HEADER DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples/c-api" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/examples")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/docs" FILES_MATCHING PATTERN "*.md")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples/sample" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/examples"
  PATTERN "test_data_set_0" EXCLUDE)

# The licences of what is linked in, as the distribution's packages state them.
# gpt2c_install_licences(<folder> <option of install>...)
function(gpt2c_install_licences folder)
  foreach(package libopenblas-dev llvm-${LLVM_VERSION_MAJOR}-dev libprotobuf-dev libonnx-dev libflatbuffers-dev
      libpcre2-dev libxxhash-dev nlohmann-json3-dev libzstd-dev zlib1g-dev libncurses-dev libstdc++6)
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${folder}" RENAME "${package}"
      ${ARGN} OPTIONAL)
  endforeach()
endfunction()
gpt2c_install_licences("${CMAKE_INSTALL_DATADIR}/gpt2c/licenses")
