/* What a program was compiled with, compared with what the library was. */
#include "dra/abi.h"

#include "base/error.h"

enum { MINOR = 1000 }; /* versions with the same quotient differ in their patch only */

#define NAME(type) , #type
#define BYTES(type) , sizeof(type)
static const char *const names[] = {"dra_real" DRA_ABI_STRUCTS(NAME)};
static const size_t      sizes[] = {sizeof(dra_real) DRA_ABI_STRUCTS(BYTES)};
enum { SIZES = sizeof sizes / sizeof *sizes };

dra_status dra_abi_compare(int32_t version, size_t n, const size_t *bytes, dra_error *err)
{
    const int major = version / (MINOR * MINOR), minor = version / MINOR % MINOR;
    if (n < 2 || !bytes || bytes[1] != sizeof(dra_error)) return DRA_ERR_VALUE; /* no text fits */
    if (version / MINOR != DRA_VERSION_NUMBER / MINOR || version > DRA_VERSION_NUMBER || n > SIZES)
        return dra_fail(
            err, DRA_ERR_VALUE,
            "the program was compiled for dra %d.%d.%d, the library is " DRA_VERSION_TEXT, major,
            minor, version % MINOR);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != sizes[i])
            return dra_fail(err, DRA_ERR_VALUE,
                            "%s has %zu bytes in the program and %zu in the library: compile the "
                            "program with the headers and flags of this library",
                            names[i], bytes[i], sizes[i]);
    return DRA_OK;
}
