# SPDX-License-Identifier: Apache-2.0
# The benchmarks of single rooms, by google-benchmark.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(core_bench core_bench.cc)
  target_link_libraries(core_bench PRIVATE forgive_flags forgive_transport benchmark::benchmark)
else()
  message(STATUS "core_bench is not built: google-benchmark (libbenchmark-dev) is missing")
endif()
