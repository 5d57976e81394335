/* Options of a program's own memory: a struct that its table describes, kept in the config. */
#include <string.h>

#include "file/fields.h"
#include "memory/memory.h"
#include "memory/part.h"

void dra_memory_set_options(dra_memory_config *c, const void *options)
{
    const size_t n = c->own ? c->own->options_size : 0;
    if (n <= sizeof c->options) memcpy(c->options, options, n);
}

bool dra_memory_option_field(const void *own, size_t i, dra_field *out)
{
    static const dra_field_kind kinds[] = {[DRA_OPTION_INT] = DRA_FIELD_INT,
                                           [DRA_OPTION_REAL] = DRA_FIELD_REAL,
                                           [DRA_OPTION_BOOL] = DRA_FIELD_BOOL,
                                           [DRA_OPTION_CHOICE] = DRA_FIELD_CHOICE};
    const dra_memory           *m = own;
    const dra_memory_option    *o = m->options ? &m->options[i] : NULL;
    if (!o || !o->name || (unsigned)o->kind >= DRA_OPTION_COUNT) return false;
    *out = (dra_field){.name = o->name,
                       .kind = kinds[o->kind],
                       .offset = o->offset,
                       .min = o->min,
                       .max = o->max,
                       .choices = o->choices,
                       .unset = o->unset};
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static size_t width_of(dra_option_kind kind)
{
    switch (kind) {
    case DRA_OPTION_BOOL: return sizeof(bool);
    case DRA_OPTION_CHOICE: return sizeof(int);
    default: return sizeof(int64_t);
    }
}

static dra_status check_option(const dra_memory *m, const dra_memory_option *o, dra_error *err)
{
    const dra_field *f;
    char             name[100];
    const bool       known = (unsigned)o->kind < DRA_OPTION_COUNT;
    const size_t     n = known ? width_of(o->kind) : 1;
    if (!known)
        return dra_fail(err, DRA_ERR_VALUE, "memory %s: option %s has kind %d, expected 0 to %d",
                        m->name, o->name, (int)o->kind, DRA_OPTION_COUNT - 1);
    if (o->kind == DRA_OPTION_CHOICE && (!o->choices || !o->choices[0]))
        return dra_fail(err, DRA_ERR_VALUE, "memory %s: option %s has no choices", m->name,
                        o->name);
    if (o->offset % n || o->offset > m->options_size || m->options_size - o->offset < n)
        return dra_fail(err, DRA_ERR_VALUE,
                        "memory %s: option %s has offset %zu in a struct of %zu bytes", m->name,
                        o->name, o->offset, m->options_size);
    for (size_t i = 0; dra_fields_at(dra_mixer_fields, i, name, sizeof name, &f); i++)
        if (strcmp(name, o->name) == 0)
            return dra_fail(err, DRA_ERR_NAME, "memory %s: option %s: a key of mixers is called so",
                            m->name, name);
    return DRA_OK;
}

dra_status dra_memory_check_options(const dra_memory *m, dra_error *err)
{
    dra_status st = DRA_OK;
    if (m->options_size > DRA_OPTIONS_BYTES)
        return dra_fail(err, DRA_ERR_VALUE,
                        "memory %s: options have %zu bytes, expected at most %d", m->name,
                        m->options_size, DRA_OPTIONS_BYTES);
    for (const dra_memory_option *o = m->options; o && o->name && st == DRA_OK; o++)
        st = check_option(m, o, err);
    return st;
}

dra_status dra_memory_check_own(const dra_memory_config *c, dra_error *err)
{
    dra_field  f;
    dra_status st = DRA_OK;
    for (size_t i = 0; c->own && dra_memory_option_field(c->own, i, &f) && st == DRA_OK; i++)
        st = dra_field_check(&f, c->own->name, c->options, err);
    for (size_t i = 0; !c->own && i < sizeof c->options / 8; i++)
        if (c->options[i])
            return dra_fail(err, DRA_ERR_VALUE,
                            "%s: options are set, which only a program's own memory has",
                            c->memory ? c->memory : "append");
    return st;
}
