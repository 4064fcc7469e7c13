/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the headers are valid C++ and their functions have C linkage there. */
#include <isthmus/isthmus.h>

#include <iostream>
#include <string>

int main()
{
    if (ist_version() != IST_VERSION) {
        std::cerr << "library " << ist_version_string() << ", headers " << IST_VERSION << "\n";
        return 1;
    }
    return std::string(ist_status_name(IST_OK)) == "IST_OK" ? 0 : 1;
}
