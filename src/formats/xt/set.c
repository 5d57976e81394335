/* One option of a config by its name in x-transformers, as --set has it. */
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"
#include "model/owned.h"

/* The object of a config in which an option stands, of those that some object may have; NULL: it is
 * no option. Sides of XTransformer have theirs at the top, as stacks by themselves. */
static json_t *find_place(json_t *object, const char **name)
{
    static const char *const starts[] = {"attn_layers.", "enc_", "dec_"};
    const char              *bare = *name;
    json_t                  *net = json_object_get(object, "net"), *top = net ? net : object;
    json_t                  *stack = json_object_get(top, "attn_layers");
    if (strncmp(bare, starts[0], strlen(starts[0])) == 0) *name = bare = bare + strlen(starts[0]);
    for (int i = 1; i < 3 && !stack; i++)
        if (strncmp(bare, starts[i], strlen(starts[i])) == 0) bare += strlen(starts[i]);
    if (strncmp(bare, "cross_attn_", 11) == 0) bare += strlen("cross_");
    if (strcmp(*name, "release") == 0) return object;
    if (dra_xt_is_known(dra_xt_stack_fields(), bare)) return stack ? stack : top;
    for (int w = DRA_XT_TOKENS; w <= DRA_XT_IMAGE; w++)
        if (dra_xt_is_known(dra_xt_fields((dra_xt_wrapper)w), bare)) return top;
    return NULL;
}

/* Numbers, lists, true and false as JSON has them; else a text. */
static json_t *read_value(dra_json *j, const char *value)
{
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    return v ? v : dra_json_text(j, value);
}

bool dra_xt_set(dra_model_config *c, const char *name, const char *value, dra_status *st,
                dra_error *err)
{
    dra_json          j = {0};
    dra_model_config *changed = NULL;
    json_t           *object = dra_json_object(&j);
    dra_json_set(&j, object, "model_type", dra_json_text(&j, dra_format_xt.name));
    *st = dra_json_check(&j, "--set", err);
    /* What dra's own names made of it may have no names there. */
    const bool writes = *st == DRA_OK && dra_format_write("--set", c, object, NULL) == DRA_OK;
    json_t    *to = writes ? find_place(object, &name) : NULL;
    if (to) {
        dra_json_set(&j, to, name, read_value(&j, value));
        *st = dra_json_check(&j, "--set", err);
        if (*st == DRA_OK) *st = dra_config_new(&changed, err);
        if (*st == DRA_OK) *st = dra_format_read(&dra_format_xt, "--set", object, changed, err);
        if (*st == DRA_OK) changed->format = c->format;
        if (*st == DRA_OK) *st = dra_config_fill(c, changed, c->own, err);
    }
    dra_model_config_destroy(changed);
    json_decref(object);
    return to || *st != DRA_OK;
}
