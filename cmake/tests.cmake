# Tests: one program per tests/<folder>/test_*.c or test_*.sh, named <folder>/<stem> in ctest; a
# folder may be one of another, as those of src/.
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
    elseif(name STREQUAL "cuda/test_build")   # every kernel, by nvcc
        set(timeout 1800)
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
# Tests are compiled more often than they run long: half the time, the same bits.
target_compile_options(dra_harness INTERFACE -O1)
if(harness_sources)
    add_library(dra_harness_objects OBJECT ${harness_sources})
    target_link_libraries(dra_harness_objects PRIVATE dra_harness)
endif()

# The folder below tests/ and the stem of a test's file.
function(dra_test_name source folder stem)
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(path ${source} DIRECTORY)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/tests ${path})
    set(${folder} ${path} PARENT_SCOPE)
    set(${stem} ${name} PARENT_SCOPE)
endfunction()

function(dra_test source)
    dra_test_name(${source} folder stem)
    string(REPLACE / _ target ${folder}_${stem})
    add_executable(${target} ${source})
    target_link_libraries(${target} PRIVATE dra_harness)
    if(TARGET dra_harness_objects)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dra_harness_objects>)
    endif()
    if(folder MATCHES "^(cli|serve)$")
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dra_cli_parts>)
        target_link_libraries(${target} PRIVATE dra_cli_needs)
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cli)
    endif()
    if(folder STREQUAL "serve")
        target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/serve/client.c
            ${PROJECT_SOURCE_DIR}/tests/serve/mixed.c)
    endif()
    # Their engine takes the place of the library's: the first definition counts.
    if(target MATCHES "^serve_test_(protocol|limits|memory|states|clients|dialects)$")
        target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/serve/fake_engine.c)
        target_link_options(${target} PRIVATE -Wl,--allow-multiple-definition)
    endif()
    if(stem MATCHES "_alloc$")   # these count allocations: the test defines __wrap_malloc etc.
        target_link_options(${target} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
            -Wl,--wrap=aligned_alloc,--wrap=posix_memalign)
    endif()
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${stem} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
    # Long tables in four parts, so that several run at a time and none runs out of time.
    if(target MATCHES "^(memory_test_mixers|model_test_stacks)$")
        foreach(part RANGE 3)
            dra_test_run(${folder}/${stem}.${part} ${target} DRA_TEST_ROWS=${part}/4)
        endforeach()
    else()
        dra_test_run(${folder}/${stem} ${target})
    endif()
endfunction()

