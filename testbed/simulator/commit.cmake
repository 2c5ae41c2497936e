# SPDX-License-Identifier: Apache-2.0
# Writes the commit that is built into commit.h, if it is another one than before: -DSOURCE=... -DOUT=...
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "// SPDX-License-Identifier: Apache-2.0\n// The commit that was built.\n#pragma once\n\nnamespace forgive::sim {\ninline constexpr const char* kCommit = \"${commit}\";\n}  // namespace forgive::sim\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
