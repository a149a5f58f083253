# One CMake target per module; the layers are checked by tools/check_layers.py.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(GTest REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(simdjson REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
find_library(OMNI_BOOST_JSON boost_json REQUIRED)
find_library(OMNI_BOOST_CONTAINER boost_container REQUIRED)

# What every target of the daemon is compiled with. Asio and Beast are compiled once, in omni_asio.
add_library(omni_options INTERFACE)
target_include_directories(omni_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(
  omni_options
  INTERFACE BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED
            BOOST_ASIO_DISABLE_BOOST_DATE_TIME SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL
            OMNI_VERSION="${PROJECT_VERSION}" OMNI_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_options(
  omni_options
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-gnu-statement-expression
            -Wno-missing-field-initializers -Werror=return-type -fno-omit-frame-pointer
            "SHELL:-Xclang -fno-pch-timestamp")
if(OMNI_WERROR)
  target_compile_options(omni_options INTERFACE -Werror)
endif()
if(OMNI_SANITIZE)
  target_compile_options(omni_options INTERFACE -fsanitize=${OMNI_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(omni_options INTERFACE -fsanitize=${OMNI_SANITIZE})
  if(OMNI_SANITIZE MATCHES address) # the fuzzers see which paths their inputs take
    target_compile_options(omni_options INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(omni_options INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()
target_link_options(omni_options INTERFACE -fuse-ld=lld)
target_link_libraries(omni_options INTERFACE Threads::Threads fmt::fmt spdlog::spdlog ${OMNI_BOOST_JSON}
                                             ${OMNI_BOOST_CONTAINER})

# Asio and Beast, compiled once; its precompiled header is shared by all modules.
add_library(omni_asio STATIC ${CMAKE_SOURCE_DIR}/cmake/asio.cpp)
target_link_libraries(omni_asio PUBLIC omni_options)
target_precompile_headers(omni_asio PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)

# omni_module(NAME [DEPENDS module...] [LIBRARIES target...])
#
# A static library omni_NAME of this folder's *.cpp, and a test program NAME_test of its *_test.cpp, whose
# tests carry the ctest label "unit". Those of *_threads_test.cpp carry "threads" instead: TSan runs them.
function(omni_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(TRANSFORM ARG_DEPENDS PREPEND omni_)
  if(sources)
    add_library(omni_${name} STATIC ${sources})
    target_link_libraries(omni_${name} PUBLIC omni_asio ${ARG_DEPENDS} ${ARG_LIBRARIES})
    target_precompile_headers(omni_${name} REUSE_FROM omni_asio)
  else()
    add_library(omni_${name} INTERFACE)
    target_link_libraries(omni_${name} INTERFACE omni_asio ${ARG_DEPENDS} ${ARG_LIBRARIES})
  endif()
  set(threads_tests ${tests})
  list(FILTER threads_tests INCLUDE REGEX "_threads_test\\.cpp$")
  list(FILTER tests EXCLUDE REGEX "_threads_test\\.cpp$")
  if(tests)
    omni_test(${name}_test LABELS unit SOURCES ${tests} LIBRARIES omni_${name})
  endif()
  if(threads_tests)
    omni_test(${name}_threads_test LABELS threads SOURCES ${threads_tests} LIBRARIES omni_${name})
  endif()
endfunction()

# omni_test(NAME LABELS label... SOURCES file... [LIBRARIES target...] [TIMEOUT seconds])
function(omni_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SOURCES;LIBRARIES;PROPERTIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE omni_asio ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main GTest::gmock)
  target_precompile_headers(${name} REUSE_FROM omni_asio)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test UNITY_BUILD OFF)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ${ARG_PROPERTIES})
endfunction()

include(GoogleTest)
