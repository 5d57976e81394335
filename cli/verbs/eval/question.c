/* A question with several answers, from a line of JSON. */
#include "choices.h"
#include "report/jsonl.h"
#include "io/line_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_member *find_member(const cli_member *members, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(members[i].key, key) == 0) return &members[i];
    return NULL;
}

bool cli_are_choices(const cli_list *files)
{
    cli_input_lines l = {0};
    cli_member      members[CLI_MEMBERS];
    dra_error       err = {0};
    bool            more = false, found = files->count > 0;
    for (size_t i = 0; i < files->count; i++) found &= cli_ends_with(files->text[i], ".jsonl");
    if (!found || cli_input_lines_open(files->text[0], &l, &err) != DRA_OK) return false;
    found = cli_input_lines_next(&l, &more, &err) == DRA_OK && more;
    const int n = found ? cli_line_read(l.line, members) : -1;
    found = n > 0 && find_member(members, n, "choices") && !find_member(members, n, "text");
    cli_input_lines_close(&l);
    return found;
}

/* The list's texts are unescaped in place, which reading the whole line has done already, so they
 * come from a copy. */
const char *cli_question_read(char *line, cli_question *q)
{
    cli_member members[CLI_MEMBERS];
    *q = (cli_question){.room = strdup(line)};
    if (!q->room) return "out of memory";
    const int n = cli_line_read(line, members);
    if (n < 0) return "expected a JSON object";
    const cli_member *context = find_member(members, n, "context"),
                     *choices = find_member(members, n, "choices"),
                     *answer = find_member(members, n, "answer");
    if (!context || context->kind != CLI_MEMBER_TEXT) return "context: expected a text";
    if (!choices) return "choices: expected a list of texts";
    q->context = context->text;
    q->n = cli_list_read(q->room + (choices->at - line), q->choice, CLI_CHOICES);
    if (q->n < 0) return "choices: expected a list of texts";
    if (q->n < 2 || q->n > CLI_CHOICES) return "choices: expected 2 to 256 texts";
    for (int i = 0; i < q->n; i++)
        if (!*q->choice[i]) return "choices: expected texts that are not empty";
    if (!answer || answer->kind != CLI_MEMBER_NUMBER || !(answer->number >= 0) ||
        !(answer->number < q->n) || floor(answer->number) != answer->number)
        return "answer: expected the index of a choice, counted from 0";
    q->answer = (int)answer->number;
    return NULL;
}