# dra_test_run(NAME TARGET VARIABLE=VALUE...)
function(dra_test_run name target)
    add_test(NAME ${name} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    dra_test_properties(${name} ${ARGN})
endfunction()

# The double build is for numbers. Layers without dra_real are the same code there, and so are tests
# of them that have none: they would repeat what the float build shows. Where one of them gets a
# dra_real, its tests are back.
function(dra_has_real result)
    foreach(source ${ARGN})
        file(STRINGS ${source} hits REGEX "dra_real|DRA_REAL" LIMIT_COUNT 1)
        if(hits)
            set(${result} TRUE PARENT_SCOPE)
            return()
        endif()
    endforeach()
    set(${result} FALSE PARENT_SCOPE)
endfunction()

set(layers_without_real)
if(DRA_DOUBLE)
    foreach(layer src/base src/file src/text src/jinja src/generate/grammar cli/serve)
        file(GLOB layer_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${layer}/*.[ch])
        dra_has_real(has_real ${layer_sources})
        get_filename_component(folder ${layer} NAME)
        if(NOT has_real)
            list(APPEND layers_without_real ${folder})
        endif()
    endforeach()
endif()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.c)
foreach(source ${test_sources})
    if(source MATCHES "/tests/cuda/" AND (DRA_SANITIZE OR DRA_DOUBLE)) # a plugin holds floats
        continue()
    endif()
    if(source MATCHES "/tests/serve/" AND NOT serve_sources) # this build has no server
        continue()
    endif()
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    if(folder IN_LIST layers_without_real)
        dra_has_real(has_real ${source})
        if(NOT has_real)
            continue()
        endif()
    endif()
    dra_test(${source})
endforeach()

# Shared objects with memories that are refused, for cli/test_plugin.
file(GLOB plugin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/memory/plugins/*.c)
foreach(source ${plugin_sources})
    get_filename_component(stem ${source} NAME_WE)
    add_library(plugin_${stem} MODULE ${source})
    target_link_libraries(plugin_${stem} PRIVATE dra)
    set_target_properties(plugin_${stem} PROPERTIES PREFIX "" OUTPUT_NAME ${stem}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/memory/plugins)
endforeach()

# Many requests of all kinds, as many as are asked for: make serve-campaign; and a table by the
# number of clients: make serve-table.
if(serve_sources)
    foreach(name campaign concurrency)
        add_executable(serve_${name} ${PROJECT_SOURCE_DIR}/tests/serve/${name}.c
            ${PROJECT_SOURCE_DIR}/tests/serve/client.c ${PROJECT_SOURCE_DIR}/tests/serve/mixed.c
            $<TARGET_OBJECTS:dra_cli_parts>)
        target_link_libraries(serve_${name} PRIVATE dra_harness dra_cli_needs)
        set_target_properties(serve_${name} PROPERTIES OUTPUT_NAME ${name}
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/serve)
    endforeach()
endif()

# dra serve with faults, for tests/faults.
if(serve_sources)
    add_executable(faults_served ${PROJECT_SOURCE_DIR}/tests/faults/served.c
        ${PROJECT_SOURCE_DIR}/tests/serve/client.c $<TARGET_OBJECTS:dra_cli_parts>)
    target_link_libraries(faults_served PRIVATE dra_harness dra_cli_needs)
    set_target_properties(faults_served PROPERTIES OUTPUT_NAME served
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)
endif()

# The CUDA plugin compiled for the host, see tests/cuda_host: tests/run.sh FOLDER+host.
if(NOT DRA_SANITIZE AND NOT DRA_DOUBLE)
    enable_language(CXX)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cu
        ${PROJECT_SOURCE_DIR}/src/ops/*/*.cu)
    list(REMOVE_ITEM cuda_sources ${PROJECT_SOURCE_DIR}/src/ops/products/gemm.cu)
    file(GLOB cuda_host_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda_host/*.cc)
    set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
    add_library(dra_cuda_host MODULE ${cuda_sources} ${cuda_host_sources})
    target_include_directories(dra_cuda_host PRIVATE ${PROJECT_SOURCE_DIR}/tests/cuda_host
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    # A GPU reads 16 bytes at a time from multiples of 16 only; a host would not mind.
    target_compile_options(dra_cuda_host PRIVATE -Wno-pedantic -Wno-conversion -O1
        -fsanitize=alignment -fno-sanitize-recover=alignment)
    target_link_options(dra_cuda_host PRIVATE -fsanitize=alignment)
    target_link_libraries(dra_cuda_host PRIVATE dra_static Threads::Threads)
    target_link_options(dra_cuda_host PRIVATE -Wl,--exclude-libs,ALL)
    set_target_properties(dra_cuda_host PROPERTIES OUTPUT_NAME dra-cuda CXX_STANDARD 17
        CXX_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/cuda_host)
endif()

# What tests/faults uses: programs around the command line, which other builds do not try.
if(NOT DRA_SANITIZE AND NOT DRA_DOUBLE)
    add_executable(faults_record ${PROJECT_SOURCE_DIR}/tests/faults/record.c)
    add_executable(faults_power ${PROJECT_SOURCE_DIR}/tests/faults/power.c
        ${PROJECT_SOURCE_DIR}/tests/faults/disk.c)
    target_include_directories(faults_power PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(faults_power PRIVATE dra_static)
    foreach(name record power)
        set_target_properties(faults_${name} PROPERTIES OUTPUT_NAME ${name}
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)
    endforeach()
endif()
# A strict parser for shell tests, in tests/cli next to the command line.
add_executable(strict_json ${PROJECT_SOURCE_DIR}/tests/cli/strict_json.c)
target_link_libraries(strict_json PRIVATE PkgConfig::JANSSON)
set_target_properties(strict_json PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/cli)
# The level avx512amx with its tiles in plain C, for processors that do not have them.
if(x86 AND NOT DRA_DOUBLE)
    add_library(dra_tiles_emulated OBJECT ${PROJECT_SOURCE_DIR}/src/device/simd_kernels.c)
    target_compile_options(dra_tiles_emulated PRIVATE -ffp-contract=fast ${flags_avx512bf16})
    target_compile_definitions(dra_tiles_emulated PRIVATE LEVEL=tiles_emulated
        LEVEL_NUMBER=DRA_LEVEL_AVX512AMX LEVEL_AVX512AMX TILES_EMULATED)
    target_include_directories(dra_tiles_emulated PRIVATE
        ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_sources(device_test_simd_gemm PRIVATE $<TARGET_OBJECTS:dra_tiles_emulated>)
    target_compile_definitions(device_test_simd_gemm PRIVATE TILES_EMULATED)
endif()
# Programs that make a command fail at one place, and loop over all places: docs/reliability.md.
# What is preloaded must come without a sanitizer of its own.
add_library(faults_alloc MODULE ${PROJECT_SOURCE_DIR}/tests/faults/alloc.c)
target_compile_definitions(faults_alloc PRIVATE _GNU_SOURCE)
target_link_libraries(faults_alloc PRIVATE ${CMAKE_DL_LIBS})
if(DRA_SANITIZE)
    target_compile_options(faults_alloc PRIVATE -fno-sanitize=all)
    target_link_options(faults_alloc PRIVATE -fno-sanitize=all)
endif()
set_target_properties(faults_alloc PROPERTIES OUTPUT_NAME alloc PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)
add_executable(faults_loop ${PROJECT_SOURCE_DIR}/tests/faults/loop.c)
target_compile_definitions(faults_loop PRIVATE _GNU_SOURCE)
set_target_properties(faults_loop PROPERTIES OUTPUT_NAME loop
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)
# Programs that make a command fail at one place, for the tests in tests/faults.
add_executable(faults_calls ${PROJECT_SOURCE_DIR}/tests/faults/calls.c)
set_target_properties(faults_calls PROPERTIES
    OUTPUT_NAME calls RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/faults)

# Shell tests get the command line's path.
set(verbs_without_real test_chat test_chat_template test_cost test_devices test_formats test_help
    test_settings test_shown test_sweep test_terminal test_tokenize test_tokenizer)
file(GLOB_RECURSE test_scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.sh)
foreach(script ${test_scripts})
    dra_test_name(${script} folder stem)
    if(folder STREQUAL "serve" AND NOT serve_sources) # this build has no server
        continue()
    endif()
    # Commands of the documentation show nothing more in other builds.
    if(folder STREQUAL "docs" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # The plugin of GPUs is one for all builds.
    if(folder STREQUAL "cuda" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # What they look at is options, texts, terminals and files, in verbs without dra_real; what
    # those call is tried in double by the tests of the library and of verbs with numbers.
    if(DRA_DOUBLE AND stem IN_LIST verbs_without_real)
        continue()
    endif()
    # The runs there hold floats.
    if(stem STREQUAL "test_presets" AND DRA_DOUBLE)
        continue()
    endif()
    if(stem STREQUAL "test_power" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # Worked examples are for the numbers that a user sees; other tests cover the code.
    if(stem STREQUAL "test_worked" AND (DRA_SANITIZE OR DRA_DOUBLE))
        continue()
    endif()
    # The double build allocates as the float one does; the thread sanitizer has its own malloc().
    if(stem STREQUAL "test_alloc" AND (DRA_DOUBLE OR DRA_SANITIZE STREQUAL "thread"))
        continue()
    endif()
    # The Python package is put together with the library that people use.
    if(folder STREQUAL "python" AND (DRA_SANITIZE OR DRA_DOUBLE))
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
