# For the wheel: links archives in place of shared libraries, with their symbols hidden.
#   dra_bundle(TARGET FLAG NAME...)   PkgConfig::TARGET becomes libNAME.a...; FLAG is what they
#                                     become part of: -shared or -pie
# Where there is no archive, or none that can be part of that (Debian's are often not position
# independent), the shared library stays, and auditwheel copies it into the wheel.
function(dra_bundle target flag)
    set(archives)
    foreach(name ${ARGN})
        find_library(archive_${name} NAMES lib${name}.a)
        if(NOT archive_${name})
            message(STATUS "wheel: no lib${name}.a, the shared library is copied")
            return()
        endif()
        list(APPEND archives ${archive_${name}})
    endforeach()
    list(GET archives 0 first)
    file(WRITE ${PROJECT_BINARY_DIR}/bundle/main.c "int main(void) { return 0; }\n")
    try_compile(archive_fits_${target} ${PROJECT_BINARY_DIR}/bundle/${target}
        ${PROJECT_BINARY_DIR}/bundle/main.c
        CMAKE_FLAGS -DCMAKE_POSITION_INDEPENDENT_CODE=ON
        LINK_OPTIONS ${flag} LINK_LIBRARIES
        -Wl,--whole-archive ${first} -Wl,--no-whole-archive ${archives} pthread)
    if(archive_fits_${target})
        set_property(TARGET PkgConfig::${target} PROPERTY INTERFACE_LINK_LIBRARIES ${archives})
    else()
        message(STATUS "wheel: ${first} does not fit, the shared library is copied")
    endif()
endfunction()
