// Many sequences, of which only the open units are computed. Each open unit has a slot, and the weights between slots are
// one small dense block that changes only where a unit opens. A warp takes 8 samples of one model through all steps, and
// never waits for another one. Slots are the rows of matrix instructions, 8 to a block, and samples their columns: a
// thread has one slot of every block (its row), and two samples. States of closed units lie in shared memory.
//
// Constants, besides cell.cuh's: H units, D inputs, NB blocks of slots, WARPS that shall fit onto a multiprocessor.

#define EVERYBODY 0xffffffffu

// A span's record, in 32-bit words: first step, the step after its last, its first pair (an open unit at a step) of the
// model's, the number of the highest unit that was ever open before, plus 1; then sets of slots: open ones, those of units
// that open here, that close here (and keep their slots until the next span), that open here and were open before; the
// units in the slots, or -1.
#define RECORD 40
#define START_AT 0
#define END_AT 1
#define FIRST_AT 2
#define REACH_AT 3
#define OPEN_AT 4
#define OPENS_AT 5
#define CLOSES_AT 6
#define AGAIN_AT 7
#define UNITS_AT 8
// What is counted of a model: spans, pairs, slots (33: more than there are), used blocks of slots over all steps,
// sums over all closed units that have to be made afresh, openings of units that were open before.
#define COUNTS 8
#define SPANS_AT 0
#define PAIRS_AT 1
#define SLOTS_AT 2
#define BLOCK_STEPS_AT 3
#define AFRESH_AT 4
#define REOPENINGS_AT 5
