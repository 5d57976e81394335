/* Cases of recurrent cells with one state for each head. A test includes cells.h and names
 *   #define START(b, h, d)   an input for each state: STATE(b, h, d), .. */
#ifndef DRA_TESTS_OPS_RECURRENT_CELLS_CASES_H
#define DRA_TESTS_OPS_RECURRENT_CELLS_CASES_H

#include "cells.h"

static const parts plain = {1, {""}, false}, marked = {1, {"gs"}, true};
static const parts whole = {1, {"bgs"}, true}, fed = {1, {"bgs"}, false};
static const parts two = {2, {"", ""}, false}, two_full = {2, {"bg", "bs"}, true};

/* clang-format off */
#define BETA(h, d)      {{2, {h, d}}, CHECK_REAL, -3, 3}
#define STATE(b, h, d)  {{3, {b, h, d}}}
/* clang-format on */

static const check_case one_cases[] = {
    {"plain", 2, {X(2, 4, 3, 5), W(5)}, &plain},
    {"one unit",
     5 + STATES,
     {X(1, 3, 1, 1), W(1), BIAS(1), BETA(1, 1), START(1, 1, 1), MARK(1, 3)},
     &whole},
    {"all parts",
     5 + STATES,
     {X(2, 5, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3), MARK(2, 5)},
     &whole},
    {"own weights",
     5 + STATES,
     {X(3, 4, 2, 3), EACH(2, 3), EACH_BIAS(2, 3), BETA(2, 3), START(3, 2, 3), MARK(3, 4)},
     &whole},
    {"own weights, one b",
     5 + STATES,
     {X(2, 3, 3, 2), EACH(3, 2), BIAS(2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"own b, one w",
     5 + STATES,
     {X(2, 3, 3, 2), W(2), EACH_BIAS(3, 2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"no tokens", 4 + STATES, {X(2, 0, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3)}, &fed},
    {"no rows", 4 + STATES, {X(0, 3, 2, 3), W(3), BIAS(3), BETA(2, 3), START(0, 2, 3)}, &fed},
    {"no heads",
     4 + STATES,
     {X(2, 3, 0, 3), EACH(0, 3), BIAS(3), BETA(0, 3), START(2, 0, 3)},
     &fed},
    {"no units", 4 + STATES, {X(2, 3, 2, 0), W(0), BIAS(0), BETA(2, 0), START(2, 2, 0)}, &fed},
    {"pads",
     4 + STATES,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_pads}},
     &marked},
    {"resets",
     4 + STATES,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_resets}},
     &marked},
    {"a reset at a pad",
     4 + STATES,
     {X(1, 6, 2, 2), W(2), BETA(2, 2), START(1, 2, 2), {{2, {1, 6}}, CHECK_I32, .values = late}},
     &marked},
    {"a vector and one", 2, {X(1, 2, 2, 17), W(17)}, &plain},
    {"several groups",
     4 + STATES,
     {X(5, 2, 4, 3), W(3), BETA(4, 3), START(5, 4, 3), MARK(5, 2)},
     &marked},
    {"groups of own weights",
     4 + STATES,
     {X(11, 2, 2, 2), EACH(2, 2), BETA(2, 2), START(11, 2, 2), MARK(11, 2)},
     &marked},
    {"several segments",
     4 + STATES,
     {X(2, 45, 4, 2), W(2), BETA(4, 2), START(2, 4, 2), MARK(2, 45)},
     &marked},
    {"segments and units",
     4 + STATES,
     {X(3, 80, 2, 11), EACH(2, 11), BETA(2, 11), START(3, 2, 11), MARK(3, 80)},
     &marked},
    {"a segment of one row", 2, {X(1, 131, 1, 2), W(2)}, &plain},
    {"wide",
     4 + STATES,
     {X(2, 3, 1, 40), W(40), BETA(1, 40), START(2, 1, 40), MARK(2, 3)},
     &marked},
    {"wider than registers",
     4 + STATES,
     {X(3, 3, 1, 70), W(70), BETA(1, 70), START(3, 1, 70), MARK(3, 3)},
     &marked},
    {"wide enough for slices",
     4 + STATES,
     {X(3, 3, 2, 90), EACH(2, 90), BETA(2, 90), START(3, 2, 90), MARK(3, 3)},
     &marked},
    {"saturated",
     2,
     {{{4, {2, 5, 2, GATES * 3}}, CHECK_REAL, -60, 60}, {{2, {GATES * 3, 3}}, CHECK_REAL, -20, 20}},
     &plain},
};

static const check_case two_cases[] = {
    {"two", 4, {X(2, 3, 2, 4), W(4), X(2, 3, 2, 4), W(4)}, &two},
    {"two widths", 4, {X(2, 3, 2, 2), W(2), X(2, 3, 2, 5), EACH(2, 5)}, &two},
    {"two, all parts",
     8 + STATES,
     {X(3, 3, 3, 3), EACH(3, 3), BIAS(3), BETA(3, 3), X(3, 3, 3, 2), W(2), BIAS(2), START(3, 3, 2),
      MARK(3, 3)},
     &two_full},
    {"two of no rows", 4, {X(0, 3, 2, 2), W(2), X(0, 3, 2, 5), EACH(2, 5)}, &two},
};

#endif
