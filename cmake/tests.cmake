# Tests: one program per tests/<folder>/test_*.c or test_*.sh, named <folder>/<stem> in ctest.
# All of them print TAP lines; tests/run.sh counts those.
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(NOT CMOCKA_FOUND)
    message(FATAL_ERROR "tests need cmocka: install libcmocka-dev or use -DDRA_TESTS=OFF")
endif()

# Sets what all tests share. A soak runs for as long as it is asked to. Sanitizers answer an
# impossible allocation as malloc does, so that tests can ask for one.
function(dra_test_properties name)
    set(nulls ASAN_OPTIONS=allocator_may_return_null=1
        TSAN_OPTIONS=allocator_may_return_null=1:die_after_fork=0)
    set(timeout 600)
    if(name MATCHES "soak|faults/test_calls")   # with DRA_TEST_FULL every fault at every call
        set(timeout 7200)
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout}
        ENVIRONMENT "CMOCKA_MESSAGE_OUTPUT=TAP;UBSAN_OPTIONS=print_stacktrace=1;${nulls};${ARGN}")
endfunction()

# The harness is compiled once. Tests may look inside the library: static link, src/ in the path.
file(GLOB harness_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.c)
add_library(dra_harness INTERFACE)
target_include_directories(dra_harness INTERFACE
    ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(dra_harness INTERFACE dra_static PkgConfig::CMOCKA Threads::Threads m)
if(harness_sources)
    add_library(dra_harness_objects OBJECT ${harness_sources})
    target_link_libraries(dra_harness_objects PRIVATE dra_harness)
endif()

# The command line without its main(), for tests of its parts.
set(cli_parts ${cli_sources})
list(FILTER cli_parts EXCLUDE REGEX "/main\\.c$")
add_library(dra_cli_parts OBJECT ${cli_parts})
target_link_libraries(dra_cli_parts PRIVATE dra_harness dra_cli_needs)

function(dra_test source)
    get_filename_component(stem ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    set(target ${folder}_${stem})
    add_executable(${target} ${source})
    target_link_libraries(${target} PRIVATE dra_harness)
    if(TARGET dra_harness_objects)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dra_harness_objects>)
    endif()
    if(folder STREQUAL "cli")
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dra_cli_parts>)
        target_link_libraries(${target} PRIVATE dra_cli_needs)
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cli)
    endif()
    if(stem MATCHES "_alloc$")   # these count allocations: the test defines __wrap_malloc etc.
        target_link_options(${target} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
            -Wl,--wrap=aligned_alloc,--wrap=posix_memalign)
    endif()
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${stem} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
    add_test(NAME ${folder}/${stem} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    dra_test_properties(${folder}/${stem})
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/test_*.c)
foreach(source ${test_sources})
    dra_test(${source})
endforeach()

# Programs that make a command fail at one place, for the tests in tests/faults.
add_executable(faults_calls ${PROJECT_SOURCE_DIR}/tests/faults/calls.c)
set_target_properties(faults_calls PROPERTIES
    OUTPUT_NAME calls RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)

# Shell tests get the command line's path.
file(GLOB test_scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/test_*.sh)
foreach(script ${test_scripts})
    get_filename_component(stem ${script} NAME_WE)
    get_filename_component(folder ${script} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    # Commands of the documentation show nothing more in other builds.
    if(folder STREQUAL "docs" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # Runs of an earlier commit hold floats.
    if(stem STREQUAL "test_before" AND DRA_DOUBLE)
        continue()
    endif()
    # Worked examples are for the numbers that a user sees; other tests cover the code.
    if(stem STREQUAL "test_worked" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # Calls fail alike in all builds, and sanitizers do not go with ptrace.
    if(stem STREQUAL "test_calls" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    add_test(NAME ${folder}/${stem} COMMAND sh ${script} ${PROJECT_BINARY_DIR}/dra)
    dra_test_properties(${folder}/${stem})
endforeach()

# A sanitized library cannot be linked by a plain program, so only plain builds try installing.
if(NOT DRA_SANITIZE AND EXISTS ${PROJECT_SOURCE_DIR}/tests/install/run.sh)
    add_test(NAME install/use
        COMMAND sh ${PROJECT_SOURCE_DIR}/tests/install/run.sh
            ${PROJECT_BINARY_DIR} ${PROJECT_VERSION})
    dra_test_properties(install/use "CC=${CMAKE_C_COMPILER}" "CMAKE=${CMAKE_COMMAND}")
endif()

# Examples print no TAP lines; each counts as one test. The variable asks them to be brief. One that
# needs a model is run by docs/test_docs.
foreach(source ${example_sources})
    get_filename_component(stem ${source} NAME_WE)
    if(stem STREQUAL 03_generate)
        continue()
    endif()
    add_test(NAME examples/${stem} COMMAND example_${stem})
    dra_test_properties(examples/${stem} DRA_EXAMPLE_FAST=1)
endforeach()

# Fuzzers run until told to stop, so `make fuzz` runs them, not ctest.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
    get_filename_component(stem ${source} NAME_WE)
    add_executable(${stem} ${source})
    target_include_directories(${stem} PRIVATE
        ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${stem} PRIVATE dra_static m)
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
endforeach()
