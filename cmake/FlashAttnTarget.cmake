# flashattn_target_defaults(target): what every target of this project has and none of its users sees:
# language standard, warnings, sanitizers, coverage, the repository root as include path.
include_guard()

function(flashattn_target_defaults target)
  set_target_properties(
    ${target}
    PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
               CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include")

  set(cxx "$<COMPILE_LANGUAGE:CXX>")
  set(cuda "$<COMPILE_LANGUAGE:CUDA>")
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(
      ${target}
      PRIVATE "$<${cxx}:-Wall;-Wextra;-Wpedantic;-Wnon-virtual-dtor>"
              "$<${cuda}:-Xcompiler=-Wall,-Wextra>")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns of overlapping copies inside std::string's own operator+ (GCC bug 105651).
    target_compile_options(${target} PRIVATE "$<${cxx}:-Wno-restrict>")
  endif()
  if(FLASHATTN_WERROR)
    target_compile_options(${target} PRIVATE "$<${cxx}:-Werror>" "$<${cuda}:-Werror=all-warnings>")
  endif()

  if(FLASHATTN_SANITIZE)
    list(JOIN FLASHATTN_SANITIZE "," sanitizers)
    target_compile_options(
      ${target} PRIVATE "$<${cxx}:-fsanitize=${sanitizers};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
    target_link_options(${target} PRIVATE -fsanitize=${sanitizers})
  endif()
  if(FLASHATTN_COVERAGE)
    target_compile_options(${target} PRIVATE "$<${cxx}:--coverage;-fprofile-update=atomic>")
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()
