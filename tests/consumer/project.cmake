# Builds the outside project NAME and runs its program. OPTIONS go to its configuration.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

build_consumer("${NAME}" "${WORK_DIR}" ${OPTIONS})
expect_ok("${WORK_DIR}/attention")
