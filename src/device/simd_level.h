/* The level that this source is compiled for. Loops that profit from vectors are compiled once for
 * each level, with LEVEL its name, LEVEL_NUMBER its dra_level and LEVEL_<NAME> defined (see
 * CMakeLists.txt): on vectors, or for level "ref" in plain C, which is the oracle of the others and
 * all there is for doubles. */
#ifndef DRA_SRC_SIMD_LEVEL_H
#define DRA_SRC_SIMD_LEVEL_H

#ifndef LEVEL
#define LEVEL ref
#define LEVEL_NUMBER DRA_LEVEL_REF
#define LEVEL_REF
#endif

#define LEVEL_JOIN_(name, level) name##_##level
#define LEVEL_JOIN(name, level) LEVEL_JOIN_(name, level)
#define LEVEL_NAMED(name) LEVEL_JOIN(name, LEVEL) /* dra_simd_avx2 for dra_simd */
#define LEVEL_QUOTE_(level) #level
#define LEVEL_QUOTE(level) LEVEL_QUOTE_(level)
#define LEVEL_TEXT LEVEL_QUOTE(LEVEL)

#ifdef LEVEL_REF
#include "device/simd_plain.h"
#else
#include "device/simd_vector.h"
#endif

#endif
