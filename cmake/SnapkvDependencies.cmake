# SPDX-License-Identifier: Apache-2.0
# Every third-party package, found once. All are Debian 12 packages (launch/setup.sh installs them).
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(absl REQUIRED)
find_package(dnnl REQUIRED)
find_package(hwy REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
if(SNAPKV_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SNAPKV_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# mpirun as the tests need it: root and more ranks than cores are allowed, ranks are not pinned.
set(SNAPKV_MPIRUN ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none
  CACHE STRING "mpirun and its flags, for tests")
