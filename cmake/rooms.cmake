# What makes a folder a room: its include path, its warnings, and nothing of the rooms above it.

add_library(forgive_flags INTERFACE)
target_compile_options(forgive_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(FORGIVE_STRICT)
  target_compile_options(forgive_flags INTERFACE -Werror)
endif()
if(FORGIVE_SANITIZE)
  # vptr asks for type information, which the transport is compiled without.
  target_compile_options(forgive_flags INTERFACE -fsanitize=${FORGIVE_SANITIZE} -fno-sanitize=vptr
                                                 -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(forgive_flags INTERFACE -fsanitize=${FORGIVE_SANITIZE})
endif()
if(FORGIVE_COVERAGE)
  target_compile_options(forgive_flags INTERFACE -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(forgive_flags INTERFACE -fprofile-instr-generate)
endif()

# forgive_room(target folder): gives the target an include folder that holds this one room.
function(forgive_room target folder)
  set(root ${CMAKE_BINARY_DIR}/include/${target})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${root}/${folder} SYMBOLIC)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_include_directories(${target} INTERFACE ${root})
  else()
    target_include_directories(${target} PUBLIC ${root})
    target_link_libraries(${target} PRIVATE forgive_flags)
  endif()
endfunction()

# forgive_headers(target scope header...): single headers of other rooms for a target, and nothing else of these rooms.
function(forgive_headers target scope)
  set(root ${CMAKE_BINARY_DIR}/include/${target}_headers)
  foreach(header ${ARGN})
    get_filename_component(folder ${root}/${header} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${header} ${root}/${header} SYMBOLIC)
  endforeach()
  target_include_directories(${target} ${scope} ${root})
endfunction()

# forgive_test(name LABELS label... SOURCES file... LIBRARIES target...): one gtest program, one ctest entry, which
# prints nothing but failures and skips: a log that is cut must still hold the failure.
function(forgive_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS;SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE forgive_flags ${arg_LIBRARIES} GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT GTEST_BRIEF=1)
endfunction()
