# Google Highway, for the CPU backend: its headers alone, compiled in, never linked and never installed.
#   FLASHATTN_HAVE_HIGHWAY          1 or 0
#   FLASHATTN_HIGHWAY_INCLUDE_DIR   the folder that holds hwy/
# Looked for installed, then in FETCHCONTENT_SOURCE_DIR_HIGHWAY, then (FLASHATTN_FETCH) downloaded. Where it
# cannot be had, the plain path is built.
include_guard()

set(FLASHATTN_HAVE_HIGHWAY 0)
if(FLASHATTN_SIMD STREQUAL "PLAIN")
  message(STATUS "flashattn: FLASHATTN_SIMD is PLAIN, the CPU backend takes its plain path")
  return()
endif()

set(highway_version 1.0.3)
set(highway_hash 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)

# Downloads and unpacks the pinned release; on failure says so once and leaves the folder absent.
function(flashattn_fetch_highway directory)
  set(archive "${PROJECT_BINARY_DIR}/_deps/highway-${highway_version}.tar.gz")
  message(STATUS "flashattn: Highway is not installed, downloading ${highway_version}")
  file(DOWNLOAD "https://github.com/google/highway/archive/refs/tags/${highway_version}.tar.gz" "${archive}"
       TIMEOUT 60 INACTIVITY_TIMEOUT 10 STATUS status)
  list(GET status 0 code)
  if(code EQUAL 0)
    file(SHA256 "${archive}" hash)
    if(hash STREQUAL highway_hash)
      file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${PROJECT_BINARY_DIR}/_deps")
      return()
    endif()
    set(status "unexpected SHA-256 ${hash}")
  endif()
  file(REMOVE "${archive}")
  list(JOIN status " " reason)
  message(STATUS "flashattn: Highway could not be downloaded (${reason})")
  set(FLASHATTN_HIGHWAY_UNREACHABLE ON CACHE INTERNAL "The download failed; not tried again in this build tree")
endfunction()

if(FETCHCONTENT_SOURCE_DIR_HIGHWAY)
  set(FLASHATTN_HIGHWAY_INCLUDE_DIR "${FETCHCONTENT_SOURCE_DIR_HIGHWAY}"
      CACHE PATH "The folder that holds hwy/highway.h" FORCE)
else()
  find_path(FLASHATTN_HIGHWAY_INCLUDE_DIR hwy/highway.h)
  set(fetched "${PROJECT_BINARY_DIR}/_deps/highway-${highway_version}")
  if(NOT FLASHATTN_HIGHWAY_INCLUDE_DIR AND FLASHATTN_FETCH AND NOT FLASHATTN_HIGHWAY_UNREACHABLE)
    if(NOT EXISTS "${fetched}/hwy/highway.h")
      flashattn_fetch_highway("${fetched}")
    endif()
    find_path(FLASHATTN_HIGHWAY_INCLUDE_DIR hwy/highway.h PATHS "${fetched}" NO_DEFAULT_PATH)
  endif()
endif()
mark_as_advanced(FLASHATTN_HIGHWAY_INCLUDE_DIR)

if(EXISTS "${FLASHATTN_HIGHWAY_INCLUDE_DIR}/hwy/highway.h")
  set(FLASHATTN_HAVE_HIGHWAY 1)
  message(STATUS "flashattn: the CPU backend uses Highway from ${FLASHATTN_HIGHWAY_INCLUDE_DIR}")
elseif(FLASHATTN_SIMD STREQUAL "HIGHWAY")
  message(FATAL_ERROR "flashattn: FLASHATTN_SIMD is HIGHWAY, but hwy/highway.h was neither found nor fetched. "
                      "Install it (Debian: libhwy-dev) or set FETCHCONTENT_SOURCE_DIR_HIGHWAY.")
else()
  message(STATUS "flashattn: Highway was neither found nor fetched, the CPU backend takes its plain path "
                 "(slower; Debian: libhwy-dev)")
endif()
