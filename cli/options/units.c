/* The clock, and how times, counts and bytes are written in few letters. */
#include "units.h"

#include <stdio.h>
#include <time.h>

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *cli_time_text(double seconds, char text[24])
{
    static const double day = 86400, year = 365.25 * 86400;
    const long          s = seconds < 1e9 ? (long)(seconds + 0.5) : 1000000000;
    if (seconds >= 2 * year)
        snprintf(text, 24, seconds < 1e6 * year ? "%.0f years" : "%.1g years", seconds / year);
    else if (seconds >= 2 * day)
        snprintf(text, 24, seconds < 10 * day ? "%.1f days" : "%.0f days", seconds / day);
    else if (s >= 3600)
        snprintf(text, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 24, "%ld:%02ld", s / 60, s % 60);
    return text;
}

const char *cli_whole_text(double x, char text[32])
{
    char digits[32];
    int  at = 0;
    if (!(x >= 0 && x < 1e15)) {
        snprintf(text, 32, "%.3g", x);
        return text;
    }
    const int n = snprintf(digits, sizeof digits, "%.0f", x);
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

const char *cli_count_text(double x, char text[24])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int                      i = 0;
    for (; x >= 1000 && i < 4; i++) x /= 1000;
    snprintf(text, 24, i && x < 100 ? "%.1f%s" : "%.0f%s", x, units[i]);
    return text;
}

const char *cli_bytes_text(size_t bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double                   x = (double)bytes;
    int                      i = 0;
    for (; x >= 1024 && i < 4; i++) x /= 1024;
    snprintf(text, 24, i && x < 100 ? "%.1f %s" : "%.0f %s", x, units[i]);
    return text;
}
