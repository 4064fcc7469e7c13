# SPDX-License-Identifier: Apache-2.0
#
# isthmus_add_kernels(NAME SOURCES text... [NEEDS interface] [DEFINES name=value...] [INCLUDES dir...])
#
# Compiles texts that define kernels (IST_KERNEL) for GPUs: one image of device code each, and
# objects that register it when the program starts. Link them with $<TARGET_OBJECTS:NAME>. The
# same texts are compiled by the C compiler for the simulator as usual; nothing of CUDA is linked.
function(isthmus_add_kernels name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "NEEDS" "SOURCES;DEFINES;INCLUDES")
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
    set(flags -std=c++17 --fmad=false -Xcompiler=-Wall,-Wextra)
    if(IST_WERROR)
        list(APPEND flags --Werror=all-warnings)
    endif()
    list(TRANSFORM arg_DEFINES PREPEND -D)
    list(TRANSFORM arg_INCLUDES PREPEND -I)
    set(IST_IMAGE_NEEDS NULL)
    if(arg_NEEDS)
        set(IST_IMAGE_NEEDS "\"${arg_NEEDS}\"")
    endif()
    set(units "")
    foreach(source IN LISTS arg_SOURCES)
        cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
        cmake_path(GET path STEM stem)
        set(IST_IMAGE_FILE ${folder}/${stem}.fatbin)
        string(MAKE_C_IDENTIFIER "ist_image_${name}_${stem}" IST_IMAGE_SYMBOL)
        cmake_path(GET path FILENAME IST_IMAGE_SOURCE)
        configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cuda_image.c.in ${folder}/${stem}_image.c @ONLY)
        add_custom_command(OUTPUT ${IST_IMAGE_FILE}
            COMMAND ${CMAKE_CUDA_COMPILER} -fatbin
                -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90
                ${flags} ${arg_DEFINES} ${arg_INCLUDES}
                -MD -MF ${folder}/${stem}.d -MT ${IST_IMAGE_FILE}
                -x cu ${path} -o ${IST_IMAGE_FILE}
            DEPENDS ${path} DEPFILE ${folder}/${stem}.d
            COMMENT "Device code of ${IST_IMAGE_SOURCE} (${name})" VERBATIM)
        set_property(SOURCE ${folder}/${stem}_image.c APPEND PROPERTY
            OBJECT_DEPENDS ${IST_IMAGE_FILE})
        list(APPEND units ${folder}/${stem}_image.c)
    endforeach()
    add_library(${name} OBJECT ${units})
    target_include_directories(${name} PRIVATE
        $<TARGET_PROPERTY:isthmus::isthmus,INTERFACE_INCLUDE_DIRECTORIES>)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
