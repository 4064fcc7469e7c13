# SPDX-License-Identifier: Apache-2.0
#
# Installs the build into a stage, then builds and runs the consumer project against it.
#   cmake -D build=DIR -D libdir=lib -D cc=gcc -D way=cmake|pkgconfig -P consumer.cmake
set(source ${CMAKE_CURRENT_LIST_DIR})
set(work ${build}/consumer/${way})
set(stage ${work}/stage)

function(step)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result
        OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        list(JOIN ARGN " " line)
        message(FATAL_ERROR "${line}: ${result}\n${output}")
    endif()
endfunction()

# The C++ compiler of the same family: a C++ program has to link what the C compiler made.
string(REGEX REPLACE "gcc([^/]*)$" "g++\\1" cxx ${cc})
string(REGEX REPLACE "clang([^/]*)$" "clang++\\1" cxx ${cxx})
string(REGEX REPLACE "/cc$" "/c++" cxx ${cxx})

file(REMOVE_RECURSE ${work})
step(${CMAKE_COMMAND} --install ${build} --prefix ${stage})
set(ENV{LD_LIBRARY_PATH} ${stage}/${libdir})

if(way STREQUAL "cmake")
    step(${CMAKE_COMMAND} -S ${source} -B ${work}/build -G Ninja
        -DCMAKE_C_COMPILER=${cc} -DCMAKE_CXX_COMPILER=${cxx}
        -DCMAKE_PREFIX_PATH=${stage} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
    step(${CMAKE_COMMAND} --build ${work}/build)
    step(${CMAKE_CTEST_COMMAND} --test-dir ${work}/build --output-on-failure --no-tests=error)
else()
    set(ENV{PKG_CONFIG_PATH} ${stage}/${libdir}/pkgconfig)
    find_program(pkg_config pkg-config REQUIRED)
    function(build_and_run name compiler file)
        execute_process(COMMAND ${pkg_config} --cflags --libs ${ARGN} isthmus
            OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
        separate_arguments(flags UNIX_COMMAND "${flags}")
        if(ARGN MATCHES "--static")
            list(TRANSFORM flags REPLACE "^-listhmus$" "-l:libisthmus.a")
        endif()
        step(${compiler} -Wall -Wextra -Wpedantic -Werror ${source}/${file} -o ${work}/${name} ${flags})
        step(${work}/${name})
    endfunction()
    build_and_run(consumer_c ${cc} main.c)
    build_and_run(consumer_cxx ${cxx} main.cpp)
    build_and_run(consumer_static ${cc} main.c --static)
endif()
