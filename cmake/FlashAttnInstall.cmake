# find_package(flashattn CONFIG) and pkg-config. Nothing installed names the folder it was installed to.
include_guard()

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/flashattn")

install(
  TARGETS flashattn
  EXPORT flashattn-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES ${FLASHATTN_PUBLIC_HEADERS} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/flashattn")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES docs/conventions.md DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs")
install(EXPORT flashattn-targets NAMESPACE flashattn:: DESTINATION "${package_dir}")

# The C++ runtime by name, for static libraries in programs whose linker is C's.
set(cxx_runtime stdc++)
if("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(cxx_runtime c++)
endif()

configure_package_config_file(cmake/flashattn-config.cmake.in "${PROJECT_BINARY_DIR}/flashattn-config.cmake"
                              INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/flashattn-config-version.cmake"
                                 VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/flashattn-config.cmake" "${PROJECT_BINARY_DIR}/flashattn-config-version.cmake"
        DESTINATION "${package_dir}")

# pkg-config. A static library's users link what it links, with --static or without; the CUDA toolkit's folder is
# a variable (pkg-config --define-variable=cudalibdir=...).
set(pc_flags "")
set(pc_libs "")
set(pc_cuda "")
if(NOT BUILD_SHARED_LIBS)
  set(pc_flags " -DFLASHATTN_STATIC")
  if(FLASHATTN_WITH_CUDA)
    set(pc_cuda "cudalibdir=${CUDAToolkit_LIBRARY_DIR}\n")
    set(pc_libs " -L\${cudalibdir} -lcudart_static -lrt")
  endif()
  string(APPEND pc_libs " -l${cxx_runtime} -lm -lpthread -ldl")
endif()
file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/flashattn.pc.in "${PROJECT_BINARY_DIR}/flashattn.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/flashattn.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
