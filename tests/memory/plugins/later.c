/* As if it were made for a later dra, which is another one. */
#include <dra/dra.h>

dra_status dra_memory_plugin(const dra_memory *const **out, dra_error *err);
dra_status dra_memory_plugin(const dra_memory *const **out, dra_error *err)
{
    static const dra_memory *const none[] = {NULL};
    static const size_t            bytes[] = {sizeof(dra_real), sizeof(dra_error)};
    *out = none;
    return dra_abi_compare(DRA_VERSION_NUMBER + 1000000, 2, bytes, err);
}
