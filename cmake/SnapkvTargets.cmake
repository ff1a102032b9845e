# SPDX-License-Identifier: Apache-2.0
# Build rules shared by every folder: language level, warnings, sanitizers, and the two target functions.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(SNAPKV_CCACHE ccache)
if(SNAPKV_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SNAPKV_CCACHE})
endif()

# Our own code only: dependencies are SYSTEM includes. -ffp-contract=off: a fused multiply-add is written
# where it is meant, so that vector body and tail, and every rank, compute the same bits.
add_library(snapkv_options INTERFACE)
target_compile_options(snapkv_options INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns falsely about string concatenation (GCC bug 105329).
  target_compile_options(snapkv_options INTERFACE -Wno-restrict)
endif()
target_include_directories(snapkv_options INTERFACE ${CMAKE_SOURCE_DIR})

if(SNAPKV_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SNAPKV_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT SNAPKV_SANITIZER STREQUAL "")
  message(FATAL_ERROR "SNAPKV_SANITIZER is '${SNAPKV_SANITIZER}': use 'address', 'thread' or nothing")
endif()

# snapkv_library(NAME SRCS a.cc ... DEPS target ...): a static library with the alias snapkv::NAME.
# Headers-only when SRCS is empty.
function(snapkv_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(snapkv_${name} STATIC ${ARG_SRCS})
    target_link_libraries(snapkv_${name} PUBLIC snapkv_options ${ARG_DEPS})
  else()
    add_library(snapkv_${name} INTERFACE)
    target_link_libraries(snapkv_${name} INTERFACE snapkv_options ${ARG_DEPS})
  endif()
  add_library(snapkv::${name} ALIAS snapkv_${name})
endfunction()

# snapkv_test(NAME SRCS a.cc ... DEPS target ... [RANKS n] [LABELS l ...] [TIMEOUT s] [ENV A=B ...]):
# a GoogleTest binary and one CTest entry of the same name. A binary that runs no test fails.
# With RANKS the binary brings its own main() and runs under mpirun.
function(snapkv_test name)
  cmake_parse_arguments(ARG "" "RANKS;TIMEOUT" "SRCS;DEPS;LABELS;ENV;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE snapkv_options ${ARG_DEPS} GTest::gmock)
  if(ARG_RANKS)
    add_test(NAME ${name} COMMAND ${SNAPKV_MPIRUN} -np ${ARG_RANKS} $<TARGET_FILE:${name}> ${ARG_ARGS})
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    FAIL_REGULAR_EXPRESSION "Running 0 tests" SKIP_RETURN_CODE 77 ENVIRONMENT "${ARG_ENV}")
endfunction()
