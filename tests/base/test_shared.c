/* Where tests find data that is not in the repository. */
#include "shared.h"

#include <string.h>
#include <unistd.h>

#include "check.h"

static void make(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A project's folder and one called shared next to it. */
static void is_found_next_to_the_project(void **state)
{
    char folder[64], here[4096];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(folder, sizeof folder, "/tmp/dra-shared-%ld", (long)getpid());
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("project", 0777), 0);
    assert_int_equal(chdir("project"), 0);
    unsetenv("DRA_SHARED_DATA");
    assert_null(shared_data());
    assert_null(shared_file("x"));
    assert_true(mkdir("../shared", 0777) == 0 && mkdir("../shared/data", 0777) == 0);
    make("../shared/data/x", "found");
    assert_string_equal(shared_data(), "../shared/data");
    FILE *f = shared_file("x");
    assert_non_null(f);
    fclose(f);
    assert_null(shared_file("y"));
    setenv("DRA_SHARED_DATA", "elsewhere", 1); /* wins */
    assert_string_equal(shared_data(), "elsewhere");
    assert_null(shared_file("x"));
    assert_true(unlink("../shared/data/x") == 0 && rmdir("../shared/data") == 0);
    assert_true(rmdir("../shared") == 0 && rmdir("../project") == 0);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_found_next_to_the_project)};
    return check_main("shared", NULL, 0, tests, COUNT(tests));
}
