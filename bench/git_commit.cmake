# Writes HEADER, which defines FLASHATTN_GIT_COMMIT: what the environment variable FLASHATTN_GIT_COMMIT says (for a copy
# of the tree whose .git is missing or another's), or else the commit that SOURCE_DIR is at, "-dirty" where tracked files
# differ from it, or "unknown". Run at every build; the header changes only where the text does.
set(commit "")
if(DEFINED ENV{FLASHATTN_GIT_COMMIT})
  set(commit "$ENV{FLASHATTN_GIT_COMMIT}")
endif()
find_program(GIT git)
if(commit STREQUAL "" AND GIT)
  execute_process(
    COMMAND "${GIT}" -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#pragma once

#define FLASHATTN_GIT_COMMIT \"${commit}\"
")
