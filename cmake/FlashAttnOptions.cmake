# Every option of the build. A default named after an environment variable of the same name lets CI run the
# README's commands as they are written.
#
#   FLASHATTN_CUDA                AUTO | ON | OFF   GPU kernels; AUTO: where a CUDA compiler is found
#   FLASHATTN_CUDA_ARCHITECTURES  a list | default | native
#                                 default is 80;90;90a; native is the GPUs of this machine, or default without one.
#                                 The environment variable stands in for default and native, never for a list.
#   FLASHATTN_SIMD                AUTO | HIGHWAY | PLAIN   the CPU backend's vector code
#   FLASHATTN_FETCH               ON | OFF   download what is not installed (Highway, GoogleTest, Google Benchmark)
#   FLASHATTN_BUILD_TESTS, FLASHATTN_BUILD_BENCH, FLASHATTN_BUILD_EXAMPLES, FLASHATTN_INSTALL
#                                 ON where this is the top-level project
#   FLASHATTN_ABLATIONS           variants of the rungs for bench_attention --ablations, in a library of their own
#   FLASHATTN_WERROR              warnings are errors
#   FLASHATTN_SANITIZE            "address;undefined" or "thread": host code of library, tests and bench
#   FLASHATTN_COVERAGE            count lines of host code, for gcovr
#   BUILD_SHARED_LIBS             a shared library; else a static one
include_guard()

# A choice that may come from the environment.
function(flashattn_choice name default help)
  if(DEFINED ENV{${name}})
    set(default "$ENV{${name}}")
  endif()
  set(${name} "${default}" CACHE STRING "${help}")
  if(ARGN)
    set_property(CACHE ${name} PROPERTY STRINGS ${ARGN})
    if(NOT "${${name}}" IN_LIST ARGN)
      list(JOIN ARGN ", " choices)
      message(FATAL_ERROR "${name} is '${${name}}'; it must be one of ${choices}")
    endif()
  endif()
endfunction()

flashattn_choice(FLASHATTN_CUDA AUTO "GPU kernels" AUTO ON OFF)
flashattn_choice(FLASHATTN_SIMD AUTO "The CPU backend's vector code" AUTO HIGHWAY PLAIN)
flashattn_choice(FLASHATTN_WERROR OFF "Warnings are errors" ON OFF)
set(FLASHATTN_CUDA_ARCHITECTURES default CACHE STRING "CUDA architectures: a list, default or native")
set(FLASHATTN_SANITIZE "" CACHE STRING "Sanitizers for host code: address;undefined or thread")

option(BUILD_SHARED_LIBS "Build a shared library" OFF)
option(FLASHATTN_FETCH "Download what is not installed" ON)
option(FLASHATTN_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FLASHATTN_BUILD_BENCH "Build bench_attention" ${PROJECT_IS_TOP_LEVEL})
option(FLASHATTN_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(FLASHATTN_INSTALL "Add the install rules" ${PROJECT_IS_TOP_LEVEL})
option(FLASHATTN_COVERAGE "Count lines of host code" OFF)
option(FLASHATTN_ABLATIONS "Build the variants of bench_attention --ablations" OFF)

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT multi_config AND NOT CMAKE_BUILD_TYPE)
  message(STATUS "flashattn: no build type given, taking Release")
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
elseif(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
  message(STATUS "flashattn: the project has no CMAKE_BUILD_TYPE: the CPU backend is compiled without optimisation")
endif()
