# GoogleTest and Google Benchmark: as installed, else fetched (FETCHCONTENT_SOURCE_DIR_GOOGLETEST and
# FETCHCONTENT_SOURCE_DIR_BENCHMARK name local copies). Used by tests and bench alone, never installed.
include_guard()

include(FetchContent)

# The target must exist afterwards; says what to do where it cannot.
macro(flashattn_fetch name package)
  string(TOUPPER ${name} upper)
  if(NOT FLASHATTN_FETCH AND NOT FETCHCONTENT_SOURCE_DIR_${upper})
    message(FATAL_ERROR "flashattn: ${name} is not installed and FLASHATTN_FETCH is OFF. Install it (Debian: "
                        "${package}), or set FETCHCONTENT_SOURCE_DIR_${upper} to a copy.")
  endif()
  message(STATUS "flashattn: ${name} is not installed, fetching it (Debian: ${package})")
  FetchContent_MakeAvailable(${name})
endmacro()

# Fetched projects are configured in this scope, with these values.
function(flashattn_require_googletest)
  if(TARGET GTest::gtest_main)
    return()
  endif()
  if(NOT FETCHCONTENT_SOURCE_DIR_GOOGLETEST)
    find_package(GTest CONFIG QUIET GLOBAL)
    if(TARGET GTest::gtest_main)
      return()
    endif()
  endif()
  FetchContent_Declare(
    googletest
    URL https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
    URL_HASH SHA256=8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7
    DOWNLOAD_EXTRACT_TIMESTAMP ON)
  set(INSTALL_GTEST OFF)
  set(BUILD_GMOCK OFF)
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  flashattn_fetch(googletest libgtest-dev)
endfunction()

function(flashattn_require_benchmark)
  if(TARGET benchmark::benchmark)
    return()
  endif()
  if(NOT FETCHCONTENT_SOURCE_DIR_BENCHMARK)
    find_package(benchmark CONFIG QUIET GLOBAL)
    if(TARGET benchmark::benchmark)
      return()
    endif()
  endif()
  FetchContent_Declare(
    benchmark
    URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
    URL_HASH SHA256=6bc180a57d23d4d9515519f92b0c83d61b05b5bab188961f36ac7b06b0d9e9ce
    DOWNLOAD_EXTRACT_TIMESTAMP ON)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(BENCHMARK_INSTALL_DOCS OFF)
  set(BENCHMARK_ENABLE_WERROR OFF)
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  flashattn_fetch(benchmark libbenchmark-dev)
endfunction()
