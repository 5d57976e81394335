/* A program outside the project: uses the installed headers and library.
 * Its argument is the version it expects. */
#include <dra/dra.h>

#include <stdio.h>
#include <string.h>

#if DRA_VERSION_NUMBER < DRA_VERSION_MAJOR * 1000000
#error "the macros of the version are for the preprocessor, too"
#endif

int main(int argc, char **argv)
{
    dra_error err = {0};
    if (dra_abi_check(&err) != DRA_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc != 2 || strcmp(argv[1], dra_version()) || strcmp(argv[1], DRA_VERSION_TEXT)) {
        fprintf(stderr, "expected version %s, found %s\n", argc > 1 ? argv[1] : "?", dra_version());
        return 1;
    }
    if (dra_op_count() == 0) return 1;
    dra_tensors *none = NULL; /* what needs jansson is linked, too */
    if (dra_tensors_open("", &none, NULL) != DRA_ERR_FILE) return 1;
    printf("%zu ops, first %s\n", dra_op_count(), dra_op_at(0).name);
    return 0;
}
