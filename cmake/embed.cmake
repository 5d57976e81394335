# Turns a text into a C file, NAME.c in the build folder: const char *const NAME[], its lines, NULL
# at the end. Lines, because a compiler need not take a literal as long as a file.
function(dra_embed_lines name path)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\",\n    \"" text "${text}")
    file(RELATIVE_PATH file ${PROJECT_SOURCE_DIR} ${path})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.c @ONLY CONTENT
"/* Made of @file@. */
extern const char *const @name@[];

const char *const @name@[] = {
    \"@text@\", (const char *)0};
")
endfunction()
