# The Python package (docs/python.md), put together in python/ of the build folder: the sources, the
# library, and its ctypes declarations, which are made of the headers. PYTHONPATH=build/python.
find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
    return()
endif()
set(package ${PROJECT_BINARY_DIR}/python/dra)
file(GLOB package_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/dra/*)
list(FILTER package_sources EXCLUDE REGEX "__pycache__")
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/dra/*)
set(links)
foreach(source ${package_sources})
    get_filename_component(name ${source} NAME)
    list(APPEND links COMMAND ${CMAKE_COMMAND} -E create_symlink ${source} ${package}/${name})
endforeach()
set(real_flags)
if(DRA_DOUBLE)
    set(real_flags -DDRA_REAL_DOUBLE)
endif()
add_custom_command(OUTPUT ${package}/_c.py
    COMMAND ${CMAKE_COMMAND} -E make_directory ${package}
    COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/python/bindings.py --cc ${CMAKE_C_COMPILER}
        --include ${PROJECT_SOURCE_DIR}/include --out ${package}/_c.py ${real_flags}
    DEPENDS ${public_headers} ${PROJECT_SOURCE_DIR}/python/bindings.py VERBATIM)
set(library ${package}/$<TARGET_SONAME_FILE_NAME:dra>)
set(always ALL)
if(DRA_SANITIZE OR DRA_DOUBLE)  # the tests of the package are those of the library that people use
    set(always)
endif()
add_custom_target(dra_python ${always} ${links}
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:dra> ${library}
    DEPENDS ${package}/_c.py)
add_dependencies(dra_python dra)

# What scikit-build-core puts into the wheel besides the sources.
if(DRA_WHEEL)
    install(FILES ${package}/_c.py DESTINATION dra COMPONENT wheel)
    install(FILES $<TARGET_FILE:dra> DESTINATION dra RENAME $<TARGET_SONAME_FILE_NAME:dra>
        COMPONENT wheel)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/python/command.py DESTINATION ${SKBUILD_SCRIPTS_DIR}
        RENAME dra COMPONENT wheel)
    set_target_properties(dra_cli PROPERTIES INSTALL_RPATH "\$ORIGIN/..")
    install(TARGETS dra_cli RUNTIME DESTINATION dra/bin COMPONENT wheel)
endif()
