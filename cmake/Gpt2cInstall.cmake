# bin/ the tools, lib/ what they need and the runtime, include/ the runtime's headers (C, C++), share/gpt2c/ docs and samples.
if(TARGET gpt2c_tools_all)
  get_target_property(tools gpt2c_tools_all GPT2C_TOOLS)
  if(tools)
    install(TARGETS ${tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endif()

# The component `runtime` is what programs over libgpt2c.so need.
install(TARGETS gpt2c_blas LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
install(TARGETS gpt2c_cpu_library LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_SKIP)
install(TARGETS gpt2c_c EXPORT gpt2c LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
  PUBLIC_HEADER DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT runtime)

# find_package(gpt2c) gives gpt2c::gpt2c; pkg-config gpt2c says the same. Both find the folder they are in.
include(CMakePackageConfigHelpers)
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/gpt2c")
install(EXPORT gpt2c NAMESPACE gpt2c:: FILE gpt2c-config.cmake DESTINATION "${package}" COMPONENT runtime)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/gpt2c-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/generated/gpt2c-config-version.cmake" DESTINATION "${package}" COMPONENT runtime)
file(RELATIVE_PATH to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
configure_file("${CMAKE_SOURCE_DIR}/cmake/gpt2c.pc.in" "${CMAKE_BINARY_DIR}/generated/gpt2c.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/generated/gpt2c.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT runtime)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples/c-api" "${CMAKE_SOURCE_DIR}/examples/cpp-api"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/examples" COMPONENT runtime)
install(FILES "${CMAKE_SOURCE_DIR}/examples/CMakeLists.txt" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/examples"
  COMPONENT runtime)

install(DIRECTORY "${CMAKE_BINARY_DIR}/generated/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" OPTIONAL
  FILES_MATCHING PATTERN "*.1")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/docs"
  FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/deploy" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples/sample" DESTINATION "${CMAKE_INSTALL_DATADIR}/gpt2c/examples"
  PATTERN "test_data_set_0" EXCLUDE)

# The licences of what is linked in, as the distribution's packages state them.
# gpt2c_install_licences(<folder> <option of install>...)
function(gpt2c_install_licences folder)
  foreach(package libopenblas-dev llvm-${LLVM_VERSION_MAJOR}-dev libprotobuf-dev libonnx-dev libflatbuffers-dev
      libpcre2-dev libutf8proc-dev libxxhash-dev nlohmann-json3-dev libzstd-dev zlib1g-dev libncurses-dev libstdc++6
      libedit-dev libbsd-dev libmd-dev libboost1.81-dev libboost1.83-dev)
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${folder}" RENAME "${package}"
      ${ARGN} OPTIONAL)
  endforeach()
  if(TARGET gpt2c_dep_xgrammar)
    foreach(file LICENSE NOTICE)
      install(FILES "${GPT2C_XGRAMMAR_PATH}/${file}" DESTINATION "${folder}" RENAME "xgrammar-${file}"
        ${ARGN} OPTIONAL)
    endforeach()
  endif()
endfunction()
gpt2c_install_licences("${CMAKE_INSTALL_DATADIR}/gpt2c/licenses")
