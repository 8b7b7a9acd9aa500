# A room of kernels: an OBJECT library with its own architectures, whose objects join a target.
#
#   flashattn_add_room(v8_hopper
#     TARGET flashattn                  # gets the objects, FLASHATTN_HAVE_V8_HOPPER=1 (0: left out), and
#                                       # FLASHATTN_ARCHITECTURES_V8_HOPPER="90a-real"
#     ARCHITECTURES 90a                 # 90a: that one, where the build's list has it. portable (the default):
#                                       # every architecture of the list that is not for one family alone
#     SOURCES launch.cu                 # the switch from runtime values to Configs
#     TEMPLATE instances/instance.cu.in # becomes one file per instance, at most ten lines
#     INSTANCES float16:64 float16:128 bfloat16:64)   # dtype:head dimension
#
# A template may use @FA_TYPE@ (float, __half, __nv_bfloat16), @FA_DTYPE@ (float32, ...), @FA_HEAD_DIM@. It
# explicitly instantiates the room's host functions of a Config, never a __global__ by
# extern template: nvcc 13 gives kernel stubs internal linkage, and the link fails.
#
# The OBJECT library is joined by its objects; linking it would break install(EXPORT).
# Beside every object lies its ptxas log, <object>.ptxas.log, which the test ptxas_log reads.
include_guard()

include(CheckCompilerFlag)

if(FLASHATTN_WITH_CUDA)
  check_compiler_flag(CUDA --compress-mode=size FLASHATTN_NVCC_HAS_COMPRESS_MODE)
endif()

function(flashattn_room_architectures result)
  set(architectures "")
  foreach(wanted IN LISTS ARGN)
    if(wanted STREQUAL "portable")
      list(APPEND architectures ${FLASHATTN_PORTABLE_ARCHITECTURES})
    else()
      set(matching ${FLASHATTN_PORTABLE_ARCHITECTURES} ${FLASHATTN_SPECIFIC_ARCHITECTURES})
      list(FILTER matching INCLUDE REGEX "^${wanted}(-real|-virtual)?$")
      list(APPEND architectures ${matching})
    endif()
  endforeach()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

function(flashattn_add_room name)
  cmake_parse_arguments(room "" "TARGET;TEMPLATE" "ARCHITECTURES;SOURCES;INSTANCES" ${ARGN})
  if(room_UNPARSED_ARGUMENTS OR NOT room_SOURCES)
    message(FATAL_ERROR "flashattn_add_room(${name}): SOURCES missing, or unknown: ${room_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT room_ARCHITECTURES)
    set(room_ARCHITECTURES portable)
  endif()

  set(architectures "")
  if(FLASHATTN_WITH_CUDA)
    flashattn_room_architectures(architectures ${room_ARCHITECTURES})
    if(NOT architectures)
      message(STATUS "flashattn: room ${name} is left out, the build has none of its architectures")
    endif()
  endif()
  string(TOUPPER "FLASHATTN_HAVE_${name}" have)
  string(TOUPPER "FLASHATTN_ARCHITECTURES_${name}" built_for)
  if(NOT architectures)
    if(room_TARGET)
      target_compile_definitions(${room_TARGET} PRIVATE ${have}=0 ${built_for}="")
    endif()
    return()
  endif()

  set(type_float32 float)
  set(type_float16 __half)
  set(type_bfloat16 __nv_bfloat16)
  set(instances "")
  foreach(instance IN LISTS room_INSTANCES)
    if(NOT instance MATCHES "^(float32|float16|bfloat16):([0-9]+)$")
      message(FATAL_ERROR "flashattn_add_room(${name}): instance '${instance}' is not dtype:head dimension")
    endif()
    set(FA_DTYPE ${CMAKE_MATCH_1})
    set(FA_HEAD_DIM ${CMAKE_MATCH_2})
    set(FA_TYPE ${type_${FA_DTYPE}})
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}_instances/${FA_DTYPE}_d${FA_HEAD_DIM}.cu")
    configure_file("${room_TEMPLATE}" "${file}" @ONLY)
    list(APPEND instances "${file}")
  endforeach()

  set(objects flashattn_room_${name})
  add_library(${objects} OBJECT ${room_SOURCES} ${instances})
  flashattn_target_defaults(${objects})
  set_target_properties(${objects} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>")
  if(FLASHATTN_NVCC_HAS_COMPRESS_MODE)
    target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>")
  endif()
  if(UNIX)
    set(launcher "${PROJECT_SOURCE_DIR}/cmake/ptxas_log.sh" ${CMAKE_CUDA_COMPILER_LAUNCHER})
    set_target_properties(${objects} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
  endif()

  if(room_TARGET)
    target_sources(${room_TARGET} PRIVATE $<TARGET_OBJECTS:${objects}>)
    list(JOIN architectures "," text)
    target_compile_definitions(${room_TARGET} PRIVATE ${have}=1 ${built_for}="${text}")
  endif()
endfunction()
