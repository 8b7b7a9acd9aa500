# A C program finds every exported function of the installed shared library by name.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

build_consumer(dlopen_c "${WORK_DIR}" "-DCMAKE_PREFIX_PATH=${PREFIX}")
shared_library("${PREFIX}" library)
file(READ "${SOURCE_DIR}/cmake/flashattn.map" map)
string(REGEX MATCHALL "fa_[a-z0-9_]+" functions "${map}")
expect_ok("${WORK_DIR}/attention" "${library}" ${functions})
