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

if(SNAPKV_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SNAPKV_BUILD_FUZZERS needs clang: use `cmake --preset fuzz`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
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

# MPI tests do not look for leaks at exit: Open MPI and its plug-ins keep hundreds of blocks, and unload the plug-ins, so
# that a suppression cannot name them. Everything else of AddressSanitizer stays on.
set(SNAPKV_MPI_TEST_ENV "ASAN_OPTIONS=detect_leaks=0")

# snapkv_test(NAME SRCS a.cc ... DEPS target ... [RANKS n ...] [LABELS l ...] [TIMEOUT s] [ENV A=B ...]):
# a GoogleTest binary and one CTest entry of the same name. A binary that runs no test fails.
# With RANKS the binary brings its own main() and runs under mpirun; several numbers of ranks give one entry each,
# NAME_npN. Not under ThreadSanitizer: Open MPI is not instrumented, its shared memory would be reported.
function(snapkv_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS;ENV;ARGS;RANKS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE snapkv_options ${ARG_DEPS} GTest::gmock)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  list(LENGTH ARG_RANKS counts)
  if(counts GREATER 0)
    list(PREPEND ARG_ENV ${SNAPKV_MPI_TEST_ENV})
  endif()
  if(counts EQUAL 0)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    snapkv_test_properties(${name} 1)
  endif()
  if(SNAPKV_SANITIZER STREQUAL "thread")
    set(ARG_RANKS "")
  endif()
  foreach(ranks IN LISTS ARG_RANKS)
    set(entry ${name})
    if(counts GREATER 1)
      set(entry ${name}_np${ranks})
    endif()
    add_test(NAME ${entry} COMMAND ${SNAPKV_MPIRUN} -np ${ranks} $<TARGET_FILE:${name}> ${ARG_ARGS})
    snapkv_test_properties(${entry} ${ranks})
  endforeach()
endfunction()

# What all entries of snapkv_test have in common; reads its ARG_ variables.
macro(snapkv_test_properties entry processors)
  set_tests_properties(${entry} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" PROCESSORS ${processors}
    FAIL_REGULAR_EXPRESSION "Running 0 tests" SKIP_RETURN_CODE 77 ENVIRONMENT "${ARG_ENV}")
endmacro()
