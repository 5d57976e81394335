/* dra info: the stacks of a model that is no language model, as text and as JSON. */
#include "outline.h"

#include "info.h"
#include "io/inputs.h"

static void write_part(const outline_part *p, bool inside)
{
    const int indent = inside ? 4 : 2;
    cli_fold(38, stdout, p->detail[0] ? "%*s%-*s %11lld  %s" : "%*s%-*s %11lld%s", indent, "",
             24 - indent, p->kind == OUTLINE_LAYERS && p->count == 1 ? "layers" : p->title,
             (long long)p->params, p->detail);
}

static void write_stack(const outline *o, const outline_stack *s)
{
    cli_fold(14, stdout, "stack         %s%s%s%s%s: %s -> %s, %lld parameters",
             s->name[0] ? s->name : "model", s->role ? ", " : "", s->role ? s->role : "",
             s->role ? " " : "", s->role ? o->stack[s->reader].name : "", s->reads, s->gives,
             (long long)s->params);
    for (int i = 0, inside = 0; i < s->n; i++) {
        write_part(&s->part[i], inside > 0);
        inside += inside > 0 ? -1 : s->part[i].kind == OUTLINE_LAYERS ? s->part[i].n : 0;
    }
}

void info_stacks_text(const dra_model *m, const outline *o)
{
    char list[300];
    cli_line(stdout, "reads         %s", cli_named_list(m, list, sizeof list));
    cli_line(stdout, "puts out      %s", o->stack[o->n - 1].gives);
    for (int i = 0; i < o->n; i++) write_stack(o, &o->stack[i]);
}

static void write_parts(const outline_stack *s)
{
    for (int i = 0; i < s->n; i++) {
        const outline_part *p = &s->part[i];
        printf("%s\n    {\"kind\": \"%s\", \"name\": \"%s\", \"detail\": \"%s\", ", i ? "," : "",
               outline_kind_name(p->kind), p->title, p->detail);
        printf("\"parameters\": %lld", (long long)p->params);
        if (p->kind == OUTLINE_LAYERS)
            printf(", \"count\": %lld, \"parts\": %d", (long long)p->count, p->n);
        putchar('}');
    }
}

void info_stacks_json(const outline *o)
{
    fputs(" \"stacks\": [", stdout);
    for (int i = 0; i < o->n; i++) {
        const outline_stack    *s = &o->stack[i];
        const dra_model_config *c = dra_model_config_of(s->model);
        printf("%s\n  {\"name\": \"%s\", \"reader\": ", i ? "," : "", s->name);
        if (s->role)
            printf("\"%s\", \"role\": \"%s\", ", o->stack[s->reader].name, s->role);
        else
            fputs("null, ", stdout);
        printf("\"reads\": \"%s\", \"gives\": \"%s\", \"dim\": %lld, \"depth\": %lld, ", s->reads,
               s->gives, (long long)c->dim, (long long)c->depth);
        printf("\"parameters\": %lld, \"parts\": [", (long long)s->params);
        write_parts(s);
        fputs("]}", stdout);
    }
    fputs("],\n", stdout);
}
