# bin/ the tools, lib/ what they need and the runtime, include/ the runtime's headers, share/gpt2c/ docs and samples.
if(TARGET gpt2c_tools_all)
  get_target_property(tools gpt2c_tools_all GPT2C_TOOLS)
  if(tools)
    install(TARGETS ${tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endif()
install(TARGETS gpt2c_blas LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
