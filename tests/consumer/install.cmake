# Installs BUILD_DIR, then moves the prefix to PREFIX: no consumer test sees the folder it was installed to. With
# OTHER the library is built first, with OPTIONS, in BUILD_DIR.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

if(OTHER)
  run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${BUILD_DIR}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}"
      -DCMAKE_BUILD_TYPE=Release -DFLASHATTN_BUILD_TESTS=OFF -DFLASHATTN_BUILD_BENCH=OFF
      -DFLASHATTN_BUILD_EXAMPLES=OFF ${OPTIONS})
  run("${CMAKE_COMMAND}" --build "${BUILD_DIR}" --parallel 2)
endif()
file(REMOVE_RECURSE "${PREFIX}" "${WORK_DIR}/installed_here")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/installed_here")
file(RENAME "${WORK_DIR}/installed_here" "${PREFIX}")

# Nothing in it names where it was built or installed; static CUDA builds name the toolkit in flashattn.pc.
file(GLOB_RECURSE files "${PREFIX}/*.cmake" "${PREFIX}/*.pc" "${PREFIX}/*.h" "${PREFIX}/*.hpp")
list(LENGTH files count)
if(count LESS 10)
  message(FATAL_ERROR "too little was installed: ${files}")
endif()
foreach(file IN LISTS files)
  file(READ "${file}" text)
  foreach(path "${SOURCE_DIR}" "${BUILD_DIR}" "${WORK_DIR}" "${PREFIX}")
    string(FIND "${text}" "${path}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}")
    endif()
  endforeach()
endforeach()
