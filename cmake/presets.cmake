# Turns presets/*.json into a C file: one row {name, text} each, sorted by name.
function(dra_embed_presets out)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/presets/*.json)
    list(SORT files)
    set(rows "")
    foreach(path ${files})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
        get_filename_component(stem ${path} NAME_WE)
        file(READ ${path} text)
        string(REPLACE "\\" "\\\\" text "${text}")
        string(REPLACE "\"" "\\\"" text "${text}")
        string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
        string(APPEND rows "    {\"${stem}\",\n     \"${text}\"},\n")
    endforeach()
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"/* Made of the files of the folder presets. */
#include \"model/presets.h\"

const dra_preset dra_presets[] = {
@rows@    {0}};
")
endfunction()
