/* The peak of plain code: registers every processor of its kind has, and the multiply-add if that
 * is one instruction there. On 64-bit ARM this is the peak of NEON too. */
#define PEAK_BYTES 16
#include "device/simd_peak.h"

const dra_peak *dra_peak_ref(void) { return &peak_of_level; }
