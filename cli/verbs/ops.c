/* dra ops: what the library can compute. */
#include "options/options.h"
#include "options/term.h"

#include "dra/ops.h"

#include <string.h>

struct args {
    bool json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

static const char *yes_no(bool yes) { return yes ? "yes" : "no"; }
static const char *json_bool(bool yes) { return yes ? "true" : "false"; }

/* -1 means any number. */
static const char *number_text(int n, const char *any, char *text, size_t size)
{
    snprintf(text, size, "%d", n);
    return n < 0 ? any : text;
}

static void write_json(void)
{
    char in[16], out[16];
    fputs("{\"ops\": [", stdout);
    for (size_t i = 0; i < dra_op_count(); i++) {
        const dra_op_info op = dra_op_at(i);
        fputs(i ? ",\n  {\"name\": " : "\n  {\"name\": ", stdout);
        cli_json_text(op.name, stdout);
        printf(", \"inputs\": %s, \"outputs\": %s, \"gradient\": %s, \"cpu\": %s}",
               number_text(op.inputs, "null", in, sizeof in),
               number_text(op.outputs, "null", out, sizeof out), json_bool(op.gradient),
               json_bool(op.cpu));
    }
    puts("\n]}");
}

static void write_table(void)
{
    char in[16], out[16];
    int  width = 2;
    for (size_t i = 0; i < dra_op_count(); i++) {
        const int length = (int)strlen(dra_op_at(i).name);
        if (length > width) width = length;
    }
    printf("%s%-*s  inputs  outputs  gradient  cpu%s\n", cli_bold(stdout), width, "op",
           cli_plain(stdout));
    for (size_t i = 0; i < dra_op_count(); i++) {
        const dra_op_info op = dra_op_at(i);
        printf("%-*s  %6s  %7s  %-8s  %s\n", width, op.name,
               number_text(op.inputs, "any", in, sizeof in),
               number_text(op.outputs, "any", out, sizeof out), yes_no(op.gradient),
               yes_no(op.cpu));
    }
}

static int run_ops(const void *args)
{
    const struct args *a = args;
    if (a->json)
        write_json();
    else
        write_table();
    return CLI_OK;
}

static const cli_note examples[] = {
    {"dra ops", "all of them"},
    {"dra ops --json", "as JSON"},
    {0},
};

const cli_verb cmd_ops = {
    .name = "ops",
    .summary = "list the ops of the library",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_ops,
    .group = "Look",
    .about = "Prints a line for each op of the library: its name, how many inputs and outputs it "
             "has, and whether it has a gradient and a kernel on the CPU. A program builds ops "
             "with the functions of dra/ops.h.",
    .examples = examples,
    .also = "bench",
};
