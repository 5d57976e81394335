/* strict_json FILE: whether a file is one JSON value; strict_json --lines FILE: whether each line
 * of it is one. By the letter of RFC 8259: no NaN, no Infinity, no key twice, nothing after it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int judge(const char *path, long line, const char *text, size_t bytes)
{
    json_error_t why;
    json_t      *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!value) printf("%s:%ld: %s\n", path, line + why.line - 1, why.text);
    json_decref(value);
    return value ? 0 : 1;
}

static int judge_lines(const char *path, FILE *in)
{
    char   *text = NULL;
    size_t  room = 0;
    ssize_t n;
    long    line = 0;
    int     bad = 0;
    while ((n = getline(&text, &room, in)) > 0) bad |= judge(path, ++line, text, (size_t)n);
    if (!line) printf("%s: no line\n", path);
    free(text);
    return bad || !line;
}

static int judge_whole(const char *path, FILE *in)
{
    char  *text = NULL;
    size_t room = 0;
    /* No file here has a NUL. */
    const ssize_t n = getdelim(&text, &room, '\0', in);
    const int     bad = n > 0 ? judge(path, 1, text, (size_t)n) : 1;
    if (n <= 0) printf("%s: empty\n", path);
    free(text);
    return bad;
}

int main(int argc, char **argv)
{
    const int   lines = argc == 3 && strcmp(argv[1], "--lines") == 0;
    const char *path = argv[argc - 1];
    FILE       *in = argc == 2 + lines ? fopen(path, "r") : NULL;
    if (!in) {
        puts("usage: strict_json [--lines] FILE, which is there");
        return 2;
    }
    const int bad = lines ? judge_lines(path, in) : judge_whole(path, in);
    fclose(in);
    return bad;
}
