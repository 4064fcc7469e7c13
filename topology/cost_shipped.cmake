# SPDX-License-Identifier: Apache-2.0
#
# Writes profiles as rows of SHIPPED(number, name, bytes...): run with -Dprofiles=... -Dto=...
set(text "")
set(names "")
set(number 0)
foreach(profile IN LISTS profiles)
    cmake_path(GET profile STEM name)
    file(READ ${profile} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND text "static const unsigned char profile_${number}[] = {\n${bytes}\n};\n")
    string(APPEND names "    {\"${name}\", profile_${number}, sizeof(profile_${number})},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${to} "${text}static const shipped_profile shipped[] = {\n${names}};\n")
