/* What a state file holds: how much was read, whose it is, its tensors. */
#include "info.h"
#include "options/term.h"
#include "options/units.h"

#include <string.h>

static void write_json_member(const char *key, const char *text)
{
    printf(", \"%s\": ", key);
    cli_json_text(text, stdout);
}

static size_t all_bytes(const dra_tensors *t)
{
    size_t bytes = 0;
    for (size_t i = 0; i < dra_tensors_count(t); i++) bytes += dra_tensors_at(t, i)->bytes;
    return bytes;
}

static void write_shape(const dra_shape *s)
{
    for (int i = 0; i < s->rank; i++) printf("%s%lld", i ? ", " : "", (long long)s->dim[i]);
}

static void write_json(const dra_tensors *t, const char *tokens, const char *fingerprint)
{
    printf("{\"format\": \"dra-state\"");
    write_json_member("tokens", tokens);
    write_json_member("fingerprint", fingerprint);
    printf(", \"bytes\": %zu, \"tensors\": [", all_bytes(t));
    for (size_t i = 0; i < dra_tensors_count(t); i++) {
        const dra_tensor_info *x = dra_tensors_at(t, i);
        printf("%s{\"name\": ", i ? ", " : "");
        cli_json_text(x->name, stdout);
        printf(", \"dtype\": \"%s\", \"shape\": [", x->dtype_name);
        write_shape(&x->shape);
        printf("], \"bytes\": %zu}", x->bytes);
    }
    puts("]}");
}

static void write_text(const dra_tensors *t, const char *tokens, const char *fingerprint)
{
    char bytes[24];
    cli_fold(14, stdout, "state         %s in %zu tensors", cli_bytes_text(all_bytes(t), bytes),
             dra_tensors_count(t));
    cli_fold(14, stdout, "tokens        %s read", tokens);
    cli_fold(14, stdout, "fingerprint   %s of its model and weights", fingerprint);
    for (size_t i = 0; i < dra_tensors_count(t); i++) {
        const dra_tensor_info *x = dra_tensors_at(t, i);
        printf("  %-36s  %s (", x->name, x->dtype_name);
        write_shape(&x->shape);
        printf(")  %s\n", cli_bytes_text(x->bytes, bytes));
    }
}

bool info_is_state(const char *path)
{
    dra_tensors *t = NULL;
    struct stat  s;
    if (!path || cli_stat(path, &s) != 0 || !S_ISREG(s.st_mode)) return false;
    if (dra_tensors_open(path, &t, NULL) != DRA_OK) return false;
    const char *format = dra_tensors_metadata(t, "format");
    const bool  is = format && strcmp(format, "dra-state") == 0;
    dra_tensors_close(t);
    return is;
}

dra_status info_show_state(const char *path, bool json, dra_error *err)
{
    dra_tensors     *t = NULL;
    const dra_status st = dra_tensors_open(path, &t, err);
    if (st != DRA_OK) return st;
    const char *tokens = dra_tensors_metadata(t, "tokens");
    const char *fingerprint = dra_tensors_metadata(t, "fingerprint");
    (json ? write_json : write_text)(t, tokens ? tokens : "?", fingerprint ? fingerprint : "?");
    dra_tensors_close(t);
    return DRA_OK;
}
