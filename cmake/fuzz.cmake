# Fuzzers: one tests/fuzz/fuzz_NAME.c for each reader, whose one function harness() tries any bytes,
# and the drivers that call it. fuzz_graph draws graphs, not bytes, and drives itself.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
add_custom_target(fuzzers)
foreach(source ${fuzz_sources})
    get_filename_component(stem ${source} NAME_WE)
    string(REPLACE fuzz_ "" name ${stem})
    set(driver ${PROJECT_SOURCE_DIR}/tests/fuzz/drive.c)
    if(DRA_SANITIZE STREQUAL "fuzzer")
        set(driver ${PROJECT_SOURCE_DIR}/tests/fuzz/drive_libfuzzer.c)
    endif()
    if(name STREQUAL "graph")
        set(driver "")
    endif()
    add_executable(${stem} ${source} ${driver})
    target_include_directories(${stem} PRIVATE
        ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${stem} PRIVATE FUZZ_NAME="${name}")
    target_link_libraries(${stem} PRIVATE dra_static PkgConfig::JANSSON m)
    set_target_properties(${stem} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fuzz)
    if(name STREQUAL "log") # what reads logs is a part of the command line
        target_sources(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/cli/report/jsonl.c)
        target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/cli)
    endif()
    if(name STREQUAL "request") # so is what reads requests
        target_sources(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/cli/serve/json.c
            ${PROJECT_SOURCE_DIR}/cli/serve/text.c ${PROJECT_SOURCE_DIR}/cli/serve/http_head.c)
        target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/cli)
    endif()
    if(name STREQUAL "data")
        target_link_libraries(${stem} PRIVATE PkgConfig::ZLIB PkgConfig::ZSTD)
    endif()
    add_dependencies(fuzzers ${stem})
    if(DRA_SANITIZE STREQUAL "fuzzer")
        target_compile_options(${stem} PRIVATE ${sanitize} ${coverage}
            -Wno-unused-but-set-variable) # sums that only touch what they add
        if(driver)
            target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
        endif()
    elseif(driver)
        # What is stored was found once, or reaches what little else does; it takes no time.
        add_test(NAME fuzz/${name}
            COMMAND ${stem} --replay ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
        dra_test_properties(fuzz/${name})
    endif()
endforeach()
